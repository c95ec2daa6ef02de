"""mAP of detectors on corrupted images of VOC's validation set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pixeldiff import image
from pixeldiff.data.lists import find_within
from pixeldiff.data.voc import ORIGIN, Objects, check_same_names, list_objects
from pixeldiff.evaluation.objects import SCORED
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches
from pixeldiff.robustness import Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.results import CLEAN, damage

LAYOUT = Layout(
    scores=("map50", "ap"),
    label="mAP@.5",
    axis="mAP@.5 (%)",
    digits=1,
    width=8,
    kinds=tuple(kind for kind in KINDS if kind != "elastic_transform"),  # it moves objects out of their boxes
    blocks=(("noise", "blur"), ("digital", "weather")),
)


def prepare(data: Path | None, seed: int, limit: int | None, threads: int) -> Scorer:
    """The validation images of a VOCdevkit."""
    found = list_objects(find_within(data, "voc2012", ORIGIN), "val")
    return Scorer(Objects(found.names, found.images[:limit]), seed, threads)


@dataclass
class Scorer:
    objects: Objects
    seed: int = 0
    streams: int = 1
    source: str = "VOC val"
    kinds: Sequence[str] = LAYOUT.kinds
    has_clean: bool = True

    @property
    def images(self) -> int:
        return len(self.objects.images)

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        truths = [check_same_names(self.objects, network.labels).images for network in networks.values()]
        matches = [Matches(len(network.labels)) for network in networks.values()]

        def one(number: int) -> list[Detections]:
            path = self.objects.images[number].image
            # A clean file is decoded as in `pixeldiff eval`, a corrupted image is an array of full size.
            source = path if condition == CLEAN else damage(image.read(path), condition, self.seed + number)
            return [network(source, SCORED) for network in networks.values()]

        pool = ThreadPoolExecutor(self.streams)
        try:
            for number, found in enumerate(pool.map(one, range(self.images))):
                for table, own, detections in zip(matches, truths, found, strict=True):
                    truth = own[number]
                    table.add(detections, GroundTruth(truth.boxes, truth.labels, truth.ignored))
                tick(1)
        finally:
            pool.shutdown(cancel_futures=True)  # a stopped run does not wait for the images not begun
        summaries = [table.summary() for table in matches]
        return {name: {"map50": s.map50, "ap": s.ap} for name, s in zip(networks, summaries, strict=True)}
