"""Shared fixtures: where the data lies, and a fixed seed for every test."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Test tensors are small; one thread is quicker than two, steadier on a busy machine, and leaves a fork no pool."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data; tests that need it are skipped without it."""
    root = os.environ.get("PIXELDIFF_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("PIXELDIFF_DATA is not set to the data folder")
    return Path(root)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def edge_onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small edge network with random weights, as `pixeldiff export` writes it; its maps span most of [0, 1]."""
    from pixeldiff.export.onnx import export_onnx
    from pixeldiff.models import create_model

    torch.manual_seed(0)
    model = create_model("tiny", width=8, side_channels=4)
    with torch.no_grad():
        for side in model.sides:
            side.reduce.weight.mul_(40)
    path = tmp_path_factory.mktemp("weights") / "small-random.onnx"
    export_onnx(model, path, {"name": "small-random", "licence": "Apache-2.0"})
    return path


@pytest.fixture
def root(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Eight small pictures: a bright square and its outline."""
    for folder in ("photos", "edges"):
        (tmp_path / folder).mkdir()
    for k in range(8):
        image = rng.integers(0, 60, (24, 28, 3), dtype=np.uint8)
        label = np.zeros((24, 28), np.uint8)
        y, x = rng.integers(2, 8, 2)
        image[y : y + 10, x : x + 12] += 150
        label[y : y + 10, x : x + 12] = 255
        label[y + 1 : y + 9, x + 1 : x + 11] = 0
        Image.fromarray(image).save(tmp_path / f"photos/{k}.png")
        Image.fromarray(label).save(tmp_path / f"edges/{k}.png")
    return tmp_path


# Files that are no pictures, and what their errors say.
BAD_PICTURES = {
    "text.jpg": "not a picture",
    "empty.png": "is empty",
    "cut.jpg": "cut short",
    "cut.png": "cut short",
    "cut.gif": "cut short",
    "cut.tif": "cut short",
    "bomb.png": "megapixels",
}


@pytest.fixture(scope="session")
def bad_pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of BAD_PICTURES."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "text.jpg").write_text("no picture at all\n")
    (folder / "empty.png").write_bytes(b"")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    for path in (folder / name for name in BAD_PICTURES if name.startswith("cut")):
        noise.save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (folder / "bomb.png").write_bytes(_png_of_size(60000, 60000))
    return folder


def _png_of_size(width: int, height: int) -> bytes:
    """A file of a few bytes that says it is this large."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (header, b"IDAT" + zlib.compress(b""), b"IEND")
    framed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
