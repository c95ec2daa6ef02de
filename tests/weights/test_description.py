"""What weights files say of themselves: read without torch and onnxruntime, never believed, and followed."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pixeldiff import Classifier, EdgeDetector, UserError, image, weights
from pixeldiff.weights.description import describe
from tests.extras import optional

onnx = optional("onnx")


def with_header(path: Path, description: object) -> Path:
    """A safetensors file without tensors."""
    text = description if isinstance(description, str) else json.dumps(description)
    header = json.dumps({"__metadata__": {"pixeldiff": text}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    return path


def changed(source: Path, target: Path, change) -> Path:
    """A copy of an .onnx file with another description."""
    proto = onnx.load(source)
    described = json.loads(proto.metadata_props[0].value)
    change(described)
    onnx.helper.set_model_props(proto, {"pixeldiff": json.dumps(described)})
    onnx.save(proto, target)
    return target


def test_no_torch_and_no_onnxruntime_is_needed():
    script = """
import sys
from pixeldiff import weights
for name, card in weights.cards().items():
    files = [weights.FOLDER / f"{name}{suffix}" for suffix in card["files"]]
    for file in filter(weights.Path.exists, files):  # wheels of a release leave some out
        assert weights.describe(file)["task"] == card["task"]
sys.exit(bool({"torch", "onnxruntime", "onnx", "safetensors", "numpy"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 0


def test_a_file_that_says_too_little_is_to_be_written_again(tmp_path, edge_onnx):
    for suffix, advice in ((".pdn", "export it again"), (".safetensors", "save it again")):
        with pytest.raises(UserError, match=f"task; {advice}"):
            describe(with_header(tmp_path / f"a{suffix}", {"name": "a"}))
    with pytest.raises(UserError, match="task"):
        EdgeDetector(changed(edge_onnx, tmp_path / "a.onnx", lambda said: said.pop("task")))
    with pytest.raises(UserError, match="preprocessing"):
        EdgeDetector(changed(edge_onnx, tmp_path / "b.onnx", lambda said: said.pop("preprocessing")))


def test_a_file_without_a_name_is_called_like_its_file(tmp_path, edge_onnx):
    assert describe(changed(edge_onnx, tmp_path / "own.onnx", lambda said: said.pop("name")))["name"] == "own"
    assert describe(Path("table5_pidinet.pth")) == {"name": "table5_pidinet", "task": "edges"}


def test_the_detector_sees_images_as_its_file_says(tmp_path, edge_onnx, rng):
    photo = rng.random((40, 52, 3), dtype=np.float32)
    expected = EdgeDetector(edge_onnx, threads=1)(photo)
    plain = {"mean": [0, 0, 0], "std": [1, 1, 1]}
    other = EdgeDetector(changed(edge_onnx, tmp_path / "a.onnx", lambda said: said.update(preprocessing=plain)))
    assert (other.network.backend.mean, other.network.backend.std) == ((0, 0, 0), (1, 1, 1))
    other.network.backend.std, other.network.backend.mean = image.STD, image.MEAN
    np.testing.assert_allclose(other(photo), expected, atol=1e-6)
    other.network.backend.std, other.network.backend.mean = (1, 1, 1), (0, 0, 0)
    assert np.abs(other(photo) - expected).max() > 0.01


def test_a_network_of_another_task_is_named_as_such():
    with pytest.raises(UserError, match=r"tiny is .* for edges, not for classes.* binary-cifar100"):
        Classifier("tiny")
    with pytest.raises(UserError, match=r"bipdc-cifar100 is .* for classes, not for edges.* basic"):
        EdgeDetector("bipdc-cifar100")


@pytest.mark.parametrize(
    "content", [b"", b"\x08", b"{}", b"\xff" * 40, (3).to_bytes(8, "little") + b"[1]", b"\x00" * 7 + b"\xff" * 9]
)
@pytest.mark.parametrize("suffix", [".onnx", ".pdn", ".safetensors", ".anything"])
def test_what_is_no_weights_file(tmp_path, content, suffix):
    (tmp_path / f"a{suffix}").write_bytes(content)
    with pytest.raises(UserError, match=r"not a readable|weights of another network"):
        describe(tmp_path / f"a{suffix}")


@pytest.mark.parametrize(
    "description", ["{", "[" * 100_000, "3", {"task": 5, "name": "a"}, {"task": "edges", "name": 1}]
)
def test_descriptions_that_cannot_be(tmp_path, description):
    with pytest.raises(UserError, match=r"not a JSON object|is not text"):
        describe(with_header(tmp_path / "a.pdn", description))


def test_damaged_files_are_told_or_read(tmp_path, edge_onnx, rng):
    for source in (edge_onnx, weights.runtime_file("bipdc-cifar100")):
        whole = source.read_bytes()
        path = tmp_path / f"damaged{source.suffix}"
        told = 0
        for _ in range(100):
            content = bytearray(whole[: rng.integers(len(whole))] if rng.random() < 0.5 else whole)
            for place in rng.integers(0, min(len(content), 4000), 20) if content else ():
                content[place] = rng.integers(256)
            path.write_bytes(content)
            try:
                describe(path)
            except UserError:
                told += 1
        assert told > 20
