"""Floats to levels: one rule, halves up, for maps and images alike."""

import numpy as np
import pytest

from pixeldiff import _native, image
from pixeldiff.edgemap import nms, thin, to_8_bit, to_16_bit, to_float, to_mask
from pixeldiff.errors import UserError
from pixeldiff.metrics.edges import crispness, evaluate_image
from pixeldiff.render.vector import lines

# Every function that takes an edge map.
TAKE_MAPS = {
    "to_float": to_float,
    "to_8_bit": to_8_bit,
    "to_16_bit": to_16_bit,
    "nms": nms,
    "crispness": crispness,
    "evaluate_image": lambda edge_map: evaluate_image(edge_map, [np.eye(*edge_map.shape, dtype=bool)]),
    "lines": lambda edge_map: list(lines(edge_map, 0.2, 1.0)),
}


@pytest.mark.parametrize(("rounded", "highest"), [(to_8_bit, 255), (to_16_bit, 65535)])
def test_every_level_comes_back(rounded, highest):
    levels = np.arange(highest + 1)
    np.testing.assert_array_equal(rounded((levels / highest).astype(np.float32)[None])[0], levels)
    stored = levels.astype(np.uint8 if highest == 255 else np.uint16)
    np.testing.assert_array_equal(rounded(stored[None])[0], levels)


@pytest.mark.parametrize("take", TAKE_MAPS.values(), ids=TAKE_MAPS)
@pytest.mark.parametrize("wrong", [-0.01, 1.01, 255.0, np.nan, np.inf, 200])
def test_maps_outside_0_to_1_are_errors(take, wrong):
    with pytest.raises(UserError, match=r"\[0, 1\]"):
        take(np.where(np.eye(9, 11, dtype=bool), wrong, 0))


@pytest.mark.parametrize("take", TAKE_MAPS.values(), ids=TAKE_MAPS)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, bool])
def test_levels_count_as_their_part_of_the_full_range(take, dtype, rng):
    highest = 1 if dtype is bool else np.iinfo(dtype).max
    stored = rng.integers(0, highest, (33, 21), dtype=np.uint16, endpoint=True).astype(dtype)
    same = stored.astype(np.float32) / np.float32(highest)
    assert str(take(stored)) == str(take(same))


def test_rounding_of_a_mean_of_maps_is_cut_off():
    edge_map = np.array([[np.nextafter(np.float32(1), np.float32(2)), -1e-9]], np.float32)
    np.testing.assert_array_equal(to_float(edge_map), [[1, 0]])
    np.testing.assert_array_equal(to_8_bit(edge_map), [[255, 0]])


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_masks_are_of_two_values(kind, rng):
    mask = rng.random((7, 33)) < 0.3
    np.testing.assert_array_equal(to_mask(mask.astype(kind)), mask)
    np.testing.assert_array_equal(to_mask(mask.astype(kind) * kind(1 if kind is bool else 255)), mask)
    assert not to_mask(np.zeros((3, 4), kind)).any()


@pytest.mark.parametrize("values", [[0, 0.5, 1], [0, np.nan], [0, -1], [1, 2], [0, 128, 255]])
def test_soft_truth_is_an_error(values):
    truth = np.resize(values, (4, 5))
    with pytest.raises(UserError, match="two values"):
        evaluate_image(np.zeros((4, 5), np.float32), [truth])


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


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64])
def test_thin_takes_masks_of_any_whole_type(kind, rng):
    mask = rng.random((40, 50)) < 0.6
    got = thin(mask.astype(kind))
    assert got.dtype == bool
    np.testing.assert_array_equal(got, _native.thin(mask.view(np.uint8)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (np.zeros((40, 50), np.float32), "mask of bool or integers"),
        (np.zeros((3, 40, 50), bool), "height x width"),
        (np.arange(20, dtype=np.uint8).reshape(4, 5), "two values"),
        (np.full((4, 5), -1), "two values"),
    ],
)
def test_thin_refuses_what_is_no_mask(wrong, words):
    with pytest.raises(UserError, match=words):
        thin(wrong)
