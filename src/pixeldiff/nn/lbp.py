"""Local binary patterns of 3x3 kernels: codes, transitions and uniform patterns. It needs NumPy only.

The 8 signs around the center, read anticlockwise from the pixel to its right, are a code of 8 bits (+1 is bit 1).
A code is uniform if the circle changes between 0 and 1 at most twice (Ojala et al. 2002, 58 of the 256 codes).
The paper writes "at most 4" (198 codes) but also counts p + 1 = 9 uniform patterns up to rotation, which is at most 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Where each bit's weight sits among the 8 of a 3x3 kernel without its center in row order:
#   0 1 2        3 2 1
#   3 . 4  bits  4 . 0
#   5 6 7        5 6 7
RING = (4, 2, 1, 0, 3, 5, 6, 7)
CODES = 256


def lbp_codes(kernels: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the codes of binary or latent kernels: (..., 8) in row order without the center, or (..., 3, 3)."""
    if kernels.shape[-2:] == (3, 3):
        kernels = np.delete(kernels.reshape(*kernels.shape[:-2], 9), 4, axis=-1)
    if kernels.shape[-1] != len(RING):
        raise ValueError(f"LBP codes need 3x3 kernels or their 8 outer weights, got shape {kernels.shape}")
    bits = kernels[..., RING] >= 0
    codes: NDArray[np.int64] = (bits << np.arange(8)).sum(-1)
    return codes


def kernels_of(codes: NDArray[np.integer]) -> NDArray[np.float32]:
    """Return the kernels (..., 8) of +1 and -1 with these codes; the inverse of `lbp_codes`."""
    kernels = np.empty((*codes.shape, 8), np.float32)
    kernels[..., RING] = 2.0 * ((codes[..., None] >> np.arange(8)) & 1) - 1.0
    return kernels


def transitions(codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Count the changes around the circle of bits: 0, 2, 4, 6 or 8."""
    rotated = (codes >> 1) | ((codes & 1) << 7)
    changes: NDArray[np.int64] = (((codes ^ rotated)[..., None] >> np.arange(8)) & 1).sum(-1)
    return changes


def uniform_codes() -> NDArray[np.int64]:
    """Return the 58 codes with at most two transitions."""
    codes = np.arange(CODES)
    return codes[transitions(codes) <= 2]


def fixed_kernels(count: int, rng: np.random.Generator, uniform: float | None = None) -> NDArray[np.float32]:
    """Draw LBP kernels (count, 8): at random (the paper's case 1), or a fraction of them uniform (case 2: 0.8)."""
    if uniform is None:
        return kernels_of(rng.integers(CODES, size=count))
    codes = rng.choice(np.setdiff1d(np.arange(CODES), uniform_codes()), size=count)
    chosen = rng.permutation(count)[: round(uniform * count)]
    codes[chosen] = rng.choice(uniform_codes(), size=len(chosen))
    return kernels_of(codes)
