"""Pixel pairs from geometry: which difference of pixels each weight of a kernel multiplies (paper, section 3.2).

    y = sum_i w_i * (x_i - x'_i),    (x_i, x'_i) in P.

This is linear in w, so it equals a plain convolution with another kernel, `folded` here for numpy and `nn.ops.fold`
for torch, where it is the operator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError

Offset = tuple[int, int]  # (row, column) relative to the center pixel

KINDS = ("vanilla", "central", "angular", "radial")


@dataclass(frozen=True)
class PixelPairs:
    """Which pixel difference each weight of a `kernel_size` x `kernel_size` kernel multiplies.

    `pairs[i] = (plus, minus)` are the offsets of x_i and x'_i for weight i in row order; `minus=None` is a plain
    pixel (vanilla convolution), `pairs[i] = None` a weight without effect.
    """

    kernel_size: int
    pairs: tuple[tuple[Offset, Offset | None] | None, ...]

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
        """Side of the smallest centerd square that holds every pixel read, at least the kernel's own."""
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


@lru_cache(maxsize=32)
def pixel_pairs(kind: str, kernel_size: int = 3) -> PixelPairs:
    """The pixel pairs of a named kind.

    - vanilla: x_p itself, no difference.
    - central: x_p - x_center; the center weight cancels.
    - angular: x_p - the next pixel clockwise on its ring; the center weight rests.
    - radial: x_2p - x_p, the pixel twice as far in the same direction minus the pixel itself, so a 3x3 kernel
      reads a 5x5 neighborhood; the center weight rests.
    """
    _check_odd(kernel_size)
    r = kernel_size // 2
    points = [(y, x) for y in range(-r, r + 1) for x in range(-r, r + 1)]
    center = (0, 0)
    pairs: list[tuple[Offset, Offset | None] | None]
    if kind == "vanilla":
        pairs = [(p, None) for p in points]
    elif kind == "central":
        pairs = [(p, center) for p in points]
    elif kind == "angular":
        pairs = [None if p == center else (p, _clockwise(p)) for p in points]
    elif kind == "radial":
        pairs = [None if p == center else ((2 * p[0], 2 * p[1]), p) for p in points]
    else:
        raise UserError(f"unknown kind {kind!r}; use one of {', '.join(KINDS)} or a PixelPairs")
    return PixelPairs(kernel_size, tuple(pairs))


def folded(weight: NDArray[Any], kind: str) -> NDArray[np.float32]:
    """The plain kernels (..., s, s) of kernels (..., k, k); s is 5 for radial 3x3, else k."""
    pairs = pixel_pairs(kind, weight.shape[-1])
    flat = weight.reshape(*weight.shape[:-2], -1).astype(np.float64) @ pairs.matrix().T
    result: NDArray[np.float32] = flat.reshape(*weight.shape[:-2], pairs.support, pairs.support).astype(np.float32)
    return result
