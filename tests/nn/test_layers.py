"""PDConv2d against the definition as loops, as a drop-in nn.Conv2d, and inside other networks."""

import warnings

import pytest
import torch
from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.nn.binary import BinaryPDCBlock
from pixeldiff.nn.layers import CDCM, CSAM, PDConv2d, fuse, replace_convs
from pixeldiff.nn.ops import PixelPairs, pixel_pairs

KINDS = ["vanilla", "central", "angular", "radial"]


def defined(x, layer):
    """The layer's output from sum_i w_i (x_i - x'_i), written as loops over everything."""
    (pad_y, pad_x), (step_y, step_x), (dil_y, dil_x) = layer.padding, layer.stride, layer.dilation
    radius = layer.pairs.support // 2
    x = nn.functional.pad(x, (pad_x, pad_x, pad_y, pad_y))
    n, _, height, width = x.shape
    rows = range(radius * dil_y, height - radius * dil_y, step_y)
    columns = range(radius * dil_x, width - radius * dil_x, step_x)
    out = torch.zeros(n, layer.out_channels, len(rows), len(columns), dtype=x.dtype)
    per_group = layer.in_channels // layer.groups
    difference_channels = int(layer.ratio * layer.in_channels)
    plain = pixel_pairs("vanilla", layer.kernel_size[0])
    for o in range(layer.out_channels):
        for j in range(per_group):
            channel = o // (layer.out_channels // layer.groups) * per_group + j
            pairs = layer.pairs if channel < difference_channels else plain
            for w, pair in zip(layer.weight[o, j].flatten(), pairs.pairs, strict=True):
                if pair is None:
                    continue
                for point, sign in zip(pair, (1, -1), strict=True):
                    if point is None:
                        continue
                    for r, y in enumerate(rows):
                        for c, col in enumerate(columns):
                            out[:, o, r, c] += sign * w * x[:, channel, y + point[0] * dil_y, col + point[1] * dil_x]
    return out if layer.bias is None else out + layer.bias[:, None, None]


SETTINGS = [
    dict(padding="same"),
    dict(padding=2, stride=2, bias=False),
    dict(padding=(2, 3), stride=(1, 2), dilation=1),
    dict(padding="same", dilation=2, groups=2),
    dict(padding=0, groups=4),
    dict(padding="same", groups=4, bias=False),
    dict(padding="same", ratio=0.5),
    dict(padding="same", ratio=0.3, groups=2),
    dict(padding=2, ratio=0.75, groups=4, stride=2),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_forward_equals_the_definition(kind, setting):
    torch.manual_seed(0)
    layer = PDConv2d(4, 4, 3, kind=kind, dtype=torch.float64, **setting)
    x = torch.randn(2, 4, 9, 7, dtype=torch.float64)
    torch.testing.assert_close(layer(x), defined(x, layer))
    torch.testing.assert_close(layer.fuse()(x), layer(x))


def test_a_user_pair_set_of_size_5():
    torch.manual_seed(0)
    pairs = PixelPairs.from_list([((y, x), (-y, -x)) for y in (-2, -1) for x in range(-2, 3)], kernel_size=5)
    layer = PDConv2d(2, 3, 5, padding="same", kind=pairs, dtype=torch.float64)
    x = torch.randn(1, 2, 7, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x), defined(x, layer))


