"""Edge maps, height x width in [0, 1]: check their range, suppress, thin, and round them to levels by one rule.

Every public function that takes a map passes it through `to_float`, and every one that takes a mask through `to_mask`.

The rounding rule is floor(255 x + 1/2), in 32 bits, for maps and for images of floats. Labels and corruptions of images
have rules of their own, published or trained with: data/edges.py, training/tasks/edge_sources.py,
evaluation/corruptions.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native
from pixeldiff.errors import UserError

FloatMap = NDArray[np.float32]
PAPER_SCALES = (0.5, 1.0, 1.5)  # of the image, in the paper's multi-scale test: the maps are averaged
_ROUNDING = 1e-6  # by which a mean of maps may leave [0, 1]; cut off


def to_float(values: NDArray[Any], name: str = "the edge map") -> FloatMap:
    """Convert levels or strengths of any shape to float32 in [0, 1].

    uint8 and uint16 are levels of their full range (255 and 65535 are 1), bool is 0 and 1, and floats lie in [0, 1]
    already. Anything else is an error that begins with `name`.
    """
    if values.dtype in (np.uint8, np.uint16):
        levels: FloatMap = values.astype(np.float32) / np.float32(np.iinfo(values.dtype).max)
        return levels
    if values.dtype.kind not in "fb":
        raise UserError(f"{name} holds {values.dtype} values; expected floats in [0, 1], uint8, uint16 or bool")
    result: FloatMap = values.astype(np.float32, copy=False)
    low, high = float(result.min(initial=0)), float(result.max(initial=0))  # nan if there is one
    if not (low >= -_ROUNDING and high <= 1 + _ROUNDING):
        raise UserError(
            f"{name} has values from {low:.4g} to {high:.4g}; expected [0, 1]: divide levels by 255, put logits "
            "through a sigmoid"
        )
    return result if low >= 0 and high <= 1 else result.clip(0, 1)


def to_mask(values: NDArray[Any], name: str = "the mask") -> NDArray[np.bool_]:
    """Convert a mask of any shape to bool: numbers are 0 and one other positive value, as 1 or 255."""
    if values.dtype.kind == "b":
        return values
    if values.dtype.kind not in "iuf":
        raise UserError(f"{name} holds {values.dtype} values; expected bool or numbers")
    high = values.max(initial=0)
    result: NDArray[np.bool_] = values == high if high > 0 else np.zeros(values.shape, bool)
    if not np.all(result | (values == 0)):  # also catches nan
        raise UserError(f"{name} has more than two values; expected 0 and 1: compare it with a threshold first")
    return result


def nms(edge_map: NDArray[Any], radius: int = 1) -> FloatMap:
    """Suppress what is no crest (native/edges/nms.hpp): the thin version of a soft map, height x width.

    Radius 1 is the setting of most published scores; RCF's used 2.
    """
    check(edge_map)
    if radius < 1:
        raise UserError(f"the radius of non-maximum suppression is at least 1, got {radius}")
    return _native.nms(np.ascontiguousarray(to_float(edge_map)), radius)


def thin(lines: NDArray[Any]) -> NDArray[np.bool_]:
    """Thin the lines of a mask, height x width, to one pixel (Guo and Hall, to convergence; native/edges/thin.hpp)."""
    check(lines)
    if lines.dtype.kind == "f":
        raise UserError(f"thin takes a mask of bool or integers, got {lines.dtype}; compare the map with a threshold")
    return _native.thin(np.ascontiguousarray(to_mask(lines)).view(np.uint8)).view(np.bool_)


def to_8_bit(edge_map: NDArray[Any], name: str = "the edge map") -> NDArray[np.uint8]:
    """Round values in [0, 1] to levels 0 to 255, halves up."""
    return _levels(to_float(edge_map, name), 255).astype(np.uint8)


def to_16_bit(edge_map: NDArray[Any], name: str = "the edge map") -> NDArray[np.uint16]:
    """Round values in [0, 1] to levels 0 to 65535, halves up."""
    return _levels(to_float(edge_map, name), 65535).astype(np.uint16)


def _levels(edge_map: FloatMap, highest: int) -> FloatMap:
    """Apply the one rounding rule; in place after the first product, because maps are large."""
    levels: FloatMap = edge_map * np.float32(highest)
    levels += np.float32(0.5)
    np.floor(levels, out=levels)
    return levels


def check(edge_map: NDArray[Any]) -> None:
    """Raise an error unless a map or mask is height x width and not empty."""
    if edge_map.ndim != 2 or not edge_map.size:
        raise UserError(f"an edge map has one channel, height x width; got shape {edge_map.shape}")
