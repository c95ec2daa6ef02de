"""Edge maps as files: FORMATS says of each kind its suffix, largest side, grounds and how a map becomes bytes.

A map is float32 in [0, 1], white edges on black. On a `transparent` ground the edges are the opacity, on the `photo`
they are drawn over the picture. A new kind is one more entry of FORMATS.
"""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff.data.mat import write_mat
from pixeldiff.edgemap import thin, to_8_bit, to_16_bit
from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap, Picture, as_8_bit
from pixeldiff.runtime.vector import STROKE, TOLERANCE, encode_svg

GROUNDS = ("transparent", "photo")
_RLE = 3  # zlib's strategy for run lengths: on edge maps 5 times quicker than the default and as small
_SOFTWARE = 305  # the EXIF tag for what made a file; PNG, JPEG and WebP all hold it
_THINNED = 65535  # pixels a side that suppression, thinning and tracing bear
_MAGENTA = (255, 0, 255)  # seldom in photos, and seen on light and dark ones


def as_opacity(edge_map: FloatMap, dark: bool) -> Image.Image:
    """White (or black) everywhere, as opaque as the edge is strong."""
    opacity = Image.fromarray(to_8_bit(edge_map))
    return Image.merge("LA", (Image.new("L", opacity.size, 0 if dark else 255), opacity))


def over_photo(edge_map: FloatMap, picture: Picture, dark: bool) -> Image.Image:
    """The picture with magenta (or black) edges drawn on it."""
    photo = Image.fromarray(as_8_bit(picture))
    photo.paste((0, 0, 0) if dark else _MAGENTA, mask=Image.fromarray(to_8_bit(edge_map)))
    return photo


def encode_png(edge_map: FloatMap) -> bytes:
    return save_png(Image.fromarray(to_8_bit(edge_map)))


def save_png(drawn: Image.Image, note: str = "") -> bytes:
    strategy = {} if drawn.mode == "RGB" else {"compress_type": _RLE}  # of photos it would make large files
    return _saved(drawn, "PNG", note, compress_level=1, **strategy)


def save_webp(drawn: Image.Image, note: str = "") -> bytes:
    """Lossless, like PNG."""
    return _saved(drawn.convert("RGBA") if drawn.mode == "LA" else drawn, "WEBP", note, lossless=True, quality=30)


def save_jpeg(drawn: Image.Image, note: str = "") -> bytes:
    return _saved(drawn, "JPEG", note, quality=95, subsampling=0)


def _saved(drawn: Image.Image, kind: str, note: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    if note:
        exif = Image.Exif()
        exif[_SOFTWARE] = note
        options["exif"] = exif
    drawn.save(buffer, kind, **options)
    return buffer.getvalue()


def encode_npy(edge_map: FloatMap) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ascontiguousarray(edge_map), allow_pickle=False)
    return buffer.getvalue()


def encode_mat(edge_map: FloatMap) -> bytes:
    """A MATLAB file with the float map under the name `edges`."""
    return write_mat({"edges": edge_map})


@dataclass(frozen=True)
class Format:
    """A kind of file: `save` writes a drawn picture and what made it, `numbers` a map; vector lines are neither."""

    suffix: str
    media: str
    save: Callable[[Image.Image, str], bytes] | None = None
    numbers: Callable[[FloatMap], bytes] | None = None
    levels: Callable[[FloatMap], NDArray[Any]] = to_8_bit
    most: int = 2**31 - 1  # pixels a side
    grounds: tuple[str, ...] = ()


FORMATS = {
    "png": Format("png", "image/png", save_png, grounds=GROUNDS),
    "png16": Format("png", "image/png", save_png, levels=to_16_bit),
    "jpg": Format("jpg", "image/jpeg", save_jpeg, most=65500, grounds=("photo",)),
    "webp": Format("webp", "image/webp", save_webp, most=16383, grounds=GROUNDS),
    "svg": Format("svg", "image/svg+xml", grounds=("transparent",)),
    "npy": Format("npy", "application/octet-stream", numbers=encode_npy),
    "mat": Format("mat", "application/octet-stream", numbers=encode_mat),
}
SUFFIXES = {name: name for name, one in FORMATS.items() if name == one.suffix} | {"jpeg": "jpg"}  # -> the kind it names


