"""torch unfused, torch fused and ONNX agree on probabilities, on images and on odd sizes."""

import numpy as np
import pytest
import torch
from PIL import Image

from pixeldiff import cli
from pixeldiff.errors import UserError
from pixeldiff.export.onnx import PARITY, align_channels, export_onnx, export_weights
from pixeldiff.inference.onnx_session import onnxruntime
from pixeldiff.models import create_model
from pixeldiff.models.saving import load_model
from pixeldiff.nn.layers import fuse


def run(path, x):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": x.numpy()})


@pytest.mark.parametrize("name", ["tiny", "tiny-l"])
def test_export_agrees_with_the_network(tmp_path, name):
    torch.manual_seed(0)
    model = create_model(name).eval()
    with torch.no_grad():  # a fusion that differs from its initial value, one side ignored
        model.fusion.weight.copy_(torch.tensor([0.5, -0.25, 0.0, 1.0]).view(1, 4, 1, 1))
        model.fusion.bias.fill_(-0.3)
    path = tmp_path / "net.onnx"
    assert export_onnx(model, path, {"license": "mine"}) <= PARITY
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    x = torch.randn(2, 3, 37, 50)
    with torch.no_grad():
        expected = torch.sigmoid(model(x)).numpy()
    (edges,) = run(path, x)
    np.testing.assert_allclose(edges, expected, atol=PARITY)


@pytest.mark.parametrize("width", [5, 20, 30])
def test_aligned_channels_change_nothing(width):
    torch.manual_seed(0)
    model = create_model("small", width=width, side_channels=9).eval()
    x = torch.randn(1, 3, 33, 50)
    with torch.no_grad():
        expected = model(x)
        aligned = align_channels(fuse(model))
        torch.testing.assert_close(aligned(x), expected, atol=1e-5, rtol=1e-5)
    widths = {conv.out_channels for conv in aligned.modules() if isinstance(conv, torch.nn.Conv2d)}
    assert {channels for channels in widths if channels % 8} <= {1, 4, 5}


@pytest.mark.parametrize("name", ["table5_pidinet", "table5_pidinet-small", "table5_pidinet-tiny-l", "table5_baseline"])
def test_authors_networks_agree_in_all_three_forms(data, tmp_path, name):
    model = load_model(data / "pidinet-official" / f"{name}.pth")
    path = tmp_path / "net.onnx"
    export_onnx(model, path)
    images = sorted((data / "BSDS500/images/val").glob("*.jpg"))[:3]
    inputs = [np.asarray(Image.open(p), np.float32)[:160, :200] for p in images] + [
        np.random.default_rng(0).uniform(0, 255, (s, t, 3)).astype(np.float32) for s, t in ((17, 33), (61, 40))
    ]
    for pixels in inputs:
        mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
        x = ((torch.from_numpy(pixels) / 255 - mean) / std).permute(2, 0, 1)[None].contiguous()
        with torch.no_grad():
            unfused, fused = torch.sigmoid(model(x)), torch.sigmoid(fuse(model)(x))
        assert (unfused - fused).abs().max() < 1e-4
        assert np.abs(run(path, x)[0] - unfused.numpy()).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "target", "says"),
    [
        ("tiny", "net.tflite", "ends in .safetensors or .onnx"),
        ("tiny", "net.pdn", "the file of a network for edges ends in .safetensors or .onnx"),
        ("bipdc-cifar100", "net.onnx", "the file of a network for classes ends in .pdn"),
        ("tiny", "missing/net.onnx", "no folder"),
    ],
)
def test_bad_destinations_are_explained(tmp_path, capsys, name, target, says):
    with pytest.raises(SystemExit) as stop:
        cli.main(["export", name, "-o", str(tmp_path / target)])
    assert (stop.value.code, list(tmp_path.iterdir())) == (2, [])
    assert says in capsys.readouterr().err


def test_a_classifier_is_no_edge_network(tmp_path):
    with pytest.raises(UserError, match="holds a bipidinet"):
        export_weights("bipdc-cifar100", tmp_path / "net.onnx")


def test_a_graph_that_deviates_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("pixeldiff.export.onnx.PARITY", -1.0)
    with pytest.raises(UserError, match=r"deviates by .* nothing written"):
        export_onnx(create_model("tiny-l"), tmp_path / "net.onnx")
    assert list(tmp_path.iterdir()) == []
