"""Each corruption against its definition written as loops or SciPy calls; the order of severities; seeds; sizes."""

import numpy as np
import pytest
import skimage.data
from PIL import Image
from scipy import ndimage
from skimage.color import hsv2rgb, rgb2hsv

from pixeldiff.errors import UserError
from pixeldiff.evaluation import corruptions
from pixeldiff.evaluation.corruptions import FAMILIES, KINDS, PARAMETERS, SEVERITIES, corrupt, get_corruption_names

IMAGES = ("astronaut", "brick", "camera", "chelsea", "coffee", "coins", "grass", "gravel", "moon", "rocket")
FIXED = {"defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"}  # nothing drawn
# CIFAR-C's own numbers are not in order of distance: its elastic jitter falls as the level rises, its glass blur
# smooths away at levels 3 and 5 what it shuffles at 2 and 4, and its frost weighs less at level 4.
UNORDERED_TINY = {"elastic_transform", "glass_blur", "frost"}


def images(width: int, height: int) -> list[np.ndarray]:
    loaded = (Image.fromarray(getattr(skimage.data, name)()).convert("RGB") for name in IMAGES)
    return [np.asarray(image.resize((width, height), Image.Resampling.BOX)) for image in loaded]


def distances(kind: str, clean: list[np.ndarray]) -> list[float]:
    """Root mean square distance to the clean image, mean over the images, for each severity."""
    return [
        float(np.mean([np.sqrt(np.mean((corrupt(p, s, kind, seed=i) - p.astype(np.float32)) ** 2)) for i, p in clean]))
        for s in SEVERITIES
    ]


@pytest.fixture(scope="module")
def photos() -> list[tuple[int, np.ndarray]]:
    return list(enumerate(images(241, 161)))


@pytest.fixture(scope="module")
def tiny() -> list[tuple[int, np.ndarray]]:
    return list(enumerate(images(32, 32)))


@pytest.fixture
def image(rng: np.random.Generator) -> np.ndarray:
    return rng.integers(0, 256, (23, 37, 3), dtype=np.uint8)


