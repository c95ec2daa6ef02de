"""The augmented layout on disk: what the lists say is there, and it is what training makes on the fly."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from pixeldiff.cli import main
from pixeldiff.training.tasks.edge_pairs import EdgePairs
from pixeldiff.training.tasks.edge_sources import list_pairs


@pytest.fixture
def bsds(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A BSDS500 of one image per split."""
    root = tmp_path / "bsds"
    for name, split in enumerate(("train", "val", "test")):
        (root / "images" / split).mkdir(parents=True)
        (root / "groundTruth" / split).mkdir(parents=True)
        image = np.kron(rng.integers(0, 256, (5, 7, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        Image.fromarray(image).save(root / "images" / split / f"{name}.jpg")
        cells = np.empty((1, 2), dtype=object)
        for k in range(2):
            cells[0, k] = {"Boundaries": (rng.random((40, 56)) > 0.9).astype(np.uint8)}
        savemat(root / "groundTruth" / split / f"{name}.mat", {"groundTruth": cells})
    return root


def test_written_layout_is_the_augmentation(bsds: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "hed"
    with pytest.raises(SystemExit) as ended:
        main(["data", "hed-bsds", str(bsds), str(out)])
    assert ended.value.code == 0
    assert "192 pairs" in capsys.readouterr().out
    written = EdgePairs(list_pairs(out, "train_pair.lst"), 0)
    raw = EdgePairs(list_pairs(bsds, "train") + list_pairs(bsds, "val"), 0, 16, True, (1.0, 0.5, 1.5))
    assert len(written) == len(raw) == 192
    for index in range(0, 192, 7):
        (image, label, _), (expected_image, expected_label, _) = written[(0, index)], raw[(0, index)]
        assert torch.equal(label, expected_label)
        assert (image.float() - expected_image.float()).abs().mean() < 4, "only JPEG lies between"
    assert len(list_pairs(out, "train200_pair.lst")) == 96
    assert (out / "test.lst").read_text() == "test/2.jpg\n"
    assert (out / "train/aug_gt_scale_0.5/22.5_1_1/1.png").exists()


def test_nothing_is_overwritten(bsds: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "mine").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["data", "hed-bsds", str(bsds), str(tmp_path / "mine")])
    assert ended.value.code == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_missing_source(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["data", "hed-bsds", str(tmp_path), str(tmp_path / "out")])
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert "no split 'train'" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
