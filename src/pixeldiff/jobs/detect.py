"""`detect` as an operation: the edges of an image as a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pixeldiff.inference.backends import SIDES
from pixeldiff.inference.edges import EdgeNetwork
from pixeldiff.jobs.edges import EdgeFiles, make_edges
from pixeldiff.jobs.operation import ModelSpec, Operation, Output
from pixeldiff.render.formats import FORMATS


@dataclass(frozen=True)
class DetectEdges(Operation[EdgeNetwork]):
    model: ModelSpec
    wanted: EdgeFiles

    @property
    def provenance(self) -> str:
        return self.wanted.provenance(self.model.name)

    @property
    def parts(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*SIDES, "") if self.wanted.look.sides else ("",)

    def open(self, threads: int, streams: int) -> EdgeNetwork:
        network: EdgeNetwork = self.model.open(threads, streams)
        return network

    def ending(self, source: Path) -> str:
        return f"edges.{FORMATS[self.wanted.drawing.format].suffix}"

    def run(self, model: EdgeNetwork, data: bytes, name: str) -> Output:
        return Output(make_edges(model, data, name, self.wanted))
