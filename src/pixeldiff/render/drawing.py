"""What is drawn from an edge map: white edges on black, or as Options say, as a file of any of FORMATS.

On a `transparent` ground the edges are the opacity, on the `photo` they are drawn over the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from pixeldiff.edgemap import thin, to_8_bit, to_float
from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap, ImageArray, as_8_bit
from pixeldiff.render.formats import FORMATS, SUFFIXES
from pixeldiff.render.vector import STROKE, TOLERANCE, LineDrawing

_THINNED = 65535  # pixels a side that suppression, thinning and tracing bear
_MAGENTA = (255, 0, 255)  # seldom in photos, and seen on light and dark ones


def as_opacity(edge_map: FloatMap, dark: bool) -> Image.Image:
    """White (or black) everywhere, as opaque as the edge is strong."""
    opacity = Image.fromarray(to_8_bit(edge_map))
    return Image.merge("LA", (Image.new("L", opacity.size, 0 if dark else 255), opacity))


def over_photo(edge_map: FloatMap, image: ImageArray, dark: bool) -> Image.Image:
    """The image with magenta (or black) edges drawn on it."""
    photo = Image.fromarray(as_8_bit(image))
    photo.paste((0, 0, 0) if dark else _MAGENTA, mask=Image.fromarray(to_8_bit(edge_map)))
    return photo


@dataclass(frozen=True)
class Options:
    """How a map is made from an image and turned into a file."""

    format: str = "png"
    thin: bool = False
    threshold: float | None = None
    invert: bool = False
    scales: Sequence[float] | None = None
    flip: bool = False  # averaged with the map of the mirror image
    side_outputs: bool = False
    overwrite: bool = False
    tolerance: float = TOLERANCE  # of vector lines, pixels
    size: int | str | None = None  # longer side the network sees
    as_seen: bool = False  # the map of a reduced image stays small
    made_by: str = ""  # the command, where it is not detect
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
    def _lines(self) -> bool:
        return FORMATS[self.format].takes == "lines"

    @property
    def suppressed(self) -> bool:
        """Whether the network's maps go through non-maximum suppression; vector lines start from thin ones."""
        return self.thin or self._lines

    def check_size(self, shape: tuple[int, ...]) -> None:
        """Refuse an image, before the network runs, whose map could not be made or written."""
        most, what = FORMATS[self.format].most, f"{self.format} files"
        if self.suppressed and most >= _THINNED:
            most, what = _THINNED, "thin lines and svg files"
        if max(shape[:2]) > most:
            raise UserError(f"{what} have at most {most} pixels a side, this has {max(shape[:2])}; scale it down first")

    def encode(self, edge_map: FloatMap, image: ImageArray | None = None, note: str = "") -> bytes:
        """The file of a map; the image is needed for the ground that it is, `note` says how it was made."""
        self.check_size(edge_map.shape)
        edge_map = to_float(edge_map)
        draw = {"image": self._drawn, "numbers": self._numbers, "lines": self._sketch}
        kind = FORMATS[self.format]
        return kind.encode(draw[kind.takes](edge_map, image), note)

    def _drawn(self, edge_map: FloatMap, image: ImageArray | None) -> Image.Image:
        if self.ground == "transparent":
            return as_opacity(self.chosen(edge_map), self.invert)
        if self.ground == "photo":
            assert image is not None
            return over_photo(self.chosen(edge_map), image, self.invert)
        return Image.fromarray(FORMATS[self.format].levels(self.finish(edge_map)))

    def _numbers(self, edge_map: FloatMap, image: ImageArray | None) -> FloatMap:
        return self.finish(edge_map)

    def _sketch(self, edge_map: FloatMap, image: ImageArray | None) -> LineDrawing:
        """Threshold and colors are a matter of the lines, not of the map."""
        transparent = self.ground == "transparent"
        return LineDrawing(
            edge_map, self.threshold, self.invert, self.tolerance, self.min_length, self.stroke, transparent
        )

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
        if self.made_by:
            return f"{self.made_by} --model {model}".encode("ascii", "replace").decode()
        words: dict[str, object] = {
            "--model": model,
            "--thin": self.thin,
            "--threshold": self.threshold,
            "--invert": self.invert,
            "--multi-scale": self.scales is not None,
            "--flip": self.flip,
            "--size": self.size,
            "--ground": self.ground,
            "--format": self.format if SUFFIXES[FORMATS[self.format].suffix] != self.format else None,
        }
        if self._lines:
            words |= {"--tolerance": self.tolerance, "--min-length": self.min_length, "--stroke": self.stroke}
        given = (
            name if word is True else f"{name} {word:g}" if isinstance(word, float) else f"{name} {word}"
            for name, word in words.items()
            if word is not None and word is not False
        )
        return " ".join(["pixeldiff detect", *given]).encode("ascii", "replace").decode()  # as EXIF holds it
