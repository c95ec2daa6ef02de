"""Large images are reduced for the network, and its maps brought back to the image's size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixeldiff import edgemap
from pixeldiff import image as images
from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap, ImageArray, ImageLike

DEFAULT_SIZE = 800  # the longer side a network sees unless told otherwise; why: benchmarks/studies/photo_size.py
SMALLEST = 16  # the network pools three times; smaller images are continued to this size
_FAINTEST = 1 / 510  # what becomes black with 8 bits is no line
_BAND_ROWS = 256


def input_size(shape: tuple[int, int], size: int | str | None = None) -> tuple[int, int]:
    """The height and width at which the network sees an image of this height and width; its map is enlarged again.

    `size` is the longer side, "full" the image as it is, None means DEFAULT_SIZE: larger images hold
    more noise, fur and blocks of compression than the network has learned to leave out. Smaller ones are not enlarged.
    """
    if size == "full":
        return shape
    if size is None:
        size = DEFAULT_SIZE
    if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < SMALLEST:
        raise UserError(f"size is the longer side in pixels, {SMALLEST} or more, or 'full', not {size!r}")
    longest = max(shape)
    if longest <= size:
        return shape
    return max(1, round(shape[0] * size / longest)), max(1, round(shape[1] * size / longest))


@dataclass(frozen=True)
class ModelInput:
    """An image as the network sees it, and the height and width that its map will have."""

    image: ImageArray
    size: tuple[int, int]


def prepare(source: ImageLike, size: int | str | None = None) -> ModelInput:
    """Load an image and reduce it (`input_size`), to let go of a large one before the network runs."""
    image = images.load(source)
    shape = (image.shape[0], image.shape[1])
    return ModelInput(images.reduce(image, input_size(shape, size)), shape)


def enlarge(maps: FloatMap, size: tuple[int, int]) -> FloatMap:
    """Maps of a reduced image at its own size, some rows at a time."""
    if maps.shape[1:] == size:
        return maps
    large = np.empty((len(maps), *size), np.float32)
    for start in range(0, size[0], _BAND_ROWS):
        rows = slice(start, start + _BAND_ROWS)
        for small, one in zip(maps, large, strict=True):
            one[rows] = images.resize(small, size, rows)
    return large


def thin_lines(maps: FloatMap, size: tuple[int, int]) -> FloatMap:
    """Maps after non-maximum suppression, at the image's size.

    Suppression finds no crest on the smooth slopes of an enlarged map, and its own lines would not stay thin if
    enlarged: maps of a reduced image are suppressed as the network gave them, and their lines drawn anew.
    """
    thin = np.stack([edgemap.nms(one) for one in maps])
    if maps.shape[1:] == size:
        return thin
    large = enlarge(maps, size)
    for lines, one in zip(thin, large, strict=True):
        one *= _drawn_lines(lines >= _FAINTEST, size)
    return large


def _drawn_lines(lines: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Lines one pixel wide at another size: straight from each pixel of a line to the next ones beside or below it."""
    lines = edgemap.thin(lines)
    scale = np.array(size) / lines.shape
    steps = np.linspace(0, 1, int(np.ceil(scale.max())) + 1)[:, None, None]
    drawn = np.zeros(size, bool)
    framed = np.pad(lines, 1)
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        beside = framed[1 + down :, 1 + right :][: lines.shape[0], : lines.shape[1]]
        starts = np.argwhere(lines & beside)
        places = ((starts + steps * (down, right) + 0.5) * scale).astype(np.int64).reshape(-1, 2)
        drawn[places[:, 0], places[:, 1]] = True
    return drawn
