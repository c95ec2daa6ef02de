"""Thinning and matching against scikit-image and SciPy."""

import numpy as np
import pytest
from PIL import Image

from pixeldiff import _native
from pixeldiff.data.edges import find_labels
from tests.extras import optional
from tests.references import matching as reference

thin = optional("skimage.morphology").thin


def blobs(rng: np.random.Generator, shape: tuple[int, int], smooth: int = 2) -> np.ndarray:
    """Random levels with structure: noise averaged over a few pixels."""
    field = rng.random(shape)
    for _ in range(smooth):
        field = (field + np.roll(field, 1, 0) + np.roll(field, 1, 1) + np.roll(field, -1, 0)) / 4
    field = (field - field.min()) / max(np.ptp(field), 1e-9)
    return (255 * field).astype(np.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (2, 2), (33, 20), (40, 41)])
def test_thin_equals_scikit_image(rng, shape):
    for density in (0.1, 0.3, 0.5, 0.7, 0.9, 1.0):
        mask = rng.random(shape) < density
        np.testing.assert_array_equal(_native.thin(mask.view(np.uint8)).astype(bool), thin(mask))
        solid = blobs(rng, shape) > 255 * (1 - density)
        np.testing.assert_array_equal(_native.thin(solid.view(np.uint8)).astype(bool), thin(solid))


@pytest.mark.parametrize("radius", [0.0, 1.0, 1.5, 2.9, 4.34, 100.0])
def test_match_equals_scipy(rng, radius):
    for _ in range(12):
        shape = tuple(rng.integers(1, 16, 2))
        prediction, truth = (rng.random(shape) < rng.random() for _ in range(2))
        pairs, cost = _native.match(prediction.view(np.uint8), truth.view(np.uint8), radius, 3)
        matched, expected_cost = reference.match(prediction, truth, radius, 3)
        np.testing.assert_array_equal(np.sort(pairs[:, 0]), np.flatnonzero(matched))
        assert cost == expected_cost
        assert len(set(pairs[:, 1].tolist())) == len(pairs)
        assert truth.ravel()[pairs[:, 1]].all()
        p, t = np.unravel_index(pairs[:, 0], shape), np.unravel_index(pairs[:, 1], shape)
        assert (np.hypot(p[0] - t[0], p[1] - t[1]) <= radius).all()


@pytest.mark.parametrize("thinned", [True, False])
def test_carried_matching_equals_scipy_at_every_threshold(rng, thinned):
    for _ in range(6):
        shape = tuple(rng.integers(8, 28, 2))
        levels = list(range(5, 255, 25))
        field = blobs(rng, shape)
        truths = np.stack([thin(blobs(rng, shape) > 120) for _ in range(3)])
        got = np.array(_native.count_boundary(field, levels, thinned, truths.view(np.uint8), 2.9)).T
        for row, level in zip(got, levels, strict=True):
            mask = thin(field >= level) if thinned else field >= level
            assert tuple(row) == reference.count(mask, list(truths), 2.9)


def test_counts_do_not_depend_on_the_other_thresholds(rng):
    field = blobs(rng, (40, 50), smooth=4)
    truths = np.stack([thin(blobs(rng, (40, 50), smooth=4) > t) for t in (100, 140)]).view(np.uint8)
    levels = list(range(1, 256, 3))
    together = np.array(_native.count_boundary(field, levels, True, truths, 3.0))
    shuffled = rng.permutation(len(levels))
    mixed = np.array(_native.count_boundary(field, [levels[k] for k in shuffled], True, truths, 3.0))
    np.testing.assert_array_equal(mixed, together[:, shuffled])
    for k, level in enumerate(levels):
        alone = np.array(_native.count_boundary(field, [level], True, truths, 3.0))
        np.testing.assert_array_equal(alone[:, 0], together[:, k])


def test_real_maps_equal_scipy(data):
    bench = data / "bsds-bench"
    truths = find_labels(bench / "groundTruth")
    for name in sorted(truths)[:2]:
        field = np.array(Image.open(bench / "png" / f"{name}.png"))
        masks = truths[name].masks()[:2]
        radius = 0.0075 * float(np.hypot(*field.shape))
        levels = [43, 128]
        got = np.array(_native.count_boundary(field, levels, True, np.stack(masks).view(np.uint8), radius)).T
        for row, level in zip(got, levels, strict=True):
            assert tuple(row) == reference.count(thin(field >= level), masks, radius)


@pytest.mark.parametrize(
    ("prediction", "truth"),
    [("empty", "empty"), ("empty", "full"), ("full", "empty"), ("full", "full"), ("one", "full"), ("full", "one")],
)
def test_degenerate_maps(prediction, truth):
    shape = (9, 11)
    maps = {"empty": np.zeros(shape, bool), "full": np.ones(shape, bool), "one": np.zeros(shape, bool)}
    maps["one"][4, 5] = True
    pairs, cost = _native.match(maps[prediction].view(np.uint8), maps[truth].view(np.uint8), 2.0)
    assert len(pairs) == min(maps[prediction].sum(), maps[truth].sum())
    assert cost == 0
    assert len(reference.match(maps[prediction], maps[truth], 2.0)[0].nonzero()[0]) == len(pairs)


def test_equal_maps_match_in_place(rng):
    mask = rng.random((20, 30)) < 0.3
    pairs, cost = _native.match(mask.view(np.uint8), mask.view(np.uint8), 4.0)
    assert cost == 0
    assert len(pairs) == mask.sum()
    assert (pairs[:, 0] == pairs[:, 1]).all()


def test_sizes_must_be_sizes():
    with pytest.raises(ValueError, match="at least one pixel"):
        _native.nms(np.zeros((3, 0), np.float32), 1)
    with pytest.raises(ValueError, match="at most 65535"):
        _native.thin(np.zeros((1, 65536), np.uint8))
    with pytest.raises(ValueError, match=r"2\^31 pixels"):
        _native.thin(np.broadcast_to(np.uint8(0), (46340, 46340)))


def test_sizes_must_agree():
    with pytest.raises(ValueError, match="differ in size"):
        _native.match(np.zeros((3, 4), np.uint8), np.zeros((4, 3), np.uint8), 1.0)
    with pytest.raises(ValueError, match="differ in size"):
        _native.count_boundary(np.zeros((3, 4), np.uint8), [1], True, np.zeros((1, 4, 3), np.uint8), 1.0)
