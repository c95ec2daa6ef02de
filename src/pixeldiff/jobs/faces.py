"""`faces align` as an operation: the face of an image in one place, 112 x 96, as PNG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pixeldiff import image
from pixeldiff.data.landmarks import Points
from pixeldiff.errors import InputError, UserError
from pixeldiff.inference.alignment import FaceAligner
from pixeldiff.jobs.operation import Operation, Output
from pixeldiff.render.formats import encode_image


@dataclass(frozen=True)
class AlignFaces(Operation[FaceAligner]):
    face: str | None
    landmarks: Mapping[str, Points] | None = None  # five points by the path of the image
    landmarks_file: Path | None = None

    @property
    def provenance(self) -> str:
        face = f" --face {self.face}" if self.face else ""
        return "pixeldiff faces align" + face + (f" --landmarks {self.landmarks_file}" if self.landmarks_file else "")

    def open(self, threads: int, streams: int) -> FaceAligner:
        aligner = FaceAligner(self.face, threads)
        if self.landmarks is None:
            aligner.open()  # raises if it is not installed
        return aligner

    def ending(self, source: Path) -> str:
        return "png"

    def run(self, model: FaceAligner, data: bytes, name: str) -> Output:
        points = None if self.landmarks is None else self.landmarks.get(name)
        if self.landmarks is not None and points is None:
            raise InputError(f"{name} is not in {self.landmarks_file}; add its five points, or omit --landmarks")
        pixels = image.decode(data, name)
        try:
            aligned = model(pixels, points)
        except UserError as error:
            raise InputError(f"{name}: {error}") from error
        several = f"{name} has {aligned.rivals + 1} faces, took one near the middle; choose with --face"
        return Output(
            {"": encode_image(aligned.image, ".png", self.provenance)},
            note=several if aligned.rivals and not self.face else "",
        )
