"""The network for faces: its counts, what it refuses, what it gives."""

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.metrics.complexity import total
from pixeldiff.models import create_model, list_models, model_config
from pixeldiff.models.counting import count_layers
from pixeldiff.nn.binary import BinaryPDCBlock


def counts(name, **changes):
    with torch.device("meta"):
        return total(count_layers(create_model(name, **changes), 112, 96))


def test_float_counts_are_those_of_the_paper():
    result = counts("sphereface20")
    assert (result.flops, result.fp_params, result.bops) == (1_740_125_184, 11_655_424, 0)
    assert f"{result.ops / 1e8:.2f}" == "17.40"
    assert result.memory_mbit == pytest.approx(373, abs=0.5)


@pytest.mark.parametrize(
    ("changes", "binary", "bops"),
    [
        ({"kind": "vanilla", "ratio": 0.0}, 11_649_024, 1_734_082_560),
        ({"kind": "central"}, 11_391_744, 1_696_214_016),
        ({"kind": "angular"}, 11_391_744, 1_696_214_016),
        ({"kind": "radial"}, 11_391_744, 1_696_214_016),
    ],
)
def test_binary_counts(changes, binary, bops):
    result = counts("sphereface20_bipdc", **changes)
    assert (result.binary_params, result.bops) == (binary, bops)
    assert result.memory_mbit == pytest.approx(18, abs=0.5)
    assert result.ops == pytest.approx(0.527e8 if changes["kind"] == "vanilla" else 0.534e8, rel=0.001)


def test_there_are_twenty_convolutions():
    for name in (name for name in list_models() if name.startswith("sphereface20")):
        model = create_model(name, width=1 / 8, embedding=8)
        large = [
            m for m in model.modules()
            if isinstance(m, BinaryPDCBlock) or (isinstance(m, torch.nn.Conv2d) and m.kernel_size == (3, 3))
        ]  # fmt: skip
        assert len(large) == 20


@pytest.mark.parametrize("name", ["sphereface20", "sphereface20_bipdc"])
@pytest.mark.parametrize("kind", ["vanilla", "central", "angular", "radial"])
def test_every_kind_gives_embeddings_that_learn(name, kind):
    torch.manual_seed(0)
    ratio = 0.0 if kind == "vanilla" else 0.2
    model = create_model(name, width=1 / 8, embedding=12, classes=3, kind=kind, ratio=ratio)
    x = torch.randn(2, 3, 112, 96)
    y = model(x)
    assert y.shape == (2, 12)
    model.head(y, torch.tensor([0, 2]), 4, 5.0).sum().backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.isfinite().all()]
    assert missing == []


@pytest.mark.parametrize(("ratio", "difference_channels"), [(0.2, 0), (0.34, 1)])
def test_rgb_takes_differences_where_the_ratio_has_one_of_its_channels(ratio, difference_channels):
    first = create_model("sphereface20", width=1 / 8, embedding=4, kind="central", ratio=ratio).stages[0][0]
    assert getattr(first, "difference_channels", 0) == difference_channels


def test_mistakes_are_explained():
    with pytest.raises(UserError, match="aligned faces of 112 x 96 pixels, got 96 x 112"):
        create_model("sphereface20_binary", width=1 / 8, embedding=4)(torch.zeros(1, 3, 96, 112))
    for changes, message in (
        ({"kind": "vanilla"}, "has no effect"),
        ({"ratio": 0.0}, "has no effect"),
        ({"width": 0.3}, "not whole"),
        ({"embedding": 0}, "positive"),
        ({"architecture": "binry"}, "unknown architecture"),
    ):
        with pytest.raises(UserError, match=message):
            create_model("sphereface20_bipdc", **changes)
    assert model_config("sphereface20_bipdc").classes == 0
