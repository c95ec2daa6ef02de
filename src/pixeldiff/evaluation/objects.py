"""VOC's mAP and COCO's AP of a detector on images with boxes, in the layout of VOC, COCO or YOLO."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pixeldiff.data.lists import find_root
from pixeldiff.data.voc import ORIGIN, check_same_names, list_objects
from pixeldiff.errors import UserError
from pixeldiff.evaluation import Asked, Each, InThreads, Network, Outcome, Progress
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches, Scores, as_json

SPLIT = "val"  # unless another is asked for
SCORED = 0.02  # detections with lower scores hardly change an average precision


@dataclass(frozen=True)
class Options:
    """mAP at IoU .5 as VOC has it, and AP, AP50, AP75 and AP by size as COCO has them, in percent. Difficult objects
    and crowds count neither way."""

    split: str | None = field(
        default=None,
        metadata={
            "help": "VOC: a list, also VOC2007/test; COCO: train, val or a .json file; YOLO: a folder. "
            f"[default: {SPLIT}]"
        },
    )


def prepare(options: Options, asked: Asked) -> Job:
    if asked.data is None:
        raise UserError("where are the images? give --data FOLDER: a VOCdevkit, or one in the layout of COCO or YOLO")
    return Job(find_root(asked.data, ORIGIN), asked.dataset, options.split or SPLIT, asked.threads, asked.each)


@dataclass(frozen=True)
class Job:
    root: Path
    layout: str
    split: str
    streams: int
    each: Each | None = None

    def run(self, network: Network | None, progress: Progress) -> Outcome:
        if network is None:
            raise UserError("one network is scored: give --model NAME or --weights FILE")
        names = network.run.labels
        found = check_same_names(list_objects(self.root, self.split, names, self.layout), names)
        matches, tick = Matches(len(names)), progress(network.name, len(found.images))

        def find(index: int) -> Detections:
            result: Detections = network.run(found.images[index].image, SCORED)
            return result

        waiting: dict[int, Detections] = {}  # matches are added in the order of the images
        added = 0
        for index, detections in (self.each or InThreads(self.streams))(find, range(len(found.images))):
            waiting[index] = detections
            while added in waiting:
                own = found.images[added]
                matches.add(waiting.pop(added), GroundTruth(own.boxes, own.labels, own.ignored))
                added += 1
            tick(1)
        scores = matches.summary()
        objects = sum(len(one.labels) for one in found.images)
        counts = {"images": len(found.images), "objects": objects, "sha256": network.sha256}
        return Outcome(
            [{"name": network.name, "split": self.split, **as_json(scores, names), **counts}],
            table(network.name, scores, names, len(found.images)),
        )


def table(name: str, scores: Scores, names: tuple[str, ...], images: int) -> list[str]:
    """The scores, then the classes; a dash where there is nothing to find."""
    wide = max(7, len(name), *map(len, names))
    titles = ("map50", "ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    heads = ("mAP@.5", "AP", "AP50", "AP75", "small", "medium", "large")
    lines = [f"{'network':{wide}}" + "".join(f"{head:>8}" for head in heads) + "  images"]
    lines.append(f"{name:{wide}}" + "".join(_cell(getattr(scores, title)) for title in titles) + f"{images:10}")
    lines.append("")
    for own, values in zip(names, scores.per_class, strict=True):
        lines.append(f"{own:{wide}}" + _cell(values["map50"]) + _cell(values["ap"]))
    return lines


def _cell(value: float) -> str:
    return f"{'-':>8}" if value != value else f"{value:8.2f}"