@pytest.mark.parametrize("kind", ["central", "angular", "radial"])
@pytest.mark.parametrize("setting", [dict(ratio=0.5), dict(groups=2, bias=False)], ids=str)
def test_backward(kind, setting):
    torch.manual_seed(0)
    layer = PDConv2d(2, 2, 3, padding="same", kind=kind, dtype=torch.float64, **setting)
    x = torch.randn(1, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    names, values = zip(*layer.named_parameters(), strict=True)

    def run(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, (x, *(p.detach().clone().requires_grad_() for p in values)))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding_modes_pad_as_conv2d_does(mode):
    torch.manual_seed(0)
    layer = PDConv2d(2, 3, 3, padding="same", padding_mode=mode, kind="radial", dtype=torch.float64)
    x = torch.randn(1, 2, 8, 7, dtype=torch.float64)
    valid = PDConv2d(2, 3, 3, kind="radial", dtype=torch.float64)
    valid.load_state_dict(layer.state_dict())
    torch.testing.assert_close(layer(x), valid(nn.functional.pad(x, (2, 2, 2, 2), mode=mode)))
    torch.testing.assert_close(layer.fuse()(x), layer(x))


def test_is_a_drop_in_for_conv2d():
    conv = nn.Conv2d(6, 4, 3, padding=1, groups=2)
    layer = PDConv2d(6, 4, 3, padding=1, groups=2, kind="central")
    layer.load_state_dict(conv.state_dict())
    x = torch.randn(1, 6, 5, 5)
    assert isinstance(layer, nn.Conv2d)
    assert layer(x).shape == conv(x).shape


def test_ratio_zero_is_the_plain_convolution():
    conv = nn.Conv2d(4, 4, 3, padding=1)
    model = nn.Sequential(conv)
    x = torch.randn(1, 4, 6, 6)
    expected = conv(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert replace_convs(model, "radial", ratio=0.0) == {"0": 0}
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("kind", ["central", "radial"])
def test_replace_convs_keeps_shapes_and_weights(kind):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.Sequential(nn.Conv2d(8, 4, 5))
    )
    weights = [p.clone() for p in model.parameters()]
    shape = model(torch.randn(2, 3, 21, 17)).shape
    assert replace_convs(model, kind, ratio=0.5) == {"0": 1, "3.0": 4}
    assert [type(m) for m in model.modules() if isinstance(m, nn.Conv2d)] == [PDConv2d, nn.Conv2d, PDConv2d]
    assert model(torch.randn(2, 3, 21, 17)).shape == shape
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))


def test_replace_convs_says_what_it_does_not_change():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1))
    stem, x = model[0], torch.randn(1, 3, 7, 9)
    expected = stem(x)
    with pytest.warns(UserWarning, match=r"1 of 2 layers take no differences, 0 is the first: ratio=0\.2 of its 3"):
        assert replace_convs(model, "radial", ratio=0.2) == {"0": 0, "1": 1}
    assert model[0] is stem
    torch.testing.assert_close(model[0](x), expected, rtol=0, atol=0)
    assert isinstance(model[1], PDConv2d)


@pytest.mark.parametrize("ratio", [-0.1, 1.5, float("nan")])
def test_replace_convs_checks_the_ratio(ratio):
    with pytest.raises(UserError, match="0 to 1"):
        replace_convs(nn.Sequential(nn.Conv2d(3, 3, 3)), "central", ratio=ratio)


@pytest.mark.parametrize("layer", [PDConv2d, BinaryPDCBlock])
@pytest.mark.parametrize(("channels", "least"), [(3, 0.3334), (4, 0.25), (7, 0.1429)])
def test_a_ratio_that_rounds_to_no_channel_is_an_error(layer, channels, least):
    with pytest.raises(UserError, match=f"of {channels} input channels rounds down to none.*ratio of {least}"):
        layer(channels, 8, 3, ratio=least - 0.01)
    assert layer(channels, 8, 3, ratio=least).difference_channels == 1
    assert layer(channels, 8, 3, ratio=0.0).difference_channels == 0
    layer(channels, 8, 3, kind="vanilla", ratio=0.01)


def test_the_default_ratio_of_binary_layers_needs_five_channels():
    with pytest.raises(UserError, match="rounds down to none"):
        BinaryPDCBlock(3, 8)
    assert BinaryPDCBlock(5, 8).difference_channels == 1


@pytest.mark.parametrize("kind", ["central", "angular", "radial"])
def test_a_kernel_of_one_pixel_has_no_differences(kind):
    with pytest.raises(UserError, match=f"1x1 kernel of kind {kind} has no differences"):
        PDConv2d(4, 4, 1, kind=kind)


