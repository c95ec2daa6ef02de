"""Packing binary networks: logits as torch's, one bit per weight, nothing written unless it agrees."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from pixeldiff import UserError, _native, cli
from pixeldiff.export.packed import _branches, pack_model
from pixeldiff.inference.classes import Classifier
from pixeldiff.models import create_model
from pixeldiff.models.bipidinet import VARIANTS, BiPiDiNet, BiPiDiNetConfig
from pixeldiff.models.saving import save_model
from pixeldiff.nn.binary import BinaryPDCBlock
from pixeldiff.training.tasks.classes import Data, preprocessing

BEFORE = BiPiDiNetConfig("before", width=0.125, stem="cifar", classes=7)
AFTER = BiPiDiNetConfig("after", width=0.25, stem="cifar", classes=7)
CONFIGS = {
    "before": BEFORE,
    "after": AFTER,
    "before imagenet": replace(BEFORE, stem="imagenet"),
    "after imagenet": replace(AFTER, stem="imagenet"),
    "34": replace(BEFORE, depth=34),
    "vanilla": replace(BEFORE, kind="vanilla", ratio=0.0),
    "angular": replace(AFTER, kind="angular"),
    "radial": replace(BEFORE, kind="radial", ratio=0.5),
    "all differences": replace(BEFORE, ratio=1.0),
    "branch": replace(AFTER, activation="branch"),
    "fixed": replace(BEFORE, fixed_lbp="random"),
}


def network(config: BiPiDiNetConfig) -> BiPiDiNet:
    """A network whose norms and activations are not the initial ones."""
    torch.manual_seed(0)
    model = BiPiDiNet(config).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 3)
            module.running_var.uniform_(10, 100)
            module.weight.data.uniform_(-1.5, 1.5)
            module.bias.data.normal_(0, 0.5)
        if isinstance(module, BinaryPDCBlock):
            for act in module.activations:
                for parameter in act.parameters():
                    parameter.data.normal_(0, 0.3)
    return model


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_logits_are_those_of_torch(tmp_path, rng, config):
    model = network(config)
    assert pack_model(model, tmp_path / "model.pdn") < 1e-3
    packed = Classifier(tmp_path / "model.pdn")
    side = 32 if config.stem == "cifar" else 64
    x = rng.normal(size=(2, side, side, 3)).astype(np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(x).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(packed.run(x), expected, atol=1e-3)


def test_a_mixed_layer_agrees_with_torch_to_the_last_bit(tmp_path, rng):
    """Where multiply-add is fused: the signs of the next layer hang on the last bit."""
    model = network(replace(AFTER, activation="branch"))
    pack_model(model, tmp_path / "model.pdn")
    packed = Classifier(tmp_path / "model.pdn")
    unit, layer = model.stages[0][2], packed.file.layers[3]
    assert layer.differing > 0
    x = rng.normal(size=(1, 6, 6, layer.inputs)).astype(np.float32)
    with torch.no_grad():
        expected = unit(torch.from_numpy(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy()
    y = packed.run.maps(x, 3, 4)
    if _native.instruction_sets()[0] == "avx2":  # where it was looked at; others may round one product otherwise
        np.testing.assert_array_equal(y, expected)
    else:
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, (32, 1.0)),
        (Data("here", "cifar100", size=224), (32, 1.0)),
        (Data("here", "folder", size=96), (96, 224 / 256)),
    ],
)
def test_images_are_prepared_as_in_training(tmp_path, data, expected):
    pack_model(network(BEFORE), tmp_path / "model.pdn", data and {"preprocessing": preprocessing(data)})
    prepared = Classifier(tmp_path / "model.pdn").file.preprocessing
    assert (*prepared.size, prepared.crop) == (expected[0], *expected)


def header_size(path) -> int:
    return 8 + struct.unpack("<Q", path.read_bytes()[:8])[0]


def test_binary_weights_take_one_bit(tmp_path):
    model = network(BEFORE)
    path = tmp_path / "model.pdn"
    pack_model(model, path)
    latent = [p for n, p in model.named_parameters() if n.endswith((".conv.weight", ".conv.difference_weight"))]
    others = sum(p.numel() for p in model.parameters()) - sum(p.numel() for p in latent)
    bits = sum(-(-p.numel() // 8) for p in latent)
    # Of a norm's four numbers per channel two are left, as many as it has parameters.
    assert path.stat().st_size - header_size(path) == bits + 4 * others


def test_bipidinet18_fits_2_6_megabytes_without_its_linear_layer(tmp_path):
    model = BiPiDiNet(VARIANTS["bipidinet18"]).eval()
    path = tmp_path / "model.pdn"
    pack_model(model, path)
    linear = 4 * sum(p.numel() for p in model.head.parameters())
    assert path.stat().st_size - linear <= 2.6e6


def test_float_networks_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"is for edges; export it to \.onnx"):
        pack_model(create_model("tiny", width=4, side_channels=4), tmp_path / "model.pdn")
    with pytest.raises(UserError, match=r"a float one.*metrics\.jsonl"):
        pack_model(BiPiDiNet(replace(BEFORE, architecture="plain")), tmp_path / "model.pdn")
    with pytest.raises(UserError, match="second stage"):
        pack_model(network(replace(BEFORE, binary_weights=False)), tmp_path / "model.pdn")
    assert not list(tmp_path.iterdir())


def test_labels_must_fit_the_classes(tmp_path):
    with pytest.raises(UserError, match="name 2 classes, the network has 7"):
        pack_model(network(BEFORE), tmp_path / "model.pdn", {"labels": ["a", "b"]})


def wrong(arrays):
    return {name: array ^ 1 if array.dtype == np.uint8 else array for name, array in arrays.items()}


def test_nothing_is_written_unless_it_agrees(tmp_path, monkeypatch):
    # The first bit of every eight is packed wrongly.
    monkeypatch.setattr("pixeldiff.export.packed._branches", lambda conv: wrong(_branches(conv)))
    with pytest.raises(UserError, match="deviates"):
        pack_model(network(BEFORE), tmp_path / "model.pdn")
    assert not list(tmp_path.iterdir())


def test_export_and_classify_commands(tmp_path, rng, capsys):
    from PIL import Image

    labels = [f"thing {i}" for i in range(BEFORE.classes)]
    save_model(network(BEFORE), tmp_path / "net.safetensors", {"license": "CC0", "labels": labels})
    image = tmp_path / "photo.png"
    Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(image)
    packed = tmp_path / "net.pdn"

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        return stop.value.code

    assert run("export", tmp_path / "net.safetensors", "-o", packed) == 0
    assert "MB" in capsys.readouterr().out
    assert run("classify", image, "--model", packed, "--top", 3) == 0
    assert capsys.readouterr().out.count("thing") == 3
    assert run("classify", image, tmp_path / "none.png", "--model", packed, "--json", "-") == 1
    table = json.loads(capsys.readouterr().out)
    assert (table["command"], table["model"]) == ("classify", "net")
    (result,) = table["results"]
    assert (result["input"], len(result["classes"])) == (str(image), 5)
    assert [failure["input"] for failure in table["failed"]] == [str(tmp_path / "none.png")]


def test_bench_measures_packed_networks(tmp_path, capsys):
    pack_model(network(BEFORE), tmp_path / "net.pdn")
    report = tmp_path / "report.json"
    with pytest.raises(SystemExit) as stop:
        cli.main(["bench", "--model", str(tmp_path / "net.pdn"), "--threads", "1", "--json", str(report)])
    assert stop.value.code == 0
    result = json.loads(report.read_text())["results"][0]
    assert (result["name"], result["task"]) == ("net", "classes")
    assert result["latency"]["32x32"]["median_ms"] > 0
    assert "32x32" in capsys.readouterr().out