def read_note(path: Path) -> str:
    """What a result says of how it was made; empty where it says nothing."""
    with contextlib.suppress(Exception):  # whatever lies there: it is not ours, then
        if path.suffix == ".svg":
            with open(path, encoding="utf-8") as file:
                found = re.search("<desc>(.*?)</desc>", file.read(1000))
            return html.unescape(found[1]) if found else ""
        with Image.open(path, formats=["PNG", "JPEG", "WEBP"]) as picture:
            return str(picture.getexif().get(_SOFTWARE, ""))
    return ""


@dataclass(frozen=True)
class Options:
    """How a map is made from a picture and turned into a file."""

    format: str = "png"
    thin: bool = False
    threshold: float | None = None
    invert: bool = False
    scales: Sequence[float] | None = None
    side_outputs: bool = False
    overwrite: bool = False
    tolerance: float = TOLERANCE  # of vector lines, pixels
    size: int | str | None = None  # longest side the network sees
    ground: str | None = None  # of GROUNDS; black or, inverted, white
    min_length: float = 0  # of vector lines that hang together, pixels
    stroke: float = STROKE  # of vector lines, pixels

    def __post_init__(self) -> None:
        if self.ground and self.ground not in (grounds := FORMATS[self.format].grounds):
            others = [name for name, one in FORMATS.items() if self.ground in one.grounds]
            raise UserError(
                f"{self.format} files have {'no ground but ' + grounds[0] if grounds else 'no ground'}; "
                f"a ground of {self.ground} needs {', '.join(others)}"
            )

    @property
    def suppressed(self) -> bool:
        """Whether the network's maps go through non-maximum suppression; vector lines start from thin ones."""
        return self.thin or self.format == "svg"

    def check_size(self, shape: tuple[int, ...]) -> None:
        """Refuse a picture, before the network runs, whose map could not be made or written."""
        most, what = FORMATS[self.format].most, f"{self.format} files"
        if self.suppressed and most >= _THINNED:
            most, what = _THINNED, "thin lines and svg files"
        if max(shape[:2]) > most:
            raise UserError(f"{what} have at most {most} pixels a side, this has {max(shape[:2])}; scale it down first")

    def encode(self, edge_map: FloatMap, picture: Picture | None = None, note: str = "") -> bytes:
        """The file of a map; the picture is needed for the ground that it is, `note` says how it was made."""
        self.check_size(edge_map.shape)
        kind = FORMATS[self.format]
        if kind.numbers is not None:
            return kind.numbers(self.finish(edge_map))
        if kind.save is not None:
            return kind.save(self._drawn(edge_map, picture), note)
        return encode_svg(  # threshold and colours are a matter of the lines, not of the map
            edge_map,
            self.threshold,
            self.invert,
            self.tolerance,
            self.min_length,
            self.stroke,
            self.ground == "transparent",
            note,
        )

    def _drawn(self, edge_map: FloatMap, picture: Picture | None) -> Image.Image:
        if self.ground == "transparent":
            return as_opacity(self.chosen(edge_map), self.invert)
        if self.ground == "photo":
            assert picture is not None
            return over_photo(self.chosen(edge_map), picture, self.invert)
        return Image.fromarray(FORMATS[self.format].levels(self.finish(edge_map)))

    def finish(self, edge_map: FloatMap) -> FloatMap:
        edge_map = self.chosen(edge_map)
        return 1 - edge_map if self.invert else edge_map

    def chosen(self, edge_map: FloatMap) -> FloatMap:
        """The map in black and white, where a threshold is given."""
        if self.threshold is None:
            return edge_map
        on = edge_map >= self.threshold
        # Suppression leaves some lines two pixels wide; the benchmark thins them after its threshold, too.
        return (thin(on) if self.thin else on).astype(np.float32)

    def note(self, model: str) -> str:
        """The command that makes such a file."""
        words: dict[str, object] = {
            "--model": model,
            "--thin": self.thin,
            "--threshold": self.threshold,
            "--invert": self.invert,
            "--multi-scale": self.scales is not None,
            "--size": self.size,
            "--ground": self.ground,
        }
        if self.format == "svg":
            words |= {"--tolerance": self.tolerance, "--min-length": self.min_length, "--stroke": self.stroke}
        given = (
            name if word is True else f"{name} {word:g}" if isinstance(word, float) else f"{name} {word}"
            for name, word in words.items()
            if word is not None and word is not False
        )
        return " ".join(["pixeldiff detect", *given]).encode("ascii", "replace").decode()  # as EXIF holds it
