"""Sizes: large images are downscaled for an edge network, and its maps upscaled to the image's size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pixeldiff import edgemap
from pixeldiff import image as images
from pixeldiff.errors import InputError
from pixeldiff.image import FloatMap, ImageArray, ImageLike

DEFAULT_SIZE = 800  # the default max_size of edge networks; measured by benchmarks/studies/photo_size.py
SMALLEST = 16  # the network pools three times; smaller images are padded to this size
_FAINTEST = 1 / 510  # weaker pixels round to black with 8 bits
_BAND_ROWS = 256


def input_size(shape: tuple[int, int], max_size: int | None = DEFAULT_SIZE) -> tuple[int, int]:
    """Return the height and width at which the network runs on an image of this height and width.

    `max_size` is the longer side; None keeps the image's size. Larger images hold more noise, fur and compression
    blocks than the network has learned to ignore. Smaller ones are not upscaled.
    """
    if max_size is None:
        return shape
    if isinstance(max_size, bool) or not isinstance(max_size, int | np.integer) or max_size < SMALLEST:
        raise InputError(f"invalid max_size {max_size!r}; expected a whole number of at least {SMALLEST} or None")
    longer = max(shape)
    if longer <= max_size:
        return shape
    return max(1, round(shape[0] * max_size / longer)), max(1, round(shape[1] * max_size / longer))


@dataclass(frozen=True)
class ModelInput:
    """An image at the model's input size, and the height and width that its map will have."""

    image: ImageArray
    size: tuple[int, int]


def prepare(source: ImageLike, max_size: int | None = DEFAULT_SIZE) -> ModelInput:
    """Load and downscale an image (`input_size`), so that a large one is released before the network runs."""
    image = images.load(source)
    shape = (image.shape[0], image.shape[1])
    return ModelInput(images.reduce(image, input_size(shape, max_size)), shape)


def to_image_size(maps: FloatMap, size: tuple[int, int], nms: bool = False) -> FloatMap:
    """Bring maps of a downscaled image, N x h x w, to the image's size; with `nms` after non-maximum suppression.

    Suppression detects no crest on the smooth slopes of an upscaled map, and suppressed lines would not stay thin if
    upscaled. So maps are suppressed as the network gave them, and their lines are redrawn at the image's size.
    """
    large = _upscale(maps, size)
    if not nms:
        return large
    suppressed = np.stack([edgemap.nms(edge_map) for edge_map in maps])
    if maps.shape[1:] == size:
        return suppressed
    for lines, edge_map in zip(suppressed, large, strict=True):
        edge_map *= _redraw(lines >= _FAINTEST, size)
    return large


def _upscale(maps: FloatMap, size: tuple[int, int]) -> FloatMap:
    """Resize maps, some rows at a time."""
    if maps.shape[1:] == size:
        return maps
    large = np.empty((len(maps), *size), np.float32)
    for start in range(0, size[0], _BAND_ROWS):
        rows = slice(start, start + _BAND_ROWS)
        for small, edge_map in zip(maps, large, strict=True):
            edge_map[rows] = images.resize(small, size, rows)
    return large


def _redraw(lines: NDArray[np.bool_], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Draw lines one pixel wide at another size: straight from each pixel to its neighbors to the right and below."""
    lines = edgemap.thin(lines)
    scale = np.array(size) / lines.shape
    steps = np.linspace(0, 1, int(np.ceil(scale.max())) + 1)[:, None, None]
    drawn = np.zeros(size, bool)
    framed = np.pad(lines, 1)
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        neighbors = framed[1 + down :, 1 + right :][: lines.shape[0], : lines.shape[1]]
        starts = np.argwhere(lines & neighbors)
        points = ((starts + steps * (down, right) + 0.5) * scale).astype(np.int64).reshape(-1, 2)
        drawn[points[:, 0], points[:, 1]] = True
    return drawn
