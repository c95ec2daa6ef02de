"""GhostNet and the detector on it: published counts, differences in the cheap operations, folding, saving."""

import warnings

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import create_model, init_from
from pixeldiff.models.calibration import calibrate_batch_norm
from pixeldiff.models.counting import count_layers
from pixeldiff.models.detector import points
from pixeldiff.nn.layers import PDConv2d


def multiply_adds(model, size):
    return sum(record.flops for record in count_layers(model, size) if record.operation != "batch norm")


@pytest.fixture(scope="module")
def detector():
    torch.manual_seed(0)
    return calibrate_batch_norm(create_model("ghostnet_objects", width=0.5, channels=24, kind="angular", ratio=0.3))


def test_ghostnet_has_the_published_size():
    model = create_model("ghostnet")
    assert sum(p.numel() for p in model.parameters()) == 5_182_508  # 5.18 M
    assert multiply_adds(model, 224) == 141_150_512  # 141.15 M


@pytest.mark.parametrize("kind", ["central", "angular"])
def test_differences_are_in_the_cheap_operations_and_cost_nothing(kind):
    plain, model = create_model("ghostnet"), create_model("ghostnet", kind=kind, ratio=0.3)
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, PDConv2d)]
    assert len(layers) == 32
    assert all(name.endswith("cheap.0") and layer.ratio == 0.3 for name, layer in layers)
    assert multiply_adds(model, 224) == multiply_adds(plain, 224)


def test_boxes_are_decoded_as_written(detector):
    maps = [torch.zeros(1, 24, 64 // s, 96 // s) for s in (8, 16, 32)]
    maps[1][0, 20:, 2, 3] = torch.tensor([1.0, 2.0, 3.0, 4.0]).log()
    logits, boxes = detector.decode(maps)
    assert logits.shape == (1, 8 * 12 + 4 * 6 + 2 * 3, 20)
    center = torch.tensor([3.5 * 16, 2.5 * 16])
    away = 16 * torch.tensor([-1.0, -2.0, 3.0, 4.0])
    torch.testing.assert_close(boxes[0, 96 + 2 * 6 + 3], center.repeat(2) + away)
    assert points(maps[0], 8)[:2].tolist() == [[4, 4], [12, 4]]


def test_a_detector_takes_the_body_of_a_classifier():
    body = create_model("ghostnet", width=0.5, classes=20, kind="angular", ratio=0.3)
    fresh = create_model("ghostnet_objects", width=0.5, channels=24, kind="angular", ratio=0.3)
    init_from(fresh, body)
    assert torch.equal(fresh.body.stem[0].weight, body.body.stem[0].weight)
    with pytest.raises(UserError, match="its body has kind, ratio and width"):
        init_from(create_model("ghostnet_objects", width=0.5, channels=24), body)


def test_a_layer_too_narrow_for_the_ratio_keeps_plain_pixels_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = create_model("ghostnet_objects", width=0.25, kind="central", ratio=0.3)
    cheap = [layer for name, layer in model.named_modules() if name.endswith("cheap.0")]
    assert [type(layer) for layer in cheap if layer.in_channels < 4] == [torch.nn.Conv2d] * 2
    assert all(isinstance(layer, PDConv2d) for layer in cheap if layer.in_channels >= 4)
    with pytest.raises(UserError, match="no channel in every layer"):
        create_model("ghostnet_objects", kind="central", ratio=0.001)


def test_settings_that_do_nothing():
    for changes in ({"kind": "central"}, {"ratio": 0.3}):
        with pytest.raises(UserError, match="has no effect"):
            create_model("ghostnet_objects", **changes)
    with pytest.raises(UserError, match="width 0 to 8"):
        create_model("ghostnet", width=0.0)
