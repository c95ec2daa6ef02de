"""The binary operators and layers against their definitions as loops."""

import numpy as np
import pytest
import torch
from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.nn import lbp
from pixeldiff.nn.binary import BinaryPDCBlock, ReplicaPool, RPReLU, _RPReLU
from pixeldiff.nn.ops import PixelPairs, binary_conv2d, binary_pdc, pixel_differences, pixel_pairs, sign

KNIGHT = PixelPairs.from_list([((-2, 1), (0, 0)), ((1, 2), (2, -1)), ((0, 1), (1, 0))], 3)
CASES = [("central", 1), ("angular", 2), ("radial", 1), ("radial", 3), (KNIGHT, 1), (KNIGHT, 2)]


def as_sign(value: float) -> float:
    return 1.0 if value >= 0 else -1.0


def pixel(x: np.ndarray, n: int, c: int, row: int, column: int) -> float | None:
    inside = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
    return float(x[n, c, row, column]) if inside else None


def bipdc_by_definition(x: np.ndarray, w: np.ndarray, pairs: PixelPairs, stride: int) -> np.ndarray:
    size = [-(-side // stride) for side in x.shape[2:]]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    for n, o, row, column in np.ndindex(*out.shape):
        for c in range(x.shape[1]):
            for i, points in enumerate(pairs.differences):
                a, b = (pixel(x, n, c, stride * row + dy, stride * column + dx) or 0.0 for dy, dx in points)
                out[n, o, row, column] += as_sign(w[o, c, i]) * as_sign(a - b)
    return out


def bconv_by_definition(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    size = [-(-side // stride) for side in x.shape[2:]]
    r = w.shape[-1] // 2
    out = np.zeros((x.shape[0], w.shape[0], *size))
    for n, o, row, column in np.ndindex(*out.shape):
        for c, dy, dx in np.ndindex(*w.shape[1:]):
            value = pixel(x, n, c, stride * row + dy - r, stride * column + dx - r)
            if value is not None:  # padded after the sign: outside counts nothing
                out[n, o, row, column] += as_sign(w[o, c, dy, dx]) * as_sign(value)
    return out


def draw(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Normal numbers with exact zeros and equal neighbors among them."""
    return torch.from_numpy(np.round(rng.normal(size=shape), 1)).float()


def test_convention_sign_of_zero_is_plus_one() -> None:
    x = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 3.0, -3.0, float("inf"), float("-inf")])
    assert sign(x).tolist() == [1, 1, 1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize("clip", [1.0, 1.2])
def test_sign_gradient_passes_inside_the_clip_only(clip: float) -> None:
    x = torch.tensor([-2.0, -1.1, -0.5, 0.0, 0.9, 1.1, 5.0], requires_grad=True)
    sign(x, clip).backward(torch.arange(1.0, 8.0))
    expected = [g if abs(v) < clip else 0 for v, g in zip(x.tolist(), range(1, 8), strict=True)]
    assert x.grad is not None
    assert x.grad.tolist() == expected


@pytest.mark.parametrize(("kind", "stride"), CASES)
def test_bipdc_equals_its_definition(rng: np.random.Generator, kind: str | PixelPairs, stride: int) -> None:
    pairs = pixel_pairs(kind) if isinstance(kind, str) else kind
    x, w = draw(rng, 2, 3, 7, 5), draw(rng, 4, 3, len(pairs.differences))
    expected = bipdc_by_definition(x.numpy(), w.numpy(), pairs, stride)
    for layout in (torch.contiguous_format, torch.channels_last):
        got = binary_pdc(x.to(memory_format=layout), sign(w), kind, stride)
        np.testing.assert_array_equal(got.numpy(), expected)


def test_three_by_three_kinds_have_eight_binary_weights() -> None:
    assert [len(pixel_pairs(kind).differences) for kind in ("central", "angular", "radial")] == [8, 8, 8]


@pytest.mark.parametrize(("size", "stride"), [(1, 1), (3, 1), (3, 2), (5, 3)])
def test_binary_convolution_equals_its_definition(rng: np.random.Generator, size: int, stride: int) -> None:
    x, w = draw(rng, 2, 3, 7, 6), draw(rng, 4, 3, size, size)
    expected = bconv_by_definition(x.numpy(), w.numpy(), stride)
    np.testing.assert_array_equal(binary_conv2d(x, sign(w), stride).numpy(), expected)


def test_convention_borders() -> None:
    """Plain pixels are padded after the sign (a corner sums 4 of 9), differences before it (always 8)."""
    x = torch.full((1, 1, 3, 3), -1.0)
    plain = binary_conv2d(x, torch.ones(1, 1, 3, 3))[0, 0]
    assert plain.tolist() == [[-4, -6, -4], [-6, -9, -6], [-4, -6, -4]]
    # Outside is 0 > -1 and equal neighbors give +1: every sign is +1.
    assert binary_pdc(x, torch.ones(1, 1, 8), "central").unique().tolist() == [8]
    # Now outside is 0 < 1: 5 of the corner's 8 differences are -1.
    assert binary_pdc(-x, torch.ones(1, 1, 8), "central")[0, 0].tolist() == [[-2, 2, -2], [2, 8, 2], [-2, 2, -2]]


@pytest.mark.parametrize(("kind", "stride"), CASES)
def test_gradient_of_differences(rng: np.random.Generator, kind: str | PixelPairs, stride: int) -> None:
    pairs = pixel_pairs(kind) if isinstance(kind, str) else kind
    x = torch.from_numpy(rng.normal(size=(1, 2, 5, 6))).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: pixel_differences(t, pairs, stride), (x,))
    assert torch.autograd.gradgradcheck(lambda t: pixel_differences(t, pairs, stride), (x,))


def test_gradient_of_bipdc_is_straight_through(rng: np.random.Generator) -> None:
    """d y / d x_i = sum of w_b over the pairs with x_i, where |x_i - x'_i| < clip; likewise for the weights."""
    x, w = draw(rng, 1, 2, 4, 4).requires_grad_(), (0.4 * draw(rng, 3, 2, 8)).requires_grad_()
    g = draw(rng, 1, 3, 4, 4)
    binary_pdc(x, sign(w), "central").backward(g)
    gx, gw = np.zeros(x.shape), np.zeros(w.shape)
    values, weights = x.detach().numpy(), w.detach().numpy()
    for o, c, row, column in np.ndindex(3, 2, 4, 4):
        for i, (plus, _) in enumerate(pixel_pairs("central").differences):
            outer = pixel(values, 0, c, row + plus[0], column + plus[1])
            d = np.float32(outer or 0.0) - values[0, c, row, column]
            gw[o, c, i] += float(g[0, o, row, column]) * as_sign(d) * (abs(weights[o, c, i]) < 1)
            if abs(d) < 1:
                step = float(g[0, o, row, column]) * as_sign(weights[o, c, i])
                gx[0, c, row, column] -= step
                if outer is not None:
                    gx[0, c, row + plus[0], column + plus[1]] += step
    assert x.grad is not None
    assert w.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), gx, atol=1e-4)
    np.testing.assert_allclose(w.grad.numpy(), gw, atol=1e-4)


def randomize(layer: nn.Module, rng: np.random.Generator) -> None:
    for tensor in [*layer.parameters(), *(b for b in layer.buffers() if b.dim())]:
        with torch.no_grad():
            tensor.copy_(draw(rng, *tensor.shape).abs() + 0.1 if tensor.dim() == 1 else draw(rng, *tensor.shape))


def normalized(norm: nn.BatchNorm2d, sums: np.ndarray) -> np.ndarray:
    def per_channel(tensor: torch.Tensor | None) -> np.ndarray:
        assert tensor is not None
        return tensor.detach().numpy()[:, None, None]

    centered = (sums - per_channel(norm.running_mean)) / np.sqrt(per_channel(norm.running_var) + norm.eps)
    return centered * per_channel(norm.weight) + per_channel(norm.bias)


def rprelu(layer: nn.Module, x: np.ndarray) -> np.ndarray:
    before, slope, after = (p.detach().numpy()[:, None, None] for p in layer.parameters())
    z = x + before
    return np.where(z > 0, z, slope * z) + after


@pytest.mark.parametrize("activation", ["sum", "branch"])
@pytest.mark.parametrize(("kind", "ratio", "stride"), [("central", 0.4, 1), ("angular", 0.2, 2), ("radial", 0.7, 1)])
def test_mixed_layer_equals_its_definition(
    rng: np.random.Generator, kind: str, ratio: float, stride: int, activation: str
) -> None:
    layer = BinaryPDCBlock(5, 4, 3, stride, kind=kind, ratio=ratio, activation=activation)
    randomize(layer, rng)
    layer.eval()
    x = draw(rng, 2, 5, 6, 5)
    c = int(ratio * 5)
    assert layer.difference_weight is not None
    assert layer.weight is not None
    d = bipdc_by_definition(x[:, :c].numpy(), layer.difference_weight.detach().numpy(), pixel_pairs(kind), stride)
    v = bconv_by_definition(x[:, c:].numpy(), layer.weight.detach().numpy(), stride)
    assert layer.difference_norm is not None
    assert layer.norm is not None
    d, v = normalized(layer.difference_norm, d), normalized(layer.norm, v)
    if activation == "sum":
        expected = rprelu(layer.activations[0], d + v)
    else:
        expected = rprelu(layer.activations[0], d) + rprelu(layer.activations[1], v)
    with torch.no_grad():
        np.testing.assert_allclose(layer(x).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_ratio_picks_the_first_channels_and_the_ends_have_one_branch() -> None:
    for ratio, difference_channels in ((0.0, 0), (0.2, 12), (0.29, 18), (1.0, 64)):
        layer = BinaryPDCBlock(64, 8, ratio=ratio)
        assert layer.difference_channels == difference_channels
        assert (layer.difference_weight is None, layer.difference_norm is None) == (difference_channels == 0,) * 2
        assert (layer.weight is None, layer.norm is None) == (difference_channels == 64,) * 2
    assert BinaryPDCBlock(100, 8, ratio=0.29).difference_channels == 29
    assert BinaryPDCBlock(64, 8, kind="vanilla", ratio=0.5).difference_channels == 0


def test_real_weights_with_binary_activations(rng: np.random.Generator) -> None:
    layer = BinaryPDCBlock(5, 4, ratio=0.0, binary_weights=False).eval()
    assert layer.weight is not None
    x = draw(rng, 1, 5, 4, 4)
    sums = nn.functional.conv2d(sign(x), layer.weight, padding=1)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), nn.functional.prelu(sums / (1 + 1e-5) ** 0.5, torch.tensor([0.25] * 4)))


def test_rprelu(rng: np.random.Generator) -> None:
    layer = RPReLU(3)
    randomize(layer, rng)
    x = draw(rng, 2, 3, 4, 5)
    np.testing.assert_allclose(layer(x).detach().numpy(), rprelu(layer, x.numpy()), rtol=1e-6)
    assert sum(p.numel() for p in layer.parameters()) == 9
    inputs = [torch.from_numpy(rng.normal(size=size)).requires_grad_() for size in ((2, 3, 4, 5), 3, 3, 3)]
    assert torch.autograd.gradcheck(_RPReLU.apply, inputs)
    assert torch.autograd.gradgradcheck(_RPReLU.apply, inputs)


@pytest.mark.parametrize(("copies", "parts", "channels"), [(1, 1, 4), (1, 2, 6), (2, 3, 6)])
def test_replica_pool_is_algorithm_1(rng: np.random.Generator, copies: int, parts: int, channels: int) -> None:
    x = draw(rng, 2, channels, 4, 6)
    pooled = np.zeros((2, channels, 2, 3))
    for n, c, row, column in np.ndindex(*pooled.shape):
        pooled[n, c, row, column] = x[n, c, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].mean()
    segments = np.split(pooled, parts, axis=1)
    expected = np.concatenate([pooled] * copies + [sum(segments) / parts], axis=1)
    np.testing.assert_allclose(ReplicaPool(copies, parts)(x).numpy(), expected, atol=1e-6)


def test_a_binary_layer_compiles_without_a_graph_break(rng: np.random.Generator) -> None:
    layer = BinaryPDCBlock(6, 4, ratio=0.5)
    compiled, x = torch.compile(layer, fullgraph=True, backend="eager"), draw(rng, 2, 6, 7, 9)
    compiled(x).square().sum().backward()
    gradients = [p.grad.clone() for p in layer.parameters() if p.grad is not None]
    layer.zero_grad()
    layer(x).square().sum().backward()
    torch.testing.assert_close(gradients, [p.grad for p in layer.parameters()])


def test_replica_pool_between_widths() -> None:
    pools = [ReplicaPool.between(a, b) for a, b in ((64, 128), (128, 192), (32, 64), (30, 70))]
    assert [(pool.copies, pool.parts) for pool in pools] == [(1, 1), (1, 2), (1, 1), (2, 3)]


def test_fixed_lbp_kernels_do_not_train() -> None:
    torch.manual_seed(0)
    layer = BinaryPDCBlock(50, 100, ratio=0.5, fixed_lbp="uniform")
    weight = layer.difference_weight
    assert weight is not None
    assert not weight.requires_grad
    codes = lbp.lbp_codes(weight.numpy())
    assert np.isin(codes, lbp.uniform_codes()).mean() == pytest.approx(0.8)
    layer(torch.randn(2, 50, 4, 4)).sum().backward()
    torch.manual_seed(0)
    again = BinaryPDCBlock(50, 100, ratio=0.5, fixed_lbp="uniform").difference_weight
    assert again is not None
    assert torch.equal(weight, again)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BinaryPDCBlock(8, 8, ratio=1.5), "0 to 1"),
        (lambda: BinaryPDCBlock(8, 8, ratio=-0.1), "0 to 1"),
        (lambda: BinaryPDCBlock(8, 8, ratio=float("nan")), "0 to 1"),
        (lambda: BinaryPDCBlock(8, 8, activation="relu"), "sum or branch"),
        (lambda: BinaryPDCBlock(8, 8, kind="diagonal"), "unknown kind"),
        (lambda: BinaryPDCBlock(8, 8, kernel_size=4), "odd kernel"),
        (lambda: BinaryPDCBlock(0, 8), "positive"),
        (lambda: BinaryPDCBlock(8, 8, ratio=0.5, fixed_lbp="case 3"), "random or uniform"),
        (lambda: BinaryPDCBlock(8, 8, 1), "1x1 kernel of kind central has no differences"),
        (lambda: BinaryPDCBlock(8, 8, ratio=0.5, kind=KNIGHT, fixed_lbp="random"), "8 weights"),
        (lambda: BinaryPDCBlock(8, 8)(torch.zeros(1, 7, 4, 4)), "takes (N, 8, H, W)"),
        (lambda: binary_pdc(torch.zeros(1, 2, 4, 4), torch.ones(3, 2, 9), "central"), "(out, 2, 8)"),
        (lambda: binary_pdc(torch.zeros(1, 2, 4, 4), torch.ones(3, 2, 9), "vanilla"), "second pixel"),
        (lambda: ReplicaPool(0, 1), "at least 1"),
        (lambda: ReplicaPool(1, 3)(torch.zeros(1, 4, 4, 4)), "equal parts"),
        (lambda: ReplicaPool(1, 1)(torch.zeros(1, 4, 5, 4)), "even"),
        (lambda: ReplicaPool.between(64, 100), "whole M and N"),
        (lambda: ReplicaPool.between(64, 32), "whole M and N"),
    ],
)
def test_bad_input(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError) as error:
        make()
    assert message in str(error.value)
