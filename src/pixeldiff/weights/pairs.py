"""Pixel pairs from geometry: which difference of pixels each weight of a kernel multiplies (paper, section 3.2).

    y = sum_i w_i * (x_i - x'_i),    (x_i, x'_i) in P.

This is linear in w, so it equals a plain convolution with another kernel, which `PixelPairs.matrix` computes from w;
`nn.ops.fold` does so in training, and a weights file carries the matrices of its kernels.

To add a kind, add its function to KINDS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError

Offset = tuple[int, int]  # (row, column) relative to the center pixel
Pair = tuple[Offset, Offset | None] | None  # x and x' of one weight; without x' a plain pixel; None: no effect


@dataclass(frozen=True)
class PixelPairs:
    """Which pixel difference each weight of a `kernel_size` x `kernel_size` kernel multiplies.

    `pairs[i] = (plus, minus)` are the offsets of x_i and x'_i for weight i in row order; `minus=None` is a plain
    pixel (vanilla convolution), `pairs[i] = None` a weight without effect.
    """

    kernel_size: int
    pairs: tuple[Pair, ...]

    def __post_init__(self) -> None:
        _check_odd(self.kernel_size)
        if len(self.pairs) != self.kernel_size**2:
            raise UserError(
                f"got {len(self.pairs)} pixel pairs for a {self.kernel_size}x{self.kernel_size} kernel; "
                f"give {self.kernel_size**2}, with None for weights without effect"
            )

    @classmethod
    def from_list(cls, pairs: Iterable[tuple[Offset, Offset]], kernel_size: int) -> PixelPairs:
        """A user's own probing strategy: pairs go to the weights in row order, the remaining weights rest."""
        given = list(pairs)
        _check_odd(kernel_size)
        if not 0 < len(given) <= kernel_size**2:
            raise UserError(
                f"got {len(given)} pixel pairs; a {kernel_size}x{kernel_size} kernel takes 1 to {kernel_size**2}"
            )
        return cls(kernel_size, tuple(given) + (None,) * (kernel_size**2 - len(given)))

    @property
    def differences(self) -> tuple[tuple[Offset, Offset], ...]:
        """The pairs that are differences of two pixels, in row order: one binary weight each (8 for 3x3 kinds)."""
        if any(pair is not None and pair[1] is None for pair in self.pairs):
            raise UserError("binary pixel differences need a second pixel in each pair; use central, angular or radial")
        return tuple((plus, minus) for plus, minus in filter(None, self.pairs) if minus is not None and plus != minus)

    @property
    def support(self) -> int:
        """Side of the smallest centered square that holds every pixel read, at least the kernel's own."""
        reach = [abs(v) for pair in self.pairs if pair for point in pair if point for v in point]
        return max(self.kernel_size, 2 * max(reach, default=0) + 1)

    def matrix(self) -> NDArray[np.float64]:
        """The folding map, (support^2, kernel_size^2), of entries -1, 0, +1 (central pairs may cancel)."""
        radius = self.support // 2
        rows = np.zeros((self.support**2, self.kernel_size**2))
        for i, pair in enumerate(self.pairs):
            if pair is None:
                continue
            for point, value in zip(pair, (1.0, -1.0), strict=True):
                if point is not None:
                    rows[(point[0] + radius) * self.support + point[1] + radius, i] += value
        return rows


CENTER = (0, 0)


def _check_odd(kernel_size: int) -> None:
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise UserError(f"pixel differences need an odd kernel size, got {kernel_size}; use 1, 3, 5 ...")


def _clockwise(point: Offset) -> Offset:
    """The next point clockwise on the square ring through `point` (rows grow downwards)."""
    y, x = point
    r = max(abs(y), abs(x))
    if y == -r and x < r:
        return y, x + 1
    if x == r and y < r:
        return y + 1, x
    if y == r and x > -r:
        return y, x - 1
    return y - 1, x


# The pair of the weight at an offset from the center, by the kind's name:
# - vanilla: x_p itself, no difference.
# - central: x_p - x_center; the center weight cancels.
# - angular: x_p - the next pixel clockwise on its ring; the center weight has no effect.
# - radial: x_2p - x_p, the pixel twice as far in the same direction minus the pixel itself, so a 3x3 kernel reads a
#   5x5 neighborhood; the center weight has no effect.
KINDS: dict[str, Callable[[Offset], Pair]] = {
    "vanilla": lambda point: (point, None),
    "central": lambda point: (point, CENTER),
    "angular": lambda point: None if point == CENTER else (point, _clockwise(point)),
    "radial": lambda point: None if point == CENTER else ((2 * point[0], 2 * point[1]), point),
}


@lru_cache(maxsize=32)
def pixel_pairs(kind: str, kernel_size: int = 3) -> PixelPairs:
    """Return the pixel pairs of a kind of KINDS for kernels of an odd size."""
    _check_odd(kernel_size)
    if kind not in KINDS:
        raise UserError(f"unknown kind {kind!r}; use one of {', '.join(KINDS)} or a PixelPairs")
    radius = kernel_size // 2
    points = [(y, x) for y in range(-radius, radius + 1) for x in range(-radius, radius + 1)]
    return PixelPairs(kernel_size, tuple(map(KINDS[kind], points)))
