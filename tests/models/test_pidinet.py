"""PiDiNet: the published sizes, patterns and switches."""

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import create_model, list_models
from pixeldiff.models.pidinet import PATTERNS, VARIANTS, init_from
from pixeldiff.nn.layers import PDConv2d, fuse


def size(name, **changes):
    return sum(p.numel() for p in create_model(name, **changes).parameters())


def test_published_parameter_counts():
    # The authors' files hold these many; the paper says 710K for basic.
    assert size("basic") == size("basic", pattern="baseline") == 710149
    assert size("small") == 183763
    assert size("tiny-l") == 73369


def test_names_and_aliases():
    assert {"tiny", "tiny-l", "small", "basic", "wide", "wider-l"} <= set(list_models())
    assert create_model("pidinet_tiny_l").config == create_model("PiDiNet-tiny-l").config == VARIANTS["tiny-l"]
    assert len(PATTERNS) == 14
    with pytest.raises(UserError, match="unknown model 'huge'; there are tiny"):
        create_model("huge")
    with pytest.raises(UserError, match="unknown option widht"):
        create_model("tiny", widht=3)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_pattern_names_the_layers(pattern):
    kinds = [m.kind for m in create_model("tiny", pattern=pattern).modules() if isinstance(m, PDConv2d)]
    assert [kind[0] for kind in kinds] == list(PATTERNS[pattern])


@pytest.mark.parametrize("pattern", ["carvc", "x" * 16, ""])
def test_bad_patterns_are_explained(pattern):
    with pytest.raises(UserError, match="16 of the letters"):
        create_model("tiny", pattern=pattern)


@pytest.mark.parametrize(
    "switches", [{}, {"cdcm": False}, {"csam": False}, {"shortcuts": False}, {"cdcm": False, "csam": False}]
)
@pytest.mark.parametrize("shape", [(8, 8), (33, 47), (64, 65)])
def test_five_maps_of_the_input_size(switches, shape):
    torch.manual_seed(0)
    model = create_model("tiny", **switches).eval()
    x = torch.randn(2, 3, *shape)
    with torch.no_grad():
        maps = model.side_logits(x)
        assert [m.shape for m in maps] == [(2, 1, *shape)] * 5
        torch.testing.assert_close(maps[-1], torch.stack(maps[:4]).mean(0))  # the fusion starts as the mean
        torch.testing.assert_close(model(x), maps[-1])
        torch.testing.assert_close(fuse(model)(x), maps[-1])


def test_it_is_exported_with_named_dimensions():
    model = create_model("tiny", width=4, side_channels=2).eval()
    sides = {2: torch.export.Dim("height", min=16, max=4096), 3: torch.export.Dim("width", min=16, max=4096)}
    shapes = ({0: torch.export.Dim("images", min=1, max=64), **sides},)
    exported = torch.export.export(model, (torch.randn(2, 3, 33, 47),), dynamic_shapes=shapes)
    x = torch.randn(1, 3, 40, 65)
    torch.testing.assert_close(exported.module()(x), model(x))


@pytest.mark.parametrize("suffix", ["", "-l"])
def test_a_widened_network_computes_the_same_and_can_learn_more(suffix):
    torch.manual_seed(0)
    tiny, small = create_model("tiny" + suffix), create_model("small" + suffix)
    init_from(small, tiny)
    x = torch.randn(1, 3, 33, 40)
    expected, result = tiny.side_logits(x), small.side_logits(x)
    for a, b in zip(expected, result, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-4)
    result[-1].square().mean().backward()
    gradient = small.stages[1][1].pointwise.weight.grad
    assert not torch.allclose(gradient[:20], gradient[40:], rtol=1e-2), "channel 40 repeats channel 0, and learns apart"


@pytest.mark.parametrize(("old", "new"), [("tiny", "tiny-l"), ("tiny-l", "small")])
def test_stages_without_their_sides_are_taken_over(old, new):
    torch.manual_seed(0)
    old, new = create_model(old), create_model(new)
    fresh = {name: weight.clone() for name, weight in new.sides.state_dict().items()}
    init_from(new, old)
    x = torch.randn(1, 3, 33, 40)
    expected, result = old.stages[0](old.stem(x)), new.stages[0](new.stem(x))
    torch.testing.assert_close(result[:, :20], expected, rtol=1e-4, atol=1e-5)
    assert all(torch.equal(weight, fresh[name]) for name, weight in new.sides.state_dict().items())


def test_what_cannot_be_widened():
    small = create_model("small")
    with pytest.raises(UserError, match="same network or of a narrower one"):
        init_from(small, create_model("basic"))
    with pytest.raises(UserError, match="same network or of a narrower one"):
        init_from(small, create_model("tiny", pattern="baseline"))
