"""What is done to an edge map, float32 H x W in [0, 1]: suppressed, thinned, and rounded to levels by one rule.

The rule is floor(255 x + 1/2), in 32 bits, for maps and for pictures of floats. Labels and corruptions of pictures have
rules of their own, published or trained with: data/truth.py, training/tasks/edge_sources.py, robustness/corruptions.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native
from pixeldiff.errors import UserError

FloatMap = NDArray[np.float32]
PAPER_SCALES = (0.5, 1.0, 1.5)  # of the picture, in the paper's multi-scale test: the maps are averaged


def nms(edge_map: NDArray[np.floating], radius: int = 1) -> FloatMap:
    """Non-maximum suppression (native/edges/nms.hpp): the thin version of a soft map in [0, 1], height x width.

    Radius 1 is the setting of most published scores; RCF's used 2.
    """
    check(edge_map)
    if radius < 1:
        raise UserError(f"the radius of non-maximum suppression is at least 1, got {radius}")
    return _native.nms(np.ascontiguousarray(edge_map, dtype=np.float32), radius)


def thin(lines: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Lines one pixel wide (Guo and Hall, to convergence; native/edges/thin.hpp)."""
    return _native.thin(np.ascontiguousarray(lines).view(np.uint8)).view(np.bool_)


def to_8_bit(edge_map: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Values in [0, 1] to levels 0 to 255, halves up."""
    return _levels(edge_map, 255).astype(np.uint8)


def to_16_bit(edge_map: NDArray[np.floating]) -> NDArray[np.uint16]:
    """Values in [0, 1] to levels 0 to 65535, halves up."""
    return _levels(edge_map, 65535).astype(np.uint16)


def _levels(edge_map: NDArray[np.floating], highest: int) -> NDArray[np.floating]:
    """The one rounding rule; in place after the copy, because maps are large."""
    levels = np.clip(edge_map, 0, 1)
    levels *= np.float32(highest)
    levels += np.float32(0.5)
    result: NDArray[np.floating] = np.floor(levels, out=levels)
    return result


def check(edge_map: NDArray[np.floating]) -> None:
    if edge_map.ndim != 2 or not edge_map.size:
        raise UserError(f"an edge map has one channel, height x width; got shape {edge_map.shape}")