# --- the property ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_severity_is_never_closer_to_the_image(kind, photos):
    assert np.all(np.diff(distances(kind, photos)) >= 0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_at_32x32_where_the_published_numbers_are_in_order(kind, tiny):
    ordered = bool(np.all(np.diff(distances(kind, tiny)) >= 0))
    assert ordered == (kind not in UNORDERED_TINY)


# --- the front door ----------------------------------------------------------------------------------------------


def test_names_and_parameters_cover_each_other():
    assert get_corruption_names() == list(KINDS) == list(PARAMETERS)
    assert len(KINDS) == 15
    assert [len(kinds) for kinds in FAMILIES.values()] == [3, 4, 4, 4]
    assert all(len(levels) == 5 for both in PARAMETERS.values() for levels in both)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_gives_one_result(kind, image):
    before = image.copy()
    first = corrupt(image, 3, kind, seed=1)
    np.testing.assert_array_equal(first, corrupt(image, 3, kind, seed=1))
    np.testing.assert_array_equal(image, before)
    assert np.array_equal(first, corrupt(image, 3, kind, seed=2)) == (kind in FIXED)


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 9, 3), (33, 2, 3), (32, 32, 3), (32, 32), (17, 40), (12, 20, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_any_size_and_gray(kind, shape, rng):
    image = rng.integers(0, 256, shape, dtype=np.uint8)
    for severity in (1, 5):
        result = corrupt(image, severity, kind)
        assert result.shape == shape
        assert result.dtype == np.uint8


@pytest.mark.parametrize("kind", KINDS)
def test_black_and_white_images_stay_finite(kind):
    for value in (0, 255):
        with np.errstate(all="raise"):
            assert corrupt(np.full((20, 30, 3), value, np.uint8), 5, kind).shape == (20, 30, 3)


def test_32x32_has_its_own_parameters(rng):
    image = np.full((32, 33, 3), 128, np.uint8)
    assert corrupt(image, 5, "gaussian_noise").std() > 3 * corrupt(image[:, :32], 5, "gaussian_noise").std()


def test_a_image_larger_than_the_frost_texture():
    assert corrupt(np.zeros((3, 1500, 3), np.uint8), 1, "frost").shape == (3, 1500, 3)


@pytest.mark.parametrize(
    ("image", "severity", "kind", "says"),
    [
        (np.zeros((4, 4, 3), np.uint8), 1, "rain", "'rain'"),
        (np.zeros((4, 4, 3), np.uint8), 0, "fog", "got 0"),
        (np.zeros((4, 4, 3), np.float32), 1, "fog", "float32"),
        (np.zeros((0, 4, 3), np.uint8), 1, "fog", "at least one pixel"),
        (np.zeros((4, 4, 4), np.uint8), 1, "fog", "alpha"),
        (np.zeros(4, np.uint8), 1, "fog", "H x W"),
    ],
)
def test_mistakes_are_named(image, severity, kind, says):
    with pytest.raises(UserError, match=says):
        corrupt(image, severity, kind)


# --- the definitions ---------------------------------------------------------------------------------------------


def test_noise_has_its_published_strength():
    gray = np.full((200, 200, 3), 100, np.uint8)
    assert corrupt(gray, 1, "gaussian_noise").std() == pytest.approx(255 * 0.08, rel=0.02)
    # Poisson: variance = mean, in photons.
    assert corrupt(gray, 1, "shot_noise").std() == pytest.approx(np.sqrt(100 / 255 * 60) * 255 / 60, rel=0.02)
    damaged = corrupt(gray, 3, "impulse_noise")
    assert np.mean(damaged == 0) == pytest.approx(0.045, rel=0.1)
    assert np.mean(damaged == 255) == pytest.approx(0.045, rel=0.1)
    assert set(np.unique(damaged)) == {0, 100, 255}


@pytest.mark.parametrize("level", [*PARAMETERS["defocus_blur"][0], *PARAMETERS["defocus_blur"][1]])
def test_defocus_is_a_correlation_with_a_disk(level, image, rng):
    kernel = corruptions._disk(*level)
    assert kernel.sum() == pytest.approx(1, abs=0.02)  # the published smoothing mirrors the disk's rim at its border
    assert kernel.shape == (2 * max(8, level[0]) + 1,) * 2
    expected = ndimage.correlate(image.astype(np.float64), kernel[..., None], mode="mirror")
    np.testing.assert_allclose(corruptions._defocus_blur(image, level, rng), expected, atol=1e-3)


def test_glass_swaps_neighbors_one_after_the_other(image):
    photo = image
    deviation, reach, rounds = PARAMETERS["glass_blur"][0][3]
    rng = np.random.default_rng(5)
    image = np.uint8(ndimage.gaussian_filter(photo.astype(np.float32), (deviation, deviation, 0), mode="nearest"))
    ys, xs = range(23 - reach, reach, -1), range(37 - reach, reach, -1)
    for _ in range(rounds):
        moves = rng.integers(-reach, reach, (2, len(ys), len(xs)))
        for i, y in enumerate(ys):
            for j, x in enumerate(xs):
                other = (y + moves[0, i, j], x + moves[1, i, j])
                image[y, x], image[other] = image[other].copy(), image[y, x].copy()
    expected = ndimage.gaussian_filter(image.astype(np.float32), (deviation, deviation, 0), mode="nearest")
    level = (deviation, reach, rounds)
    np.testing.assert_array_equal(corruptions._glass_blur(photo, level, np.random.default_rng(5)), expected)


@pytest.mark.parametrize("degrees", [0, 17.0, -45, -90, 135])
def test_motion_blur_is_half_a_gaussian_along_a_line(degrees, image):
    radius, deviation = 4, 2.5
    weights = [np.exp(-(i**2) / (2 * deviation**2)) for i in range(2 * radius + 1)]
    expected = np.zeros(image.shape)
    for y in range(23):
        for x in range(37):
            for i, weight in enumerate(weights):
                dy = int(np.ceil(i * np.sin(np.deg2rad(degrees)) - 0.5))
                dx = int(np.ceil(i * np.cos(np.deg2rad(degrees)) - 0.5))
                expected[y, x] += weight / sum(weights) * image[np.clip(y + dy, 0, 22), np.clip(x + dx, 0, 36)]
    np.testing.assert_allclose(corruptions._smear(image, radius, deviation, degrees), expected, atol=1e-3)


@pytest.mark.parametrize("factor", [1, 1.03, 1.11, 1.3, 2, 4.5])
def test_zoom_is_scipys_zoom_of_the_middle(factor, image):
    height, width = (int(np.ceil(size / factor)) for size in (23, 37))
    top, left = (23 - height) // 2, (37 - width) // 2
    middle = image[top : top + height, left : left + width].astype(np.float64)
    enlarged = ndimage.zoom(middle, (factor, factor, 1), order=1)
    top, left = (enlarged.shape[0] - 23) // 2, (enlarged.shape[1] - 37) // 2
    expected = enlarged[top : top + 23, left : left + 37]
    np.testing.assert_allclose(corruptions._zoom(image.astype(np.float32), factor), expected, atol=1e-2)


def test_the_fractal_is_diamond_square_on_a_torus():
    side, decay = 8, 1.7
    rng, grid, size, gap = np.random.default_rng(3), np.zeros((side, side)), 1.0, side
    while gap > 1:
        half = gap // 2
        for dy, dx, ring in (
            (half, half, [(-half, -half), (-half, half), (half, -half), (half, half)]),  # the center of four corners
            (0, half, [(-half, 0), (half, 0), (0, -half), (0, half)]),  # then the middle of the sides
            (half, 0, [(-half, 0), (half, 0), (0, -half), (0, half)]),
        ):
            noise = rng.uniform(-size, size, (side // gap, side // gap))
            for i in range(side // gap):
                for j in range(side // gap):
                    y, x = i * gap + dy, j * gap + dx
                    around = [grid[(y + v) % side, (x + u) % side] for v, u in ring]
                    grid[y, x] = np.mean(around) + noise[i, j]
        gap, size = half, size / decay**2
    expected = (grid - grid.min()) / (grid.max() - grid.min())
    np.testing.assert_allclose(corruptions._fractal(side, decay, np.random.default_rng(3)), expected, atol=1e-12)


def test_fog_keeps_the_brightest_value_within_range(image):
    assert corrupt(image, 5, "fog").max() <= image.max()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_brightness_raises_the_value_of_hsv(severity, image):
    image = image.copy()
    image[0, :5] = 0
    hsv = rgb2hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + PARAMETERS["brightness"][0][severity - 1], 0, 1)
    expected = np.uint8(255 * np.clip(hsv2rgb(hsv), 0, 1))
    # Both cut to 8 bit; rounding in the last digit may fall either way.
    assert np.abs(corrupt(image, severity, "brightness").astype(int) - expected).max() <= 1


def test_contrast_pulls_to_the_mean_color(image):
    mean = image.mean((0, 1))
    np.testing.assert_array_equal(corrupt(image, 2, "contrast"), np.uint8((image - mean) * 0.3 + mean))


def test_elastic_moves_pixels_as_far_as_published(rng):
    ramp = np.repeat(np.arange(241, dtype=np.uint8)[None], 161, 0)
    moved = corruptions._elastic_transform(np.repeat(ramp[..., None], 3, 2), PARAMETERS["elastic_transform"][0][4], rng)
    # Smoothing uniform noise in +-1 with a Gaussian leaves a deviation of 1 / sqrt(3) / sqrt(4 pi sy sx).
    expected = 0.15 * 161 / np.sqrt(3) / np.sqrt(4 * np.pi * 1.61 * 2.41)
    assert (moved[..., 0] - ramp)[20:-20, 20:-20].std() == pytest.approx(expected, rel=0.15)


def test_the_affine_map_of_the_32x32_elastic_carries_its_corners(rng):
    grid = np.stack(np.mgrid[:32, :32], -1).astype(np.float32)
    moved = corruptions._elastic_transform(np.concatenate([grid, grid[..., :1]], -1), (0.08, 0, 0), rng)
    jitter = np.random.default_rng(0).uniform(-0.08, 0.08, (3, 2)) * 32
    for corner, shift in zip(([26, 26], [26, 6], [6, 6]), jitter, strict=True):
        place = (np.array(corner) + shift)[:, None]
        for axis in (0, 1):
            back = ndimage.map_coordinates(moved[..., axis], place, order=1)[0]
            assert back == pytest.approx(corner[axis], abs=1e-3)


def test_pixelate_makes_blocks():
    ramp = np.repeat(np.repeat(np.arange(40, dtype=np.uint8)[None], 20, 0)[..., None], 3, 2)
    blocks = corrupt(ramp, 5, "pixelate")[0, :, 0]
    assert np.count_nonzero(np.diff(blocks)) == 9  # a quarter of 40 pixels
    assert np.all(np.unique(blocks, return_counts=True)[1] == 4)


def test_jpeg_is_pillows(image, tmp_path):
    Image.fromarray(image).save(tmp_path / "a.jpg", quality=18)
    np.testing.assert_array_equal(corrupt(image, 2, "jpeg_compression"), np.asarray(Image.open(tmp_path / "a.jpg")))


def test_the_interface_people_know(rng):
    image = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    by_name = corrupt(image, severity=2.0, corruption_name="contrast")
    np.testing.assert_array_equal(corrupt(image, 2, corruption_number=KINDS.index("contrast")), by_name)
    assert get_corruption_names() == list(KINDS)
    assert get_corruption_names("blur") == ["defocus_blur", "glass_blur", "motion_blur", "zoom_blur"]
    for call in (lambda: corrupt(image), lambda: corrupt(image, 1, None, 15), lambda: get_corruption_names("rain")):
        with pytest.raises(UserError):
            call()
