"""Boxes (left, top, right, bottom): area, overlap and non-maximum suppression, for detectors and for scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Boxes = NDArray[Any]  # N x 4
_ROWS = 256  # boxes that are compared with all others at once


def area(boxes: Boxes) -> NDArray[Any]:
    result: NDArray[Any] = (boxes[:, 2:4] - boxes[:, :2]).prod(-1)
    return result


def intersections(first: Boxes, second: Boxes) -> NDArray[Any]:
    """Return the area that each box of `first` shares with each of `second`, N x M."""
    left, top, right, bottom = np.ascontiguousarray(first[:, :4].T)[:, :, None]
    other_left, other_top, other_right, other_bottom = np.ascontiguousarray(second[:, :4].T)
    shared = np.minimum(right, other_right) - np.maximum(left, other_left)
    np.clip(shared, 0, None, out=shared)
    shared *= np.clip(np.minimum(bottom, other_bottom) - np.maximum(top, other_top), 0, None)
    result: NDArray[Any] = shared
    return result


def overlaps(detected: Boxes, objects: Boxes, crowd: NDArray[np.bool_] | None = None) -> NDArray[Any]:
    """Return the IoU of each detected box with each object; for a crowd, the fraction of the detection inside it."""
    detected, objects = np.asarray(detected, np.float64), np.asarray(objects, np.float64)
    shared = intersections(detected, objects)
    areas = area(detected)[:, None]
    union = areas + area(objects)[None] - shared
    if crowd is not None:
        union = np.where(crowd[None], areas, union)
    result: NDArray[Any] = shared / np.maximum(union, np.finfo(np.float64).tiny)
    return result


def suppress(
    boxes: Boxes, max_overlap: float, labels: NDArray[np.integer[Any]] | None = None, *, of_smaller: bool = False
) -> NDArray[np.int64]:
    """Return the boxes to keep, of boxes in descending order of their scores: non-maximum suppression.

    A box goes if it overlaps a better box that stays by more than `max_overlap` of their union, or of the smaller of
    the two. With `labels`, only boxes of one class suppress each other.
    """
    areas = area(boxes)
    alive = np.ones(len(boxes), bool)
    for start in range(0, len(boxes), _ROWS):
        rows = start + np.flatnonzero(alive[start : start + _ROWS])
        shared = intersections(boxes[rows], boxes[start:])
        sums = areas[rows, None] + areas[None, start:] - shared
        whole = np.minimum(areas[rows, None], areas[None, start:]) if of_smaller else sums
        near = shared > max_overlap * whole
        if labels is not None:
            near &= labels[rows, None] == labels[None, start:]
        for row, close in zip(rows, near, strict=True):
            if alive[row]:
                alive[row + 1 :] &= ~close[row + 1 - start :]
    return np.flatnonzero(alive)
