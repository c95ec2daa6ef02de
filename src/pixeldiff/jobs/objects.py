"""`objects` as an operation: boxes drawn on images and videos, and as records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixeldiff import image
from pixeldiff.inference.objects import Found, ObjectDetector
from pixeldiff.jobs import video
from pixeldiff.jobs.operation import ModelSpec, Operation, Output
from pixeldiff.render.detections import draw
from pixeldiff.render.formats import encode_image

_LOSSLESS = (".png", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class FindObjects(Operation[ObjectDetector]):
    model: ModelSpec
    threshold: float
    draws: bool = True
    suffix: str = ""  # of the drawing; by default .jpg, or .png for lossless images
    needs_record: bool = False

    @property
    def provenance(self) -> str:
        command = f"pixeldiff objects --model {self.model.name} --threshold {self.threshold:g}"
        return command + " --no-draw" * (not self.draws)

    def open(self, threads: int, streams: int) -> ObjectDetector:
        detector: ObjectDetector = self.model.open(threads, streams)
        return detector

    def ending(self, source: Path) -> str | None:
        suffix = video.written_as(source) if video.is_clip(source) else self._suffix(source)
        return f"objects{suffix}" if self.draws else None

    def _suffix(self, source: Path) -> str:
        return self.suffix or (".png" if source.suffix.lower() in _LOSSLESS else ".jpg")

    def run(self, model: ObjectDetector, data: bytes, name: str) -> Output:
        objects = model.find(data, self.threshold, name)
        record = {"height": objects.size[0], "width": objects.size[1], "objects": as_records(objects)}
        if not self.draws:
            return Output(record=record)
        drawn = draw(image.as_8_bit(image.decode(data, name)), objects, model.labels)
        return Output({"": encode_image(drawn, self._suffix(Path(name)), self.provenance)}, record)

    def run_video(self, model: ObjectDetector, source: Path, target: Path, streams: int, progress: Any) -> video.Clip:
        def draw_frame(frame: image.ImageArray) -> Any:
            return draw(frame, model(frame, self.threshold), model.labels)

        return video.rewrite_video(source, target, draw_frame, lambda drawn: drawn, streams, progress, self.provenance)


def as_records(objects: Found) -> list[dict[str, Any]]:
    """List objects with COCO's keys."""
    records = []
    for corners, score, label, name in zip(objects.boxes, objects.scores, objects.labels, objects.names, strict=True):
        left, top, right, bottom = (round(float(side), 2) for side in corners)
        bbox = [left, top, round(right - left, 2), round(bottom - top, 2)]
        records.append({"category_id": int(label), "bbox": bbox, "score": round(float(score), 4), "category": name})
    return records
