"""A made-up edge family, one module (this one) and one entry: trains, runs, labels images, is scored and exported."""

import json
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from pixeldiff import EdgeDetector, image
from pixeldiff.cli import main
from pixeldiff.export.onnx import PARITY, export_weights
from pixeldiff.models import FAMILIES, create_model
from pixeldiff.models.edge_module import EdgeModule
from pixeldiff.models.saving import load_model, save_model
from pixeldiff.nn.layers import PDConv2d

TASK = "edges"


@dataclass(frozen=True)
class LadderConfig:
    width: int = 4


class Ladder(nn.Module):
    """Two convolutions, a map after each, and their sum."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.first = PDConv2d(3, config.width, 3, padding="same", kind="central")
        self.second = nn.Conv2d(config.width, config.width, 3, padding=1)
        self.maps = nn.ModuleList(nn.Conv2d(config.width, 1, 1) for _ in range(2))

    def side_logits(self, x):
        first = torch.relu(self.first(x))
        sides = [head(features) for head, features in zip(self.maps, (first, self.second(first)), strict=True)]
        return [*sides, sides[0] + sides[1]]

    def forward(self, x):
        return self.side_logits(x)[-1]


VARIANTS = {"ladder": LadderConfig()}


def build(config):
    return Ladder(config)


def preprocessing(config):
    return image.preprocessing()


@pytest.fixture
def trained(monkeypatch, tmp_path, rng):
    """Its weights file after a step of training."""
    monkeypatch.setitem(FAMILIES, "ladder", sys.modules[__name__])
    torch.manual_seed(0)
    model = create_model("ladder")
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    x, target = torch.randn(2, 3, 24, 24), torch.ones(2, 1, 24, 24)
    losses = []
    for _ in range(2):
        losses.append(sum(nn.functional.binary_cross_entropy_with_logits(y, target) for y in model.side_logits(x)))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[1] < losses[0]
    save_model(model, tmp_path / "ladder.safetensors", {"license": "Apache-2.0"})
    return tmp_path / "ladder.safetensors"


@pytest.fixture
def photos(tmp_path, rng):
    for folder in ("images", "truth"):
        (tmp_path / folder).mkdir()
    for name in "ab":
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(tmp_path / f"images/{name}.png")
        truth = np.zeros((40, 50), np.uint8)
        truth[20, 5:45] = 255
        Image.fromarray(truth).save(tmp_path / f"truth/{name}.png")
    return tmp_path


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert not stopped.value.code


def test_it_runs_on_torch_like_the_model(trained, rng):
    photo = rng.integers(0, 256, (33, 47, 3), dtype=np.uint8)
    planes = torch.from_numpy(image.normalize(photo, image.MEAN, image.STD))[None]
    with torch.no_grad():
        expected = torch.cat(load_model(trained).side_logits(planes))[:, 0].sigmoid().numpy()
    detector = EdgeDetector(trained)
    assert detector.network.backend.name == "torch"
    np.testing.assert_allclose(detector(photo), expected[-1], atol=1e-6)
    np.testing.assert_allclose(detector(photo, sides=True), expected, atol=1e-6)
    pixels = torch.from_numpy(photo / np.float32(255)).permute(2, 0, 1)[None]
    with torch.no_grad():
        np.testing.assert_allclose(EdgeModule(trained)(pixels)[0, 0].numpy(), expected[-1], atol=1e-5)


def test_it_is_exported_to_onnx(trained, tmp_path, rng):
    assert export_weights(trained, tmp_path / "ladder.onnx") <= PARITY
    photo = rng.integers(0, 256, (33, 47, 3), dtype=np.uint8)
    np.testing.assert_allclose(EdgeDetector(tmp_path / "ladder.onnx")(photo), EdgeDetector(trained)(photo), atol=PARITY)


def test_it_labels_images(trained, photos):
    run("data", "pseudo-label", photos / "images", "-o", photos / "labels", "--teacher", trained, "--threads", 1)
    assert sorted(path.name for path in (photos / "labels").glob("*.png")) == ["a.png", "b.png"]


def test_it_is_scored(trained, photos):
    result = photos / "scores.json"
    labels = ("--images", photos / "images", "--labels", photos / "truth")
    run("eval", "edges", "--model", trained, *labels, "--json", result, "--threads", 1, "--thresholds", 5)
    (scores,) = json.loads(result.read_text())["results"]
    assert scores["name"] == "ladder"
    assert 0 <= scores["ods"] <= 1
