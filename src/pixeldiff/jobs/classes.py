"""`classify` as an operation: the likeliest classes of an image as a record."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from pixeldiff import image
from pixeldiff.inference.classes import Classifier
from pixeldiff.jobs.operation import ModelSpec, Operation, Output


@dataclass(frozen=True)
class Classify(Operation[Classifier]):
    model: ModelSpec
    top: int

    @property
    def provenance(self) -> str:
        return f"pixeldiff classify --model {self.model.name} --top {self.top}"

    def open(self, threads: int, streams: int) -> Classifier:
        classifier: Classifier = self.model.open(threads, streams)
        return classifier

    def ending(self, source: Path) -> None:
        return None

    def run(self, model: Classifier, data: bytes, name: str) -> Output:
        best = model(image.decode(data, name), self.top)
        return Output(record={"classes": [asdict(prediction) for prediction in best]})
