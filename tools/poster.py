"""The poster of the README: what the program makes of three example images.

python tools/poster.py docs/images/poster.jpg
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from pixeldiff import Classifier, EdgeDetector, ObjectDetector
from pixeldiff.edgemap import nms, to_8_bit
from pixeldiff.inference.alignment import align
from pixeldiff.inference.mtcnn import FaceFinder
from pixeldiff.render.detections import draw
from pixeldiff.render.drawing import over_photo
from pixeldiff.render.vector import lines

IMAGES = Path(__file__).parents[1] / "docs/images"
PANEL = (345, 230)
COLUMNS = 4
COLORS = ("#00796b", "#c2185b", "#1976d2", "#f57c00", "#5e35b1")


def vector(edge_map: np.ndarray) -> Image.Image:
    """Every line in a color of its own."""
    height, width = edge_map.shape
    drawing = Image.new("RGB", (2 * width, 2 * height), "white")
    pen = ImageDraw.Draw(drawing)
    for k, (line, _) in enumerate(lines(nms(edge_map), 0.25, 1.0, 12)):
        pen.line([(2 * x, 2 * y) for y, x in line], fill=COLORS[k % len(COLORS)], width=3)
    return drawing


def classes(image: Image.Image) -> Image.Image:
    """The three best guesses of a 1-bit network."""
    shown = image.copy()
    pen, font = ImageDraw.Draw(shown, "RGBA"), ImageFont.load_default(22)
    for k, guess in enumerate(Classifier("binary-cifar100", threads=1)(image, top=3)):
        top = 12 + 40 * k
        pen.rectangle((12, top, 12 + 500 * guess.probability, top + 32), fill=(0, 121, 107, 230))
        pen.text(
            (20, top + 3),
            f"{guess.label} {guess.probability:.0%}",
            fill="white",
            font=font,
            stroke_width=2,
            stroke_fill="black",
        )
    return shown


def boxes(image: Image.Image) -> Image.Image:
    detector = ObjectDetector("cpdc-objects", threads=1)
    return Image.fromarray(draw(np.asarray(image), detector(image), detector.labels))


def face(image: Image.Image) -> Image.Image:
    """The face, its five points, and in the corner what the network for faces sees."""
    found = FaceFinder()(np.asarray(image))[0]
    shown = image.copy()
    pen = ImageDraw.Draw(shown)
    pen.rectangle(found.box, outline="#00e5ff", width=3)
    for x, y in found.points:
        pen.ellipse((x - 3, y - 3, x + 3, y + 3), fill="#00e5ff")
    aligned = Image.fromarray(align(np.asarray(image), found.points))
    shown.paste(aligned, (shown.width - aligned.width, shown.height - aligned.height))
    return shown


def panels() -> Iterator[tuple[str, Image.Image]]:
    coffee, cat, astronaut = (
        Image.open(IMAGES / f"{name}.jpg").convert("RGB") for name in ("coffee", "chelsea", "astronaut")
    )
    astronaut = astronaut.crop((0, 0, 512, 341))
    detector = EdgeDetector("basic")
    edges, whiskers = detector(coffee), detector(cat)
    yield "a photo", coffee
    yield "its edges", Image.fromarray(to_8_bit(edges))
    yield "thin lines", Image.fromarray(255 - to_8_bit(nms(edges)))
    yield "vector lines", vector(edges)
    yield "classes by 1-bit kernels", classes(coffee)
    yield "edges over a photo", over_photo(nms(whiskers), np.asarray(cat))
    yield "boxes round objects", boxes(astronaut)
    yield "a face, found and aligned", face(astronaut)


def poster() -> Image.Image:
    width, height = PANEL
    sheet = Image.new("RGB", (COLUMNS * (width + 10) - 10, 2 * (height + 30) + 10), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(18)
    for k, (words, panel) in enumerate(panels()):
        x, y = (k % COLUMNS) * (width + 10), (k // COLUMNS) * (height + 40)
        sheet.paste(panel.convert("RGB").resize(PANEL, Image.Resampling.LANCZOS), (x, y))
        pen.text((x + 4, y + height + 3), words, fill="black", font=font)
    return sheet


def main() -> None:
    parser = argparse.ArgumentParser(description="The poster of the README.")
    parser.add_argument("file", type=Path)
    poster().save(parser.parse_args().file, quality=85)


if __name__ == "__main__":
    main()