def test_a_layer_in_two_places_stays_one_layer():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 3, 3, padding=1)
    model = nn.Sequential(conv, nn.ReLU(), nn.Sequential(conv))
    assert replace_convs(model, "central") == {"0": 3, "2.0": 3}
    assert isinstance(model[0], PDConv2d)
    assert model[0] is model[2][0]
    fused = fuse(model)
    assert type(fused[0]) is nn.Conv2d
    assert fused[0] is fused[2][0]
    x = torch.randn(1, 3, 7, 7)
    torch.testing.assert_close(fused(x), model(x))


def test_replace_convs_leaves_subclasses_alone_unless_named():
    class Own(nn.Conv2d):
        pass

    model = nn.Sequential(Own(3, 3, 3), nn.Conv2d(3, 3, 3))
    assert replace_convs(model, "central") == {"1": 3}
    assert replace_convs(model, "central", include=["0"]) == {"0": 3}


def test_replace_convs_takes_names_or_a_test():
    model = nn.Sequential(nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3))
    assert replace_convs(model, "angular", include=["1"]) == {"1": 3}
    assert replace_convs(model, "central", include=lambda name, conv: name == "2") == {"2": 3}
    with pytest.raises(UserError, match=r"no nn\.Conv2d named 9"):
        replace_convs(model, "central", include=["9"])
    with pytest.raises(UserError, match=r"wrap a bare convolution in nn\.Sequential"):
        replace_convs(nn.Conv2d(3, 3, 3), "central")


def test_fuse_replaces_every_difference_layer_and_leaves_the_model_alone():
    torch.manual_seed(0)
    model = nn.Sequential(PDConv2d(3, 4, 3, padding="same", kind="radial"), nn.Sequential(PDConv2d(4, 2, 3)))
    x = torch.randn(1, 3, 9, 9)
    fused = fuse(model)
    assert not any(isinstance(m, PDConv2d) for m in fused.modules())
    assert sum(isinstance(m, PDConv2d) for m in model.modules()) == 2
    torch.testing.assert_close(fused(x), model(x))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(padding=1, kind="radial"), "use padding=2 or 'same'"),
        (dict(padding=2, dilation=2, kind="radial"), "use padding=4 or 'same'"),
        (dict(padding="same", stride=2), "needs stride 1"),
        (dict(padding="full"), "unknown padding 'full'"),
        (dict(kind="center"), "unknown kind 'center'"),
        (dict(ratio=1.5), "0 to 1, got 1.5"),
    ],
)
def test_bad_arguments_are_explained(arguments, message):
    with pytest.raises(UserError, match=message):
        PDConv2d(3, 4, 3, **arguments)


def test_square_odd_kernels_only():
    with pytest.raises(UserError, match="square kernel, got 3x5"):
        PDConv2d(3, 4, (3, 5))
    with pytest.raises(UserError, match="odd kernel size, got 2"):
        PDConv2d(3, 4, 2)


def test_cdcm_is_the_sum_of_four_dilated_views():
    torch.manual_seed(0)
    module, x = CDCM(6, 3), torch.randn(1, 6, 13, 7)
    squeezed = module.squeeze(x.clamp(min=0))
    views = [
        nn.functional.conv2d(squeezed, v.weight, padding=d, dilation=d)
        for v, d in zip(module.views, (5, 7, 9, 11), strict=True)
    ]
    torch.testing.assert_close(module(x), sum(views))


@pytest.mark.parametrize("channels", [8, 24, 32])
def test_cdcm_has_gradients_in_bfloat16(channels):
    module, x = CDCM(6, channels), torch.randn(2, 6, 40, 40)
    expected = torch.autograd.grad(module(x).square().mean(), list(module.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    gradients = torch.autograd.grad(y.float().square().mean(), list(module.parameters()))
    for ours, theirs in zip(gradients, expected, strict=True):
        assert (ours - theirs).norm() < 0.03 * theirs.norm()


def test_csam_multiplies_by_a_map_between_0_and_1():
    torch.manual_seed(0)
    module, x = CSAM(5), torch.randn(2, 5, 6, 7)
    ratio = module(x) / x
    assert ((ratio > 0) & (ratio < 1)).all()
    torch.testing.assert_close(ratio, ratio[:, :1].expand_as(ratio))
