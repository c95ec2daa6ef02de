"""Floats to levels: one rule, halves up, for maps and pictures alike."""

import numpy as np
import pytest

from pixeldiff import image
from pixeldiff.edgemap import to_8_bit, to_16_bit


@pytest.mark.parametrize(("rounded", "highest"), [(to_8_bit, 255), (to_16_bit, 65535)])
def test_every_level_comes_back_and_what_is_outside_is_cut(rounded, highest):
    levels = np.arange(highest + 1)
    np.testing.assert_array_equal(rounded((levels / highest).astype(np.float32)[None])[0], levels)
    np.testing.assert_array_equal(rounded(np.array([[-1, 2]], np.float32)), [[0, highest]])


def test_halves_go_up():
    halves = ((np.arange(255) + 0.5) / 255).astype(np.float32)
    exact = halves[halves * np.float32(255) == np.arange(255) + 0.5]
    assert len(exact) > 200
    np.testing.assert_array_equal(to_8_bit(exact[None])[0], np.floor(exact * np.float32(255)) + 1)
    np.testing.assert_array_equal(
        image.as_8_bit(np.repeat(exact[None, :, None], 3, 2))[0, :, 0], to_8_bit(exact[None])[0]
    )


def test_transparent_levels_are_blended_by_the_rule():
    """One level under half of the opacity that 8 bits have: 255 - 128/255 * (255 - v)."""
    values = np.arange(256, dtype=np.uint8)
    array = np.stack([values, values, values, np.full(256, 128, np.uint8)], -1)[None]
    expected = np.floor(255 - (255 - np.arange(256)) * 128 / 255 + 0.5)
    np.testing.assert_array_equal(image.from_array(array)[0, :, 0], expected)
