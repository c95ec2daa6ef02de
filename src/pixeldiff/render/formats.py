"""File formats of edge maps: FORMATS holds the suffix, media type, limits and encoder of each.

A format takes an `image` (drawn, a Pillow image), `numbers` (the map, float32 in [0, 1]) or `lines`
(vector.LineDrawing); render/drawing.py makes them from a map. A new format is one entry of FORMATS.
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff.data.mat import write_mat
from pixeldiff.edgemap import to_8_bit, to_16_bit
from pixeldiff.errors import OutputError
from pixeldiff.image import FloatMap
from pixeldiff.render.vector import encode_svg

BACKGROUNDS = ("black", "white", "transparent", "photo")
_PLAIN = BACKGROUNDS[:2]
_RLE = 3  # zlib's strategy for run lengths: on edge maps 5 times faster than the default and as small
_SOFTWARE = 305  # the EXIF tag for what made a file; PNG, JPEG and WebP all hold it


def encode_png(drawn: Image.Image, provenance: str = "") -> bytes:
    strategy = {} if drawn.mode == "RGB" else {"compress_type": _RLE}  # photos would become large files
    return _encode(drawn, "PNG", provenance, compress_level=1, **strategy)


def encode_webp(drawn: Image.Image, provenance: str = "") -> bytes:
    """Encode edges without loss and photos at quality 95."""
    if drawn.mode == "RGB":
        return _encode(drawn, "WEBP", provenance, quality=95)
    drawn = drawn.convert("RGBA") if drawn.mode == "LA" else drawn
    return _encode(drawn, "WEBP", provenance, lossless=True, quality=30)


def encode_jpeg(drawn: Image.Image, provenance: str = "") -> bytes:
    return _encode(drawn, "JPEG", provenance, quality=95, subsampling=0)


def _encode(drawn: Image.Image, kind: str, provenance: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    if provenance:
        exif = Image.Exif()
        exif[_SOFTWARE] = provenance
        options["exif"] = exif
    drawn.save(buffer, kind, **options)
    return buffer.getvalue()


def encode_npy(edge_map: FloatMap, provenance: str = "") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(edge_map), allow_pickle=False)
    return buffer.getvalue()


def encode_mat(edge_map: FloatMap, provenance: str = "") -> bytes:
    """Encode the float map as a MATLAB file, under the name `edges`."""
    return write_mat({"edges": edge_map})


def _read_exif(path: Path) -> str:
    with Image.open(path, formats=["PNG", "JPEG", "WEBP"]) as image:
        return str(image.getexif().get(_SOFTWARE, ""))


def _read_desc(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        match = re.search("<desc>(.*?)</desc>", file.read(1000))
    return html.unescape(match[1]) if match else ""


@dataclass(frozen=True)
class Format:
    """A file format. `encode` takes what is drawn and its provenance, which `read_provenance` reads again."""

    suffix: str
    media_type: str
    takes: str
    encode: Callable[[Any, str], bytes]
    read_provenance: Callable[[Path], str] = lambda path: ""
    levels: Callable[[FloatMap], NDArray[Any]] = to_8_bit  # of a black or white background
    max_side: int = 2**31 - 1  # pixels
    backgrounds: tuple[str, ...] = _PLAIN


FORMATS = {
    "png": Format("png", "image/png", "image", encode_png, _read_exif, backgrounds=BACKGROUNDS),
    "png16": Format("png", "image/png", "image", encode_png, _read_exif, to_16_bit),
    "jpg": Format(
        "jpg", "image/jpeg", "image", encode_jpeg, _read_exif, max_side=65500, backgrounds=(*_PLAIN, "photo")
    ),
    "webp": Format("webp", "image/webp", "image", encode_webp, _read_exif, max_side=16383, backgrounds=BACKGROUNDS),
    "svg": Format("svg", "image/svg+xml", "lines", encode_svg, _read_desc, backgrounds=(*_PLAIN, "transparent")),
    "npy": Format("npy", "application/octet-stream", "numbers", encode_npy),
    "mat": Format("mat", "application/octet-stream", "numbers", encode_mat),
}
SUFFIXES = {name: name for name, kind in FORMATS.items() if name == kind.suffix} | {"jpeg": "jpg"}  # -> format
IMAGE_SUFFIXES = {f".{suffix}": name for suffix, name in SUFFIXES.items() if FORMATS[name].takes == "image"}


def format_of_name(path: str | os.PathLike[str]) -> str:
    """Return the format that a file's suffix names."""
    suffix = Path(path).suffix[1:].lower()
    if suffix not in SUFFIXES:
        raise OutputError(f"{path}: unknown format {suffix!r}; end the name with {', '.join(SUFFIXES)}")
    return SUFFIXES[suffix]


def encode_image(image: NDArray[np.uint8], suffix: str, provenance: str = "") -> bytes:
    """Encode an RGB or gray image in the format of a file suffix, one of IMAGE_SUFFIXES."""
    file_format = FORMATS[IMAGE_SUFFIXES[suffix.lower()]]
    if max(image.shape[:2]) > file_format.max_side:
        size = f"{image.shape[1]}x{image.shape[0]}"
        raise OutputError(
            f"cannot write {size} pixels as {suffix}, which has at most {file_format.max_side} a side; use .png"
        )
    return file_format.encode(Image.fromarray(image), provenance)


def read_provenance(path: Path) -> str:
    """Return how a result says it was made; empty if it does not say."""
    name = SUFFIXES.get(path.suffix[1:].lower())
    with contextlib.suppress(Exception):  # any file may have this name
        return FORMATS[name].read_provenance(path) if name else ""
    return ""
