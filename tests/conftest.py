"""Shared fixtures: where the data lies, images, a small network. Nothing here needs more than the plain install."""

import importlib.util
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.references import small_network

# Tests that are about what an extra brings; the others run everywhere, and take from `extras` what they compare with.
NEEDS = {
    "torch": ("nn", "models", "training", "export", "analysis", "studies", "fuzz", "test_fuzz.py"),
    "scipy": (
        "evaluation/test_corruptions.py",
        "evaluation/test_robustness.py",
        "cli/test_corrupt.py",
        "cli/test_eval_corruption.py",
    ),
    "fastapi": ("serve/test_serve.py",),
    "av": ("jobs/test_video.py",),
    "pyarrow": ("test_addresses.py", "jobs/test_listing.py", "jobs/test_manifest.py"),
    "ray": ("cli/test_cluster.py", "jobs/test_cluster.py"),
}
ABSENT = [module for module in NEEDS if importlib.util.find_spec(module) is None]
collect_ignore = [path for module in ABSENT for path in NEEDS[module]]


def pytest_report_header() -> list[str]:
    return [f"without {module}, so without tests/{', tests/'.join(NEEDS[module])}" for module in ABSENT]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """Test tensors are small; one thread is quicker than two, steadier on a busy machine, and leaves a fork no pool."""
    if "torch" not in ABSENT:
        import torch

        torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data; tests that need it are skipped without it."""
    root = os.environ.get("PIXELDIFF_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("PIXELDIFF_DATA is not set to the data folder")
    return Path(root)


@pytest.fixture
def closed_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders called `closed` cannot be read, as those of another user; permissions do not stop an administrator."""
    scandir = os.scandir

    def refuse(place: Any = ".") -> Any:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def edge_weights() -> Path:
    """A small edge network with random weights."""
    return small_network.TRAINED


@pytest.fixture(scope="session")
def edge_onnx() -> Path:
    """The same, exported; for ONNX Runtime."""
    pytest.importorskip("onnxruntime")
    return small_network.FILE


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, so that a test may look at what they show."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    figures: list[Any] = []
    save = figure.savefig
    monkeypatch.setattr(figure, "savefig", lambda self, *a, **k: (figures.append(self), save(self, *a, **k))[1])
    return figures


@pytest.fixture
def root(tmp_path: Path, rng: np.random.Generator) -> Path:
    """Eight small images: a bright square and its outline."""
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


# Files that are no images, and what their errors say.
BAD_IMAGES = {
    "text.jpg": "not an image",
    "empty.png": "is empty",
    "cut.jpg": "cut short",
    "cut.png": "cut short",
    "cut.gif": "cut short",
    "cut.tif": "cut short",
    "bomb.png": "megapixels",
}


@pytest.fixture(scope="session")
def bad_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of BAD_IMAGES."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "text.jpg").write_text("no image at all\n")
    (folder / "empty.png").write_bytes(b"")
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    for path in (folder / name for name in BAD_IMAGES if name.startswith("cut")):
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
