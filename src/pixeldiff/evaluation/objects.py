"""VOC's mAP and COCO's AP of detectors on images with boxes, in the layout of VOC, COCO or YOLO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pixeldiff import image
from pixeldiff.data.voc import Objects, check_same_names
from pixeldiff.evaluation.benchmark import CLEAN, Benchmark, Condition, damage
from pixeldiff.image import ImageLike
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches, as_json

MIN_SCORE = 0.02  # detections with lower scores hardly change an average precision


@dataclass(frozen=True)
class ObjectSample:
    image: ImageLike
    objects: GroundTruth


class ObjectBenchmark(Benchmark[ObjectSample, Detections, Matches]):
    """Images with objects. The models have `labels` and `model(image, threshold)`."""

    task = "objects"

    def __init__(self, objects: Objects, limit: int | None = None, source: str = "objects") -> None:
        self.names, self.images, self.source = objects.names, objects.images[:limit], source
        self.checked = {tuple(self.names)}  # labels of models that know all classes of the images

    def __len__(self) -> int:
        return len(self.images)

    def load(self, index: int, condition: Condition = CLEAN, seed: int = 0) -> ObjectSample:
        labeled = self.images[index]
        # A detector decodes a clean file near its input size; a corrupted image is an array of full size.
        source = labeled.image if condition == CLEAN else damage(image.read(labeled.image), condition, seed)
        return ObjectSample(source, GroundTruth(labeled.boxes, labeled.labels, labeled.ignored))

    def predict(self, model: Any, batch: Sequence[ObjectSample]) -> list[Detections]:
        return [self._renumber(model(sample.image, MIN_SCORE), model.labels) for sample in batch]

    def _renumber(self, detections: Detections, labels: Sequence[str]) -> Detections:
        """Number the classes as the data set does; detections of other classes are dropped."""
        if tuple(labels) == tuple(self.names):
            return detections
        if tuple(labels) not in self.checked:
            check_same_names(Objects(self.names, self.images), labels)
            self.checked.add(tuple(labels))
        numbers = {name: number for number, name in enumerate(self.names)}
        renumbered = np.array([numbers.get(name, -1) for name in labels], np.int64)[detections.labels]
        known = renumbered >= 0
        return Detections(detections.boxes[known], detections.scores[known], renumbered[known])

    def score(self, prediction: Detections, sample: ObjectSample) -> Matches:
        matches = Matches(len(self.names))
        matches.add(prediction, sample.objects)
        return matches

    def summarize(self, counts: Sequence[Matches]) -> dict[str, Any]:
        matches = Matches(len(self.names))
        for one in counts:
            matches.merge(one)
        objects = sum(len(labeled.labels) for labeled in self.images)
        return {**as_json(matches.summary(), self.names), "images": len(self.images), "objects": objects}
