"""Files of edge maps: FORMATS says of each kind its suffix, what it takes, its limits and how that becomes bytes.

A kind takes a `image` (drawn, a Pillow image), `numbers` (the map, float32 in [0, 1]) or `lines` (vector.LineDrawing);
render/drawing.py makes them from a map. A new kind is one more entry of FORMATS.
"""

from __future__ import annotations

import contextlib
import html
import io
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
from pixeldiff.image import FloatMap
from pixeldiff.render.vector import encode_svg

GROUNDS = ("transparent", "photo")
_RLE = 3  # zlib's strategy for run lengths: on edge maps 5 times quicker than the default and as small
_SOFTWARE = 305  # the EXIF tag for what made a file; PNG, JPEG and WebP all hold it


def encode_png(drawn: Image.Image, note: str = "") -> bytes:
    strategy = {} if drawn.mode == "RGB" else {"compress_type": _RLE}  # of photos it would make large files
    return save_image(drawn, "PNG", note, compress_level=1, **strategy)


def encode_webp(drawn: Image.Image, note: str = "") -> bytes:
    """Lossless, like PNG."""
    return save_image(drawn.convert("RGBA") if drawn.mode == "LA" else drawn, "WEBP", note, lossless=True, quality=30)


def encode_jpeg(drawn: Image.Image, note: str = "") -> bytes:
    return save_image(drawn, "JPEG", note, quality=95, subsampling=0)


def save_image(drawn: Image.Image, kind: str, note: str, **options: Any) -> bytes:
    """Encode an image as PNG, JPEG or WebP with a note of what made it."""
    buffer = io.BytesIO()
    if note:
        exif = Image.Exif()
        exif[_SOFTWARE] = note
        options["exif"] = exif
    drawn.save(buffer, kind, **options)
    return buffer.getvalue()


def encode_npy(edge_map: FloatMap, note: str = "") -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(edge_map), allow_pickle=False)
    return buffer.getvalue()


def encode_mat(edge_map: FloatMap, note: str = "") -> bytes:
    """A MATLAB file with the float map under the name `edges`."""
    return write_mat({"edges": edge_map})


def _exif_note(path: Path) -> str:
    with Image.open(path, formats=["PNG", "JPEG", "WEBP"]) as image:
        return str(image.getexif().get(_SOFTWARE, ""))


def _svg_note(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        found = re.search("<desc>(.*?)</desc>", file.read(1000))
    return html.unescape(found[1]) if found else ""


def _no_note(path: Path) -> str:
    return ""


@dataclass(frozen=True)
class Format:
    """A kind of file. `encode` takes what is drawn, and a note of what made it, which `note` reads again."""

    suffix: str
    media: str
    takes: str
    encode: Callable[[Any, str], bytes]
    note: Callable[[Path], str] = _no_note
    levels: Callable[[FloatMap], NDArray[Any]] = to_8_bit  # of an image without a ground
    most: int = 2**31 - 1  # pixels a side
    grounds: tuple[str, ...] = ()


FORMATS = {
    "png": Format("png", "image/png", "image", encode_png, _exif_note, grounds=GROUNDS),
    "png16": Format("png", "image/png", "image", encode_png, _exif_note, to_16_bit),
    "jpg": Format("jpg", "image/jpeg", "image", encode_jpeg, _exif_note, most=65500, grounds=("photo",)),
    "webp": Format("webp", "image/webp", "image", encode_webp, _exif_note, most=16383, grounds=GROUNDS),
    "svg": Format("svg", "image/svg+xml", "lines", encode_svg, _svg_note, grounds=("transparent",)),
    "npy": Format("npy", "application/octet-stream", "numbers", encode_npy),
    "mat": Format("mat", "application/octet-stream", "numbers", encode_mat),
}
SUFFIXES = {name: name for name, one in FORMATS.items() if name == one.suffix} | {"jpeg": "jpg"}  # -> the kind it names


def read_note(path: Path) -> str:
    """What a result says of how it was made; empty where it says nothing."""
    kind = SUFFIXES.get(path.suffix[1:].lower())
    with contextlib.suppress(Exception):  # whatever lies there: it is not ours, then
        return FORMATS[kind].note(path) if kind else ""
    return ""
