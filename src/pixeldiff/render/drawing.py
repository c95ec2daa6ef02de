"""Drawings of edge maps: Drawing says what is drawn, `render` turns an EdgeResult into a file's bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from PIL import Image

from pixeldiff.edgemap import thin, to_8_bit
from pixeldiff.errors import InputError
from pixeldiff.image import FloatMap, ImageArray, as_8_bit
from pixeldiff.inference.edges import EdgeResult, Look
from pixeldiff.options import Choice, Number, check, option, options_of
from pixeldiff.render.formats import BACKGROUNDS, FORMATS
from pixeldiff.render.vector import LINE_WIDTH, TOLERANCE, LineDrawing

Background = Literal["black", "white", "transparent", "photo"]

_THINNED = 65535  # pixels a side that suppression, thinning and tracing can hold
_MAGENTA = (255, 0, 255)  # rare in photos, visible on light and dark ones


@dataclass(frozen=True)
class Drawing:
    """What is drawn from an edge map, and in which format."""

    format: str = option(
        Choice(tuple(FORMATS)),
        "png",
        "File format, unless the name of the result says it; png16 has 16 bits, npy and mat hold floats, svg lines.",
        fronts=("cli", "server"),
    )
    threshold: float | None = option(
        Number(0, 1, none=True), None, "Black and white: edges where the map is at least this.", unit="T"
    )
    background: Background = option(
        Choice(BACKGROUNDS), "black", "Background; white and transparent have black lines, photo lines over the image."
    )
    line_width: float = option(
        Number(0, above=True), LINE_WIDTH, "SVG: width of lines, in pixels.", unit="PX", fronts=("cli", "server")
    )
    tolerance: float = option(
        Number(0),
        TOLERANCE,
        "SVG: largest distance of a line from the pixels it stands for, in pixels.",
        unit="PX",
        fronts=("cli", "server"),
    )
    min_length: float = option(
        Number(0),
        0.0,
        "SVG: omit lines with fewer pixels, counting all lines that they touch.",
        unit="PX",
        fronts=("cli", "server"),
    )

    def __post_init__(self) -> None:
        check(self)


def resolve(look: Look, drawing: Drawing) -> tuple[Look, Drawing]:
    """Check that a look and a drawing fit, and complete them: vector lines need suppressed maps."""
    file_format = FORMATS[drawing.format]
    if drawing.background not in file_format.backgrounds:
        formats = [name for name, other in FORMATS.items() if drawing.background in other.backgrounds]
        raise InputError(
            f"a {drawing.background} background needs one of the formats {', '.join(formats)}; {drawing.format} has "
            f"{', '.join(file_format.backgrounds)}"
        )
    return (replace(look, nms=True) if file_format.takes == "lines" else look), drawing


def check_size(size: tuple[int, int], look: Look, drawing: Drawing) -> None:
    """Raise an InputError for an image whose map could not be suppressed or written; before the network runs."""
    limit, what = FORMATS[drawing.format].max_side, f"{drawing.format} files"
    if look.nms and limit >= _THINNED:
        limit, what = _THINNED, "thin lines and svg files"
    if max(size) > limit:
        raise InputError(f"{what} have at most {limit} pixels a side, this has {max(size)}; scale it down first")


def provenance(model: str, look: Look, drawing: Drawing) -> str:
    """Return the command that makes such a file; only ASCII, as EXIF holds it."""
    words = ["pixeldiff detect", f"--model {model}"]
    for instance in (replace(look, sides=False), drawing):
        for opt in options_of(type(instance), front="cli"):
            value = getattr(instance, opt.name)
            if value != opt.default:
                words.append(opt.flag if value is True else f"{opt.flag} {opt.kind.text(value)}")
    return " ".join(words).encode("ascii", "replace").decode()


def binarize(result: EdgeResult, drawing: Drawing) -> FloatMap:
    """Apply the threshold to the maps of a result, if there is one."""
    if drawing.threshold is None:
        return result.maps
    on = result.maps >= drawing.threshold
    if result.look.nms:
        # Suppression leaves some lines two pixels wide; the benchmark thins them after its threshold, too.
        on = np.stack([thin(mask) for mask in on])
    return on.astype(np.float32)


def levels(result: EdgeResult, drawing: Drawing) -> FloatMap:
    """Return the map as gray levels in [0, 1]: bright edges, or dark ones on a white background."""
    edges: FloatMap = binarize(result, drawing)[-1]
    return 1 - edges if drawing.background == "white" else edges


def draw(result: EdgeResult, drawing: Drawing, photo: ImageArray | None = None) -> Image.Image:
    """Draw the edges of a result as an image; the photo is needed if it is the background."""
    if drawing.background == "transparent":
        return as_opacity(binarize(result, drawing)[-1])
    if drawing.background == "photo":
        assert photo is not None
        return over_photo(binarize(result, drawing)[-1], photo)
    return Image.fromarray(FORMATS[drawing.format].levels(levels(result, drawing)))


def as_opacity(edge_map: FloatMap) -> Image.Image:
    """Draw black edges, as opaque as they are strong."""
    opacity = Image.fromarray(to_8_bit(edge_map))
    return Image.merge("LA", (Image.new("L", opacity.size, 0), opacity))


def over_photo(edge_map: FloatMap, photo: ImageArray) -> Image.Image:
    """Draw magenta edges over a photo."""
    drawn = Image.fromarray(as_8_bit(photo))
    drawn.paste(_MAGENTA, mask=Image.fromarray(to_8_bit(edge_map)))
    return drawn


def render(result: EdgeResult, drawing: Drawing, photo: ImageArray | None = None, provenance: str = "") -> bytes:
    """Encode the edges of a result as a file.

    Args:
        result: edges that were detected with a resolved look.
        drawing: what to draw, and the format.
        photo: the image; needed if it is the background.
        provenance: how the file was made; formats that can hold it do.
    """
    check_size(result.size, result.look, drawing)
    file_format = FORMATS[drawing.format]
    if file_format.takes == "lines":
        lines = LineDrawing(
            result.edges,
            drawing.threshold,
            drawing.background,
            drawing.tolerance,
            drawing.min_length,
            drawing.line_width,
        )
        return file_format.encode(lines, provenance)
    if file_format.takes == "numbers":
        return file_format.encode(levels(result, drawing), provenance)
    return file_format.encode(draw(result, drawing, photo), provenance)
