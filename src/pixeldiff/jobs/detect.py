"""`detect` as an operation: the edges of an image as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pixeldiff.detector import SIDES, EdgeDetector
from pixeldiff.jobs.edges import make_edges
from pixeldiff.jobs.operation import ModelSpec, Operation, Output
from pixeldiff.render.drawing import Options
from pixeldiff.render.formats import FORMATS


@dataclass(frozen=True)
class DetectEdges(Operation[EdgeDetector]):
    model: ModelSpec
    options: Options

    @property
    def provenance(self) -> str:
        return self.options.note(self.model.name)

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*SIDES, "") if self.options.side_outputs else ("",)

    def open(self, threads: int, streams: int) -> EdgeDetector:
        detector: EdgeDetector = self.model.open(threads, streams)
        return detector

    def ending(self, source: Path) -> str:
        return f"edges.{FORMATS[self.options.format].suffix}"

    def run(self, model: EdgeDetector, data: bytes, name: str) -> Output:
        return Output(make_edges(model, data, name, self.options))
