"""`detect` and `data pseudo-label` as operations: the edges of an image as files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.inference.backends import SIDES
from pixeldiff.inference.edges import EdgeNetwork, Look, detect_edges
from pixeldiff.inference.sizes import ModelInput, prepare
from pixeldiff.jobs import video
from pixeldiff.jobs.operation import ModelSpec, Operation, Output
from pixeldiff.render.drawing import Drawing, check_size, provenance, render
from pixeldiff.render.formats import FORMATS


@dataclass(frozen=True)
class DetectEdges(Operation[EdgeNetwork]):
    model: ModelSpec
    look: Look  # resolved with the drawing
    drawing: Drawing
    smoothing: float = 0.0  # of videos

    @property
    def provenance(self) -> str:
        return provenance(self.model.name, self.look, self.drawing)

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*SIDES, "") if self.look.sides else ("",)

    def open(self, threads: int, streams: int) -> EdgeNetwork:
        network: EdgeNetwork = self.model.open(threads, streams)
        return network

    def ending(self, source: Path) -> str:
        suffix = video.written_as(source) if video.is_clip(source) else f".{FORMATS[self.drawing.format].suffix}"
        return f"edges{suffix}"

    def prepare(self, pixels: image.ImageArray) -> ModelInput:
        """Downscale an image for the network; the maps have the image's size."""
        return prepare(pixels, self.look.max_size)

    def run(self, model: EdgeNetwork, data: bytes, name: str) -> Output:
        pixels = image.decode(data, name)
        height, width = pixels.shape[:2]
        try:
            check_size((height, width), self.look, self.drawing)
        except UserError as error:
            raise type(error)(f"{name}: {error}") from error
        prepared = self.prepare(pixels)
        photo = pixels if self.drawing.background == "photo" else None
        del pixels  # a large image takes no memory while the network runs
        result = detect_edges(model, prepared, self.look)
        files = {part: render(one, self.drawing, photo, self.provenance) for part, one in result.by_name().items()}
        return Output(files, {"height": height, "width": width, "input_size": result.input_size})

    def run_video(self, model: EdgeNetwork, source: Path, target: Path, streams: int, progress: Any) -> video.Clip:
        return video.detect_video(model, source, target, self.look, self.drawing, self.smoothing, streams, progress)


@dataclass(frozen=True)
class PseudoLabel(DetectEdges):
    """Labels have the size at which the network ran."""

    @property
    def provenance(self) -> str:
        scales = ",".join(f"{scale:g}" for scale in self.look.scales)
        flip = "" if self.look.flip else " --no-flip"
        return f"pixeldiff data pseudo-label --teacher {self.model.name} --scales {scales}{flip}"

    def ending(self, source: Path) -> str:
        return "png"

    def prepare(self, pixels: image.ImageArray) -> ModelInput:
        small = prepare(pixels, self.look.max_size).image
        return ModelInput(small, (small.shape[0], small.shape[1]))
