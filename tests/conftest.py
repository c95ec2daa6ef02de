"""Shared fixtures: where the data lies, and a fixed seed for every test."""

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

# Test tensors are small; one thread is quicker than two, and steadier on a busy machine.
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
    from pixeldiff.export import export_onnx
    from pixeldiff.models import create_model

    torch.manual_seed(0)
    model = create_model("tiny", width=8, side_channels=4)
    with torch.no_grad():
        for side in model.sides:
            side.reduce.weight.mul_(40)
    path = tmp_path_factory.mktemp("weights") / "small-random.onnx"
    export_onnx(model, path, {"model": "small-random", "licence": "Apache-2.0"})
    return path


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
