"""Edge maps as files: each format is a function from a float32 map in [0, 1] to the file's bytes.

A new format is one more entry of FORMATS.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap
from pixeldiff.metrics.mat import write_mat
from pixeldiff.runtime.vector import encode_svg

_RLE = 3  # zlib's strategy for run lengths: on edge maps 5 times quicker than the default and as small


def grey_levels(edge_map: FloatMap) -> NDArray[np.uint8]:
    """8 bit, rounded: white edges on black."""
    levels = edge_map * np.float32(255)
    return np.round(levels, out=levels).astype(np.uint8)


def encode_png(edge_map: FloatMap) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(grey_levels(edge_map)).save(buffer, "PNG", compress_level=1, compress_type=_RLE)
    return buffer.getvalue()


def encode_webp(edge_map: FloatMap) -> bytes:
    """Lossless, like the other formats."""
    if max(edge_map.shape) > 16383:
        raise UserError(f"WebP holds at most 16383 pixels a side, not {max(edge_map.shape)}; use --format png")
    buffer = io.BytesIO()
    Image.fromarray(grey_levels(edge_map)).save(buffer, "WEBP", lossless=True, method=2, quality=30)
    return buffer.getvalue()


def encode_npy(edge_map: FloatMap) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(edge_map), allow_pickle=False)
    return buffer.getvalue()


def encode_mat(edge_map: FloatMap) -> bytes:
    """A MATLAB file with the float map under the name `edges`."""
    return write_mat({"edges": edge_map})


FORMATS: dict[str, Callable[[FloatMap], bytes]] = {
    "png": encode_png,
    "webp": encode_webp,
    "npy": encode_npy,
    "mat": encode_mat,
    "svg": encode_svg,
}
