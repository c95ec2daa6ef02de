"""Detections drawn on an image: a color per class, lines and letters that scale with the image."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pixeldiff.image import ImageArray, as_8_bit
from pixeldiff.metrics.objects import Detections

Color = tuple[int, int, int]
_GOLDEN = 0.61803398875  # steps of this part of the color circle keep neighbors apart
_LINE, _LETTER = 1 / 220, 1 / 32  # of the mean side


def color_of(label: int) -> Color:
    """Return the color of a class: bright, different for neighboring labels, the same in every image."""
    lightness = (0.62, 0.5, 0.7)[label % 3]
    red, green, blue = colorsys.hls_to_rgb(label * _GOLDEN % 1.0, lightness, 1.0)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw(image: ImageArray, detections: Detections, names: Sequence[str]) -> NDArray[np.uint8]:
    """Draw boxes with names and scores in percent on a copy of the image, the best ones on top."""
    canvas = Image.fromarray(as_8_bit(image)).copy()
    pen = ImageDraw.Draw(canvas)
    side = (canvas.width * canvas.height) ** 0.5
    line = max(2, round(side * _LINE))
    font = ImageFont.load_default(max(10.0, side * _LETTER))
    for index in np.argsort(detections.scores, kind="stable"):
        label = int(detections.labels[index])
        left, top, right, bottom = (round(float(v)) for v in detections.boxes[index])
        right, bottom = max(right - 1, left), max(bottom - 1, top)
        color = color_of(label)
        pen.rectangle((left, top, right, bottom), outline=color, width=line)
        _tag(
            pen, f"{names[label]} {100 * float(detections.scores[index]):.0f} %", (left, top), color, font, canvas.size
        )
    return np.asarray(canvas)


def _tag(
    pen: ImageDraw.ImageDraw, text: str, corner: tuple[int, int], color: Color, font: object, size: tuple[int, int]
) -> None:
    """Write text above the corner of a box, or inside the box if there is no space; never outside the image."""
    pad = 2
    _, _, right, bottom = pen.textbbox((0, 0), text, font=font)  # type: ignore[arg-type]
    width, height = round(right) + 2 * pad, round(bottom) + 2 * pad
    left = max(0, min(corner[0], size[0] - width))
    top = corner[1] - height if corner[1] >= height else corner[1]
    pen.rectangle((left, top, left + width, top + height), fill=color)
    bright = 0.299 * color[0] + 0.587 * color[1] + 0.114 * color[2] > 120
    pen.text((left + pad, top + pad), text, fill=(0, 0, 0) if bright else (255, 255, 255), font=font)  # type: ignore[arg-type]
