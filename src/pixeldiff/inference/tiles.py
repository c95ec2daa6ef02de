"""Windows over an image that is too large for the network at once, and its maps put together from them.

Resizing and pooling see the same pixels in every window: borders lie on the grid of the poolings, and a margin as wide
as the network's reach surrounds what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pixeldiff import image
from pixeldiff.image import FloatMap

_BAND_ROWS = 256


@dataclass(frozen=True)
class Tile:
    """`window` is what the network sees, `core` the part of it that is kept; rows and columns of the image."""

    window: tuple[slice, slice]
    core: tuple[slice, slice]


def plan_tiles(height: int, width: int, max_pixels: int, margin: int, stride: int) -> list[Tile]:
    """Cores that cover the image once, in windows of at most `max_pixels` with `margin` pixels around each core.

    Of all grids the one whose windows have the least area together. All borders inside the image are multiples of
    `stride`, so that pooling falls on the same grid in every window. If no grid is small enough, the smallest.
    """
    margin = -(-margin // stride) * stride
    grids = [(h, w) for h in _core_sizes(height, margin, stride) for w in _core_sizes(width, margin, stride)]

    def window_pixels(core: tuple[int, int]) -> int:
        return min(core[0] + 2 * margin, height) * min(core[1] + 2 * margin, width)

    def total_pixels(core: tuple[int, int]) -> int:
        return (height + 2 * margin * ((height - 1) // core[0])) * (width + 2 * margin * ((width - 1) // core[1]))

    fitting = [core for core in grids if window_pixels(core) <= max_pixels]
    core = min(fitting, key=total_pixels) if fitting else min(grids, key=window_pixels)
    return [
        Tile((row[0], column[0]), (row[1], column[1]))
        for row in _spans(height, core[0], margin)
        for column in _spans(width, core[1], margin)
    ]


def _core_sizes(length: int, margin: int, stride: int) -> list[int]:
    """The lengths of 1, 2, 3 ... equal cores, down to half a margin: below that nearly all work would be margin."""
    most = max(1, 2 * length // max(margin, stride))
    return sorted({-(-length // (count * stride)) * stride for count in range(1, most + 1)})


def _spans(length: int, core: int, margin: int) -> Iterable[tuple[slice, slice]]:
    for start in range(0, length, core):
        stop = min(start + core, length)
        yield slice(max(0, start - margin), min(length, stop + margin)), slice(start, stop)


def coarser(span: slice, origin: int, k: int) -> slice:
    """A span of image pixels, counted from `origin`, on the grid after k poolings."""
    return slice((span.start - origin) >> k, (span.stop - origin) >> k)


def fuse(sides: list[FloatMap], fusion: list[float], bias: float, keep_sides: bool) -> FloatMap:
    """The network's last step on side logits at their own resolution, some rows at a time."""
    size = sides[0].shape[0], sides[0].shape[1]
    maps = np.empty((5 if keep_sides else 1, *size), np.float32)
    for start in range(0, size[0], _BAND_ROWS):
        rows = slice(start, start + _BAND_ROWS)
        total = np.full(maps[0, rows].shape, bias, np.float32)
        for k, (side, weight) in enumerate(zip(sides, fusion, strict=True)):
            logits = image.resize(side, size, rows)
            total += logits * np.float32(weight)
            if keep_sides:
                maps[k, rows] = sigmoid(logits)
        maps[-1, rows] = sigmoid(total)
    return maps


def sigmoid(logits: FloatMap) -> FloatMap:
    result: FloatMap = 1 / (1 + np.exp(np.minimum(-logits, np.float32(88))))
    return result
