"""`data corrupt` as an operation: a corrupted copy of an image, or one sheet of all 15 kinds at all 5 severities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from pixeldiff import image as images
from pixeldiff.errors import InputError
from pixeldiff.evaluation.corruptions import KINDS, SEVERITIES, corrupt
from pixeldiff.files import holds
from pixeldiff.jobs.operation import Operation, Output
from pixeldiff.render.formats import encode_image

SHEET_SIDE = 150  # the longer side of an image on the sheet
_COMMAND = "pixeldiff data corrupt --corruption "


@dataclass(frozen=True)
class CorruptImages(Operation[None]):
    corruption: str  # one of KINDS, or "all" for a sheet
    severity: int = 1
    seed: int = 0
    suffix: str = ".png"

    def __post_init__(self) -> None:
        if self.corruption not in (*KINDS, "all"):
            raise InputError(f"unknown --corruption {self.corruption!r}; choose all, {', '.join(KINDS)}")

    @property
    def provenance(self) -> str:
        return f"{_COMMAND}{self.corruption} --severity {self.severity} --seed {self.seed}"

    def open(self, threads: int, streams: int) -> None:
        pass

    def ending(self, source: Path) -> str:
        return ("corruptions" if self.corruption == "all" else f"{self.corruption}-{self.severity}") + self.suffix

    def run(self, model: None, data: bytes, name: str) -> Output:
        image = images.as_8_bit(images.decode(data, name))
        if self.corruption == "all":
            corrupted = draw_sheet(image, self.seed)
        else:
            corrupted = corrupt(image, self.severity, self.corruption, seed=self.seed)
        return Output({"": encode_image(corrupted, self.suffix, self.provenance)})


def is_result(path: Path) -> bool:
    """Return whether this operation made a file: its name allows it, and it holds the command."""
    ending = path.stem.rpartition(".")[2]
    return (ending == "corruptions" or ending.rpartition("-")[0] in KINDS) and holds(path, _COMMAND.encode())


def draw_sheet(image: NDArray[np.uint8], seed: int = 0) -> NDArray[Any]:
    """Draw all kinds (rows) at all severities (columns). The image is shrunk first: later the damage would vanish."""
    small = Image.fromarray(image)
    small.thumbnail((SHEET_SIDE, SHEET_SIDE), Image.Resampling.BOX)
    cell = np.asarray(small)
    height, width = cell.shape[:2]
    margin, gap, line = 124, 4, 22
    columns, rows = len(SEVERITIES), len(KINDS)
    page = Image.new("RGB", (margin + columns * (width + gap), line + rows * (height + gap)), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(13)
    for column, severity in enumerate(SEVERITIES):
        x = margin + column * (width + gap)
        draw.text((x + width / 2, line / 2), f"severity {severity}", "black", font, anchor="mm")
        for row, kind in enumerate(KINDS):
            page.paste(Image.fromarray(corrupt(cell, severity, kind, seed=seed)), (x, line + row * (height + gap)))
    for row, kind in enumerate(KINDS):
        middle = line + row * (height + gap) + height / 2
        draw.text((margin - 8, middle), kind.replace("_", " "), "black", font, anchor="rm")
    return np.asarray(page)
