"""The specification of native/edges/nms.hpp in numpy, with the angle written as the protocol writes it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatMap = NDArray[np.float32]

TOLERANCE = np.float32(1.01)
BORDER = 5


def triangle(image: FloatMap, radius: int) -> FloatMap:
    """Convolution with weights 1 .. r, r + 1, r .. 1 (for radius 1: 1, 2, 1) in both directions, mirrored borders."""

    for axis in (0, 1):
        image = np.moveaxis(_triangle_rows(np.moveaxis(image, axis, 0), radius), 0, axis)
    return np.ascontiguousarray(image)


def _triangle_rows(image: FloatMap, radius: int) -> FloatMap:
    height = len(image)
    weights = np.concatenate([np.arange(1, radius + 2), np.arange(radius, 0, -1)]).astype(np.float32)
    padded = np.pad(image, ((radius, radius), (0, 0)), mode="symmetric")
    result = np.zeros_like(image)
    for k, weight in enumerate(weights / weights.sum()):
        result += weight * padded[k : k + height]
    return result


def nms(edge_map: NDArray[np.floating], radius: int = 1) -> FloatMap:
    """The thin version of a soft edge map, (height, width) in [0, 1]; float32."""
    edges = triangle(np.asarray(edge_map, dtype=np.float32), 1)
    height, width = edges.shape
    if min(height, width) < 2:
        return edges * _fade(height)[:, None] * _fade(width)
    dy, dx = np.gradient(triangle(edges, 4))
    dxx = np.gradient(dx, axis=1)
    dyy, dxy = np.gradient(dy)
    angle = np.mod(np.arctan(dyy * np.where(dxy > 0, -1, 1) / (dxx + np.float32(1e-5))), np.pi).astype(np.float32)
    cosine, sine = np.cos(angle), np.sin(angle)
    y, x = np.mgrid[:height, :width].astype(np.float32)
    keep = np.ones(edges.shape, dtype=bool)
    for distance in range(1, radius + 1):
        for step in (np.float32(-distance), np.float32(distance)):
            keep &= edges * TOLERANCE >= _bilinear(edges, y + step * sine, x + step * cosine)
    return np.where(keep, edges, np.float32(0)) * _fade(height)[:, None] * _fade(width)


def _bilinear(image: FloatMap, y: FloatMap, x: FloatMap) -> FloatMap:
    """Values between pixels; places outside count as the nearest border pixel."""
    height, width = image.shape
    y, x = np.clip(y, 0, np.float32(height - 1)), np.clip(x, 0, np.float32(width - 1))
    top = np.minimum(y.astype(np.intp), height - 2)
    left = np.minimum(x.astype(np.intp), width - 2)
    dy, dx = y - top.astype(np.float32), x - left.astype(np.float32)
    at = (top * width + left).ravel()
    flat = image.ravel()
    upper_left, upper_right, lower_left, lower_right = (
        flat[at + shift].reshape(image.shape) for shift in (0, 1, width, width + 1)
    )
    upper = upper_left + dx * (upper_right - upper_left)
    lower = lower_left + dx * (lower_right - lower_left)
    result: FloatMap = upper + dy * (lower - upper)
    return result


def _fade(length: int) -> FloatMap:
    """1 inside, 0, 1/5 .. 4/5 on the outer 5 pixels."""
    index = np.arange(length, dtype=np.float32)
    return np.minimum(np.minimum(index, index[::-1]) / BORDER, 1).astype(np.float32)
