"""Five points onto their places: against normal equations and a loop over pixels; which face; what is refused."""

import numpy as np
import pytest

from pixeldiff import UserError
from pixeldiff.inference.alignment import PLACES, SIZE, FaceAligner, align, choose, similarity
from pixeldiff.inference.mtcnn import Face
from tests.references import alignment as reference

PLACED = np.array(PLACES)


def turned(scale, degrees, shift, noise=0.0, rng=None):
    """PLACES somewhere else: turned, scaled, moved, and disturbed."""
    z = PLACED @ (1, 1j) * scale * np.exp(1j * np.radians(degrees)) + complex(*shift)
    points = np.stack([z.real, z.imag], 1)
    return points + (rng.normal(0, noise, points.shape) if rng else 0)


@pytest.mark.parametrize(("scale", "degrees"), [(0.4, 0), (1, 33), (1.3, -120), (7.5, 12)])
def test_the_similarity_is_the_least_squares_one(scale, degrees, rng):
    points = turned(scale, degrees, (5, -9), noise=2, rng=rng)
    a, b = similarity(points, PLACED)
    matrix = reference.similarity(points, PLACED)
    np.testing.assert_allclose([[a.real, -a.imag, b.real], [a.imag, a.real, b.imag]], matrix, atol=1e-9)


@pytest.mark.parametrize("size", [(128, 128), (33, 71), (7, 9), (1, 1)])
@pytest.mark.parametrize(("scale", "degrees"), [(0.5, 20), (1.2, -75)])
def test_the_image_is_the_definition(size, scale, degrees, rng):
    image = rng.integers(0, 256, (*size, 3), dtype=np.uint8)
    points = turned(scale, degrees, (3, 8), noise=1, rng=rng)
    expected = reference.warp(image.astype(float), reference.similarity(points, PLACED), SIZE)
    result = align(image, points)
    assert (result.dtype, result.shape) == (np.uint8, (112, 96, 3))
    assert abs(result - expected).max() <= 0.51


def test_points_in_their_places_leave_the_image_as_it_is(rng):
    image = rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    np.testing.assert_array_equal(align(image, PLACED), image)


@pytest.mark.parametrize("factor", [2, 3, 8])
def test_a_large_face_is_reduced_by_means(factor, rng):
    """An image enlarged by whole pixels comes back as it was, wherever it lies in a larger one."""
    small = rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    large = small.repeat(factor, 0).repeat(factor, 1)
    middle = (PLACED + 0.5) * factor - 0.5
    np.testing.assert_array_equal(align(large, middle), small)
    moved = np.pad(large, ((2 * factor, 0), (5 * factor, 3), (0, 0)), mode="edge")
    np.testing.assert_array_equal(align(moved, middle + np.array([5, 2]) * factor), small)


def test_stripes_of_a_large_face_do_not_alias():
    stripes = np.zeros((1000, 1000, 3), np.uint8)
    stripes[:, ::2] = 255
    result = align(stripes, turned(8.0, 10, (150, 20)))
    assert result.std() < 12


@pytest.mark.parametrize(
    ("points", "why"),
    [
        (np.full((5, 2), 3.0), "in one place"),
        (np.full((5, 2), np.nan), "in one place"),
        (PLACED * 20 + 1e5, "outside of the image"),
    ],
)
def test_points_that_are_no_face(points, why, rng):
    with pytest.raises(UserError, match=why):
        align(rng.integers(0, 256, (50, 50, 3), dtype=np.uint8), points)


def face(left, top, side):
    return Face((left, top, left + side, top + side), 0.9, PLACED.astype(np.float32))


def test_which_of_several_faces():
    middle, corner, speck = face(40, 40, 30), face(0, 0, 36), face(46, 46, 8)
    faces = [corner, middle, speck]
    assert choose(faces, (100, 100)) == (middle, 1)
    assert choose(faces, (100, 100), "largest") == (corner, 1)
    assert choose(faces, (100, 100), "central") == (speck, 2)
    assert choose([corner, speck], (100, 100), "largest") == (corner, 0)
    with pytest.raises(UserError, match="largest, central, got 'left'"):
        FaceAligner("left")


def test_what_is_aligned_or_has_points_needs_no_search(rng, monkeypatch):
    monkeypatch.setattr(FaceAligner, "open", lambda self: pytest.fail("the networks were opened"))
    image = rng.integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    np.testing.assert_array_equal(FaceAligner()(image).image, image)
    photo = rng.integers(0, 256, (80, 90, 3), dtype=np.uint8)
    np.testing.assert_array_equal(FaceAligner()(photo, PLACED / 2).image, align(photo, PLACED / 2))
