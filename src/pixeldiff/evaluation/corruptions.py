"""The 15 common corruptions of an image, 5 severities each: noise, blur, weather and digital.

corrupt(image, severity=3, corruption_name="fog", seed=0)      # uint8 in, uint8 of the same shape out

Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations", ICLR
2019. PARAMETERS holds their published numbers: those of ImageNet-C, used at any size, and those of CIFAR-C, used for
images of exactly 32 x 32. Lengths are in pixels. One seed gives one result, and the same random draws at each
severity where the parameters allow it. Like the published data, motion blur is one-sided and results are cut to 8 bit,
not rounded. Unlike them, frost is made here instead of photographed, and glass blur really swaps pixels, as the paper
says (the published code copies: it assigns through two views of one array).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.random import Generator
from PIL import Image
from scipy import fft, ndimage, signal

from pixeldiff.errors import UserError

Array = np.ndarray[Any, Any]

SEVERITIES = (1, 2, 3, 4, 5)

# The paper's families and order.
FAMILIES: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
KINDS: tuple[str, ...] = tuple(kind for kinds in FAMILIES.values() for kind in kinds)

# kind -> (five levels for any size, five levels for 32 x 32)
PARAMETERS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    # standard deviation, in [0, 1]
    "gaussian_noise": ((0.08, 0.12, 0.18, 0.26, 0.38), (0.04, 0.06, 0.08, 0.09, 0.10)),
    # photons at full brightness
    "shot_noise": ((60, 25, 12, 5, 3), (500, 250, 100, 75, 50)),
    # fraction of changed values
    "impulse_noise": ((0.03, 0.06, 0.09, 0.17, 0.27), (0.01, 0.02, 0.03, 0.05, 0.07)),
    # radius of the disk, deviation of its smoothing
    "defocus_blur": (
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    ),
    # deviation of the blur, reach of the shuffle, rounds of it
    "glass_blur": (
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    ),
    # radius, deviation
    "motion_blur": (
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    ),
    # np.arange(1, *these) are the zoom factors
    "zoom_blur": (
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    ),
    # mean and deviation of the noise, zoom, threshold, radius and deviation of the motion, fraction of the image
    "snow": (
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    # weight of the image, weight of the frost
    "frost": (
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    ),
    # thickness, decay of the detail
    "fog": (
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    ),
    # added to the value of HSV, in [0, 1]
    "brightness": ((0.1, 0.2, 0.3, 0.4, 0.5), (0.05, 0.1, 0.15, 0.2, 0.3)),
    # what is left of the distance to the mean color
    "contrast": ((0.4, 0.3, 0.2, 0.1, 0.05), (0.75, 0.5, 0.4, 0.3, 0.15)),
    # largest jitter of the affine map, height and smoothness of the displacement. The first column is not ImageNet-C's:
    # its levels 1 and 2 (and CIFAR-C's) jitter the full image, and lie farther from it than levels 3 to 5. These
    # are of Michaelis et al., "Benchmarking robustness in object detection", 2019, fractions of the image's height
    # (jitter, displacement) and of its sides (smoothness).
    "elastic_transform": (
        ((0, 0.0625, 0.01), (0, 0.08125, 0.01), (0, 0.10625, 0.01), (0, 0.125, 0.01), (0, 0.15, 0.01)),
        ((0.08, 0, 0), (0.07, 0.05, 0.2), (0.06, 0.08, 0.06), (0.05, 0.1, 0.04), (0.03, 0.1, 0.03)),
    ),
    # side of the small image
    "pixelate": ((0.6, 0.5, 0.4, 0.3, 0.25), (0.95, 0.9, 0.85, 0.75, 0.65)),
    # quality
    "jpeg_compression": ((25, 18, 15, 10, 7), (80, 65, 58, 50, 40)),
}


# --- noise: `image` is uint8 H x W x 3, the result any dtype in 0 .. 255, cut by `corrupt` ------------------------


def _gaussian_noise(image: Array, deviation: float, rng: Generator) -> Array:
    result: Array = image + np.float32(255 * deviation) * rng.standard_normal(image.shape, np.float32)
    return result


def _shot_noise(image: Array, photons: float, rng: Generator) -> Array:
    return rng.poisson(image * (photons / 255)) * (255 / photons)


def _impulse_noise(image: Array, fraction: float, rng: Generator) -> Array:
    draw = rng.random(image.shape, np.float32)
    # Both halves grow from one draw, so a value that is hit stays hit at the next severity.
    return np.where(draw < fraction / 2, 0, np.where(draw > 1 - fraction / 2, 255, image))


# --- blur --------------------------------------------------------------------------------------------------------


def _disk(radius: float, smoothing: float) -> Array:
    """A disk that sums to 1, its rim smoothed by 3 taps, or 5 for a radius over 8; never smaller than 17 x 17."""
    reach = np.arange(-max(8, radius), max(8, radius) + 1)
    disk = (np.hypot(*np.meshgrid(reach, reach)) <= radius).astype(np.float32)
    result: Array = ndimage.gaussian_filter(disk / disk.sum(), smoothing, radius=1 if radius <= 8 else 2, mode="mirror")
    return result


def _defocus_blur(image: Array, level: tuple[float, float], rng: Generator) -> Array:
    kernel = _disk(*level)[..., None]
    margin = kernel.shape[0] // 2
    padded = np.pad(image.astype(np.float32), ((margin, margin), (margin, margin), (0, 0)), mode="reflect")
    result: Array = signal.oaconvolve(padded, kernel, mode="valid", axes=(0, 1))
    return result


def _gaussian_blur(image: Array, deviation: float) -> Array:
    result: Array = ndimage.gaussian_filter(image.astype(np.float32), (deviation, deviation, 0), mode="nearest")
    return result


def _glass_blur(image: Array, level: tuple[float, int, int], rng: Generator) -> Array:
    deviation, reach, rounds = level
    height, width = image.shape[:2]
    y, x = np.ix_(np.arange(height - reach, reach, -1), np.arange(width - reach, reach, -1))
    target = (y * width + x).ravel().tolist()
    # Each pixel changes places with one beside it, one after the other, lower right first. This order is the
    # definition, so it is a loop; over a list of places a photo costs 0.1 s.
    place = list(range(height * width))
    for _ in range(rounds):
        dy, dx = rng.integers(-reach, reach, (2, y.size, x.size))
        for to, source in zip(target, ((y + dy) * width + x + dx).ravel().tolist(), strict=True):
            place[to], place[source] = place[source], place[to]
    blurred = _gaussian_blur(image, deviation).astype(np.uint8)
    return _gaussian_blur(blurred.reshape(-1, 3)[place].reshape(image.shape), deviation)


def _smear(image: Array, radius: int, deviation: float, degrees: float) -> Array:
    """One-sided motion blur: half a Gaussian of 2 * radius + 1 taps along a line, at whole pixels, border repeated."""
    taps = np.arange(2 * radius + 1)
    weights = np.exp(-(taps**2) / (2 * deviation**2)).astype(np.float32)
    weights /= weights.sum()
    angle = np.deg2rad(degrees)
    down = np.ceil(taps * np.sin(angle) - 0.5).astype(int)
    right = np.ceil(taps * np.cos(angle) - 0.5).astype(int)
    height, width = image.shape[:2]
    top, left = -min(0, down.min()), -min(0, right.min())
    margins = ((top, max(0, down.max())), (left, max(0, right.max())), *[(0, 0)] * (image.ndim - 2))
    padded = np.pad(image.astype(np.float32), margins, mode="edge")
    result = np.zeros(image.shape, np.float32)
    for weight, dy, dx in zip(weights, down + top, right + left, strict=True):
        result += weight * padded[dy : dy + height, dx : dx + width]
    return result


def _motion_blur(image: Array, level: tuple[int, float], rng: Generator) -> Array:
    return _smear(image, *level, degrees=rng.uniform(-45, 45))


def _zoom(image: Array, factor: float) -> Array:
    """The middle of an image enlarged to its size, bilinear, corners on corners."""
    for axis in (0, 1):
        size = image.shape[axis]
        crop = int(np.ceil(size / factor))
        enlarged = max(size, round(crop * factor))
        step = (crop - 1) / max(1, enlarged - 1)
        at = np.minimum((np.arange(size) + (enlarged - size) // 2) * step, crop - 1)
        low = at.astype(int)
        part = np.take(image, np.arange((size - crop) // 2, (size - crop) // 2 + crop), axis)
        fraction = (at - low).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(image.ndim)])
        image = (
            np.take(part, low, axis) * (1 - fraction) + np.take(part, np.minimum(low + 1, crop - 1), axis) * fraction
        )
    return image


def _zoom_blur(image: Array, level: tuple[float, float], rng: Generator) -> Array:
    clean = image.astype(np.float32)
    factors = np.arange(1, *level)
    return (clean + sum(_zoom(clean, factor) for factor in factors)) / (len(factors) + 1)


# --- weather -----------------------------------------------------------------------------------------------------


def _snow(image: Array, level: tuple[float, ...], rng: Generator) -> Array:
    mean, deviation, zoom, threshold, radius, smear, fraction = level
    flakes = _zoom(rng.standard_normal(image.shape[:2], np.float32) * deviation + mean, zoom)
    flakes = (255 * np.clip(np.where(flakes < threshold, 0, flakes), 0, 1)).astype(np.uint8)
    flakes = _smear(flakes, int(radius), smear, degrees=rng.uniform(-135, -45))[..., None]
    gray = image @ np.array([0.299, 0.587, 0.114], np.float32)
    pale = np.maximum(image, 1.5 * gray[..., None] + 127.5)
    return fraction * image + (1 - fraction) * pale + flakes + flakes[::-1, ::-1]


FROST_SIDE = 1024
FROST_TEXTURES = 5


@lru_cache(maxsize=2 * FROST_TEXTURES)
def _frost_texture(index: int, side: int) -> Array:
    """Ice on a window, uint8: needles in six directions, at two sizes, thick here and thin there, dark between.

    The mean light is 45 of 255: with much brighter ice the published weights would bring level 4 back towards the
    image (0.7 image + 0.7 frost at level 3, 0.65 + 0.7 at level 4).
    """
    if side != FROST_SIDE:
        texture = Image.fromarray(_frost_texture(index, FROST_SIDE))
        return np.asarray(texture.resize((side, side), Image.Resampling.BILINEAR))
    rng = np.random.default_rng(index)
    spectrum = fft.rfft2(rng.standard_normal((side, side), np.float32))
    fy, fx = fft.fftfreq(side)[:, None], fft.rfftfreq(side)[None]
    ice = np.zeros((side, side), np.float32)
    turn = rng.uniform(0, np.pi)
    for direction in range(6):
        angle = turn + direction * np.pi / 6
        along, across = fx * np.cos(angle) + fy * np.sin(angle), fy * np.cos(angle) - fx * np.sin(angle)
        for length, thickness in ((40, 2.5), (12, 1.0)):
            with np.errstate(under="ignore"):
                blur = np.exp(-2 * np.pi**2 * ((length * along) ** 2 + (thickness * across) ** 2)).astype(np.float32)
            # The same noise shifted: needles of different directions do not meet at the same points.
            shift = np.exp(-2j * np.pi * (fx + fy) * rng.integers(side)).astype(np.complex64)
            needles = fft.irfft2(spectrum * blur * shift, s=ice.shape)
            ice = np.maximum(ice, needles / needles.std())
    haze, cover = (_fractal(side, 1.5, rng).astype(np.float32) for _ in range(2))
    light = 0.5 * haze + np.clip(3 * cover - 1, 0, 1) * (0.3 + 2 * np.maximum(ice - 0.8, 0))
    light *= 45 / light.mean()
    result: Array = np.clip(light[..., None] * np.array([0.9, 1.0, 1.1], np.float32), 0, 255).astype(np.uint8)
    return result


def _frost(image: Array, level: tuple[float, float], rng: Generator) -> Array:
    height, width = image.shape[:2]
    # CIFAR-C shrinks the texture to a fifth; an image larger than the texture gets it enlarged.
    side = FROST_SIDE // 5 if _is_tiny(image) else max(FROST_SIDE, height + 1, width + 1)
    texture = _frost_texture(int(rng.integers(FROST_TEXTURES)), side)
    top, left = rng.integers(0, (side - height, side - width))
    return level[0] * image + level[1] * texture[top : top + height, left : left + width]


def _fractal(side: int, decay: float, rng: Generator) -> Array:
    """Diamond-square noise in [0, 1] on a torus; `side` is a power of two, the k-th doubling adds +-decay^-2k."""
    grid = np.zeros((1, 1))
    size = 1.0
    while grid.shape[0] < side:
        n = 2 * grid.shape[0]
        fine = np.empty((n, n))
        fine[::2, ::2] = grid
        rows = grid + np.roll(grid, -1, 0)
        center = (rows + np.roll(rows, -1, 1)) / 4 + rng.uniform(-size, size, grid.shape)
        fine[1::2, 1::2] = center
        across = grid + np.roll(grid, -1, 1) + center + np.roll(center, 1, 0)
        fine[::2, 1::2] = across / 4 + rng.uniform(-size, size, grid.shape)
        fine[1::2, ::2] = (rows + center + np.roll(center, 1, 1)) / 4 + rng.uniform(-size, size, grid.shape)
        grid, size = fine, size / decay**2
    low, high = grid.min(), grid.max()
    result: Array = (grid - low) / max(high - low, 1e-12)
    return result


def _fog(image: Array, level: tuple[float, float], rng: Generator) -> Array:
    thickness, decay = level
    height, width = image.shape[:2]
    side = 1 << (max(height, width) - 1).bit_length()
    mist = 255 * thickness * _fractal(side, decay, rng)[:height, :width, None]
    brightest = image.max() / 255
    result: Array = (image + mist) * (brightest / (brightest + thickness))
    return result


def _brightness(image: Array, amount: float, rng: Generator) -> Array:
    # With hue and saturation kept, RGB is proportional to the value of HSV, the largest channel; black turns gray.
    value = image.max(-1, keepdims=True) / 255
    raised = np.minimum(value + amount, 1)
    result: Array = np.where(value > 0, image * (raised / np.maximum(value, 1 / 255)), 255 * raised)
    return result


# --- digital -----------------------------------------------------------------------------------------------------


def _contrast(image: Array, fraction: float, rng: Generator) -> Array:
    mean = image.mean((0, 1))
    result: Array = (image - mean) * fraction + mean
    return result


def _elastic_transform(image: Array, level: tuple[float, float, float], rng: Generator) -> Array:
    jitter, height_fraction, smoothness = level
    height, width = image.shape[:2]
    grid = np.mgrid[:height, :width].astype(np.float32)
    result = image.astype(np.float32)
    if jitter:
        center, third = np.array([height // 2, width // 2]), max(1, min(height, width) // 3)
        corners = center + third * np.array([[1, 1], [1, -1], [-1, -1]])
        moved = corners + rng.uniform(-jitter, jitter, (3, 2)) * height
        matrix = np.linalg.solve(np.c_[moved, np.ones(3)], corners)  # where each moved point came from
        result = _sample(result, np.tensordot(matrix[:2].T, grid, 1) + matrix[2][:, None, None], "mirror")
    if height_fraction:
        sigmas = (smoothness * height, smoothness * width)
        shift = [ndimage.gaussian_filter(rng.uniform(-1, 1, (height, width)), sigmas, truncate=3) for _ in range(2)]
        result = _sample(result, grid + height_fraction * height * np.stack(shift), "reflect")
    return result


def _sample(image: Array, places: Array, mode: str) -> Array:
    planes = [ndimage.map_coordinates(image[..., c], places, order=1, mode=mode) for c in range(image.shape[-1])]
    return np.stack(planes, -1)


def _pixelate(image: Array, fraction: float, rng: Generator) -> Array:
    height, width = image.shape[:2]
    small = (max(1, int(width * fraction)), max(1, int(height * fraction)))
    box = Image.Resampling.BOX
    return np.asarray(Image.fromarray(image).resize(small, box).resize((width, height), box))


def _jpeg_compression(image: Array, quality: int, rng: Generator) -> Array:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file, formats=["JPEG"]))


# --- the public functions ------------------------------------------------------------------------------------------

_FUNCTIONS: dict[str, Callable[[Array, Any, Generator], Array]] = {kind: globals()[f"_{kind}"] for kind in KINDS}


def get_corruption_names(subset: str = "common") -> list[str]:
    """Return the 15 names ("common" or "all"), or those of a family, in the paper's order."""
    subsets = {"common": KINDS, "all": KINDS, **FAMILIES}
    if subset not in subsets:
        raise UserError(f"unknown subset {subset!r}; expected {', '.join(subsets)}")
    return list(subsets[subset])


