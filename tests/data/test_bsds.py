"""BSDS500 as it is published: one place knows its folders."""

import numpy as np
import pytest

from pixeldiff.data.bsds import find_split, split_folders
from pixeldiff.errors import UserError
from tests.data.test_truth import save_bsds


def test_a_split_has_images_and_annotators(tmp_path, rng):
    images, truths = split_folders(tmp_path, "val")
    assert (images, truths) == (tmp_path / "images" / "val", tmp_path / "groundTruth" / "val")
    truths.mkdir(parents=True)
    masks = [rng.random((6, 9)) < 0.2 for _ in range(2)]
    save_bsds(truths / "12.mat", masks)
    found = find_split(tmp_path, "val")
    assert found["12"].image == images / "12.jpg"
    np.testing.assert_array_equal(found["12"].load(), masks)
    with pytest.raises(UserError, match="is not BSDS500: no images/test with groundTruth/test"):
        find_split(tmp_path, "test")


def test_the_real_test_split(data):
    found = find_split(data / "BSDS500", "test")
    assert len(found) == 200
    assert all(one.image is not None and one.image.is_file() for one in found.values())
