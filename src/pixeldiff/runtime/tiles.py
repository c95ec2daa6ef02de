"""Windows over a picture that is too large for the network at once.

Resizing and pooling see the same pixels in every window: borders lie on the grid of the poolings, and a margin as wide
as the network's reach surrounds what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """`window` is what the network sees, `core` the part of it that is kept; rows and columns of the picture."""

    window: tuple[slice, slice]
    core: tuple[slice, slice]


def plan_tiles(height: int, width: int, max_pixels: int, margin: int, stride: int) -> list[Tile]:
    """Cores that cover the picture once, in windows of at most `max_pixels` with `margin` pixels around each core.

    Of all grids the one whose windows have the least area together. All borders inside the picture are multiples of
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