def corrupt(
    image: Array, severity: int = 1, corruption_name: str | None = None, corruption_number: int = -1, *, seed: int = 0
) -> Array:
    """Return a corrupted copy of an image: uint8, H x W or H x W x 1 (gray) or H x W x 3 (RGB), any size.

    The interface is that of the package `imagecorruptions`, for its 15 common corruptions, with a seed. A corruption is
    named by `corruption_name` or by `corruption_number`, its index in `get_corruption_names()`.
    """
    if corruption_name is None and not 0 <= corruption_number < len(KINDS):
        raise UserError(f"missing corruption: give corruption_name or corruption_number, 0 to {len(KINDS) - 1}")
    corruption_name = corruption_name or KINDS[corruption_number]
    if corruption_name not in KINDS:
        raise UserError(f"unknown corruption_name {corruption_name!r}; expected {', '.join(KINDS)}")
    if severity not in SEVERITIES:
        raise UserError(f"severity is 1 to 5, got {severity!r}")
    severity = int(severity)
    image = np.asarray(image)
    if image.dtype != np.uint8 or image.size == 0:
        raise UserError(f"an image to corrupt is uint8 with at least one pixel, not {image.dtype} {image.shape}")
    if image.ndim not in (2, 3) or image.shape[2:] not in ((), (1,), (3,)):
        raise UserError(f"an image to corrupt is H x W, H x W x 1 or H x W x 3, not {image.shape}; drop the alpha")
    # A gray image is one channel of a gray RGB image.
    color = image if image.shape[2:] == (3,) else np.repeat(image.reshape(*image.shape[:2], 1), 3, 2)
    level = PARAMETERS[corruption_name][_is_tiny(image)][severity - 1]
    rng = np.random.default_rng((seed, KINDS.index(corruption_name)))
    corrupted = np.clip(_FUNCTIONS[corruption_name](color, level, rng), 0, 255).astype(np.uint8)
    return corrupted if color is image else corrupted[..., 0].reshape(image.shape)


def _is_tiny(image: Array) -> bool:
    return bool(image.shape[:2] == (32, 32))
