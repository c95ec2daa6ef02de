"""Average precision of detections: VOC's (area or 11 points) and COCO's. NumPy only.

VOC: detections of a class in order of their scores. One is correct if the object that it overlaps most does so by at
least half (IoU) and was not detected before, else wrong; detected difficult objects count neither way. AP is the area
under the precision made monotone (2010 on), or its mean at 11 recalls (2007), which are np.arange(0, 1.1, 0.1) as in
the published code: a recall of exactly 0.3 does not reach the fourth, 0.30000000000000004. All detections count.

COCO: IoU .50:.05:.95, at most 100 detections per image and class, precision at 101 recalls; the best object still
free is taken, crowds (here: all ignored objects) take any number and count neither way, their overlap being that of
the detection's own area. Equal to pycocotools with the ignored objects as `iscrowd`.

    table = Matches(classes)
    table.add(detections, truth)         # image by image; tables of parts of a set add up
    table.summary() -> Scores
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError
from pixeldiff.metrics.boxes import area, overlaps

Floats = NDArray[Any]
THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0.0, 1.0, 101)
VOC_RECALLS = np.arange(0.0, 1.1, 0.1)
MOST = 100  # detections per image and class that COCO counts
AREAS = {"all": (0.0, 1e10), "small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, 1e10)}
_LOW, _HIGH = (np.array(side) for side in zip(*AREAS.values(), strict=True))


@dataclass(frozen=True)
class Detections:
    """The detections of one image, in any order."""

    boxes: Floats  # N x 4: left, top, right, bottom
    scores: Floats  # N
    labels: NDArray[np.integer]  # N


@dataclass(frozen=True)
class GroundTruth:
    """The objects of one image."""

    boxes: Floats
    labels: NDArray[np.integer]
    ignored: NDArray[np.bool_]


@dataclass(frozen=True)
class Scores:
    """In percent; nan without objects."""

    map50: float  # VOC, by area
    map50_11: float  # VOC, at 11 recalls
    ap: float  # COCO's, and the following
    ap50: float
    ap75: float
    ap_small: float
    ap_medium: float
    ap_large: float
    per_class: list[dict[str, float]]  # of each class map50 and ap


@dataclass
class _Class:
    """One class: a row per detection, and the number of objects."""

    scores: list[Floats] = field(default_factory=list)
    voc: list[NDArray[np.int8]] = field(default_factory=list)  # 1 correct, 0 wrong, -1 neither
    coco: list[NDArray[np.int8]] = field(default_factory=list)  # the same, N x areas x thresholds; -1 beyond MOST
    objects: int = 0
    objects_by_area: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(AREAS), np.int64))


class Matches:
    """Matched detections of any number of images."""

    def __init__(self, classes: int) -> None:
        if classes < 1:
            raise UserError(f"classes is a number of classes, at least 1, got {classes}")
        self.count = classes
        self.classes: defaultdict[int, _Class] = defaultdict(_Class)  # those that occur
        self.images = 0

    def add(self, detections: Detections, objects: GroundTruth) -> None:
        """Match the detections of one more image."""
        _check_boxes("detections", detections.boxes, detections.labels, detections.scores, self.count)
        _check_boxes("objects", objects.boxes, objects.labels, objects.ignored, self.count)
        self.images += 1
        order = np.argsort(-np.asarray(detections.scores), kind="mergesort")
        boxes, scores = detections.boxes[order], detections.scores[order]
        labels = np.asarray(detections.labels)[order]
        for label in np.union1d(labels, objects.labels):
            rows, same = np.flatnonzero(labels == label), objects.labels == label
            table = self.classes[int(label)]
            self._add_class(table, boxes[rows], scores[rows], objects.boxes[same], objects.ignored[same])

    def _add_class(
        self, table: _Class, boxes: Floats, scores: Floats, truth: Floats, ignored: NDArray[np.bool_]
    ) -> None:
        sizes = area(np.asarray(truth, np.float64))
        outside = ignored[None] | (sizes[None] < _LOW[:, None]) | (sizes[None] > _HIGH[:, None])  # areas x objects
        table.objects += int((~ignored).sum())
        table.objects_by_area += (~outside).sum(1)
        if len(boxes):
            table.scores.append(np.asarray(scores, np.float64))
            table.voc.append(_match_voc(boxes, truth, ignored))
            coco = np.full((len(boxes), len(AREAS), len(THRESHOLDS)), -1, np.int8)
            coco[:MOST] = _match_coco(boxes[:MOST], truth, ignored, outside)
            table.coco.append(coco)

    def merge(self, other: Matches) -> None:
        """Add the images of another table."""
        self.images += other.images
        for label, theirs in other.classes.items():
            mine = self.classes[label]
            mine.scores += theirs.scores
            mine.voc += theirs.voc
            mine.coco += theirs.coco
            mine.objects += theirs.objects
            mine.objects_by_area += theirs.objects_by_area

    def summary(self) -> Scores:
        if not self.images:
            raise UserError("nothing to score: no images were added")
        classes = [self.classes.get(label, _Class()) for label in range(self.count)]
        voc = np.array([[_voc_ap(one, points) for points in (False, True)] for one in classes]).reshape(-1, 2)
        coco = np.stack([_coco_precision(one) for one in classes])  # classes x areas x thresholds
        by_area = dict(zip(AREAS, (_mean(coco[:, k]) for k in range(len(AREAS))), strict=True))
        each = [{"map50": 100 * float(v[0]), "ap": _mean(c[0])} for v, c in zip(voc, coco, strict=True)]
        return Scores(
            map50=_mean(voc[:, 0]),
            map50_11=_mean(voc[:, 1]),
            ap=by_area["all"],
            ap50=_mean(coco[:, 0, 0]),
            ap75=_mean(coco[:, 0, 5]),
            ap_small=by_area["small"],
            ap_medium=by_area["medium"],
            ap_large=by_area["large"],
            per_class=each,
        )


def _check_boxes(what: str, boxes: Floats, labels: NDArray[Any], each: NDArray[Any], classes: int) -> None:
    """Raise an error if boxes, labels and what else there is `each` (scores, flags) cannot be compared."""
    boxes, labels, each = np.asarray(boxes), np.asarray(labels), np.asarray(each)
    if boxes.shape != (len(labels), 4) or labels.ndim != 1 or each.shape != labels.shape:
        raise UserError(f"{what} are N x 4 boxes and N labels, got {boxes.shape}, {labels.shape} and {each.shape}")
    if np.isnan(boxes).any() or np.isnan(each).any():
        raise UserError(f"{what} have NaN among their boxes or scores; check what computed them")
    if (boxes[:, 2:] < boxes[:, :2]).any():
        raise UserError(f"{what} have boxes that end before they begin; give left, top, right, bottom")
    if len(labels) and (labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= classes):
        raise UserError(f"labels of {what} are whole numbers, 0 to {classes - 1}, got {np.unique(labels)[[0, -1]]}")


def _mean(values: Floats) -> float:
    """Return the mean of the numbers that are not nan, in percent."""
    numbers = values[~np.isnan(values)]
    return 100 * float(numbers.mean()) if numbers.size else float("nan")


def _match_voc(boxes: Floats, truth: Floats, ignored: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Match detections in order of their scores: 1 correct, 0 wrong, -1 neither."""
    result = np.zeros(len(boxes), np.int8)
    if not len(truth):
        return result
    iou = overlaps(boxes, truth)
    free = np.ones(len(truth), bool)
    for row, place in enumerate(iou.argmax(1)):
        if iou[row, place] >= 0.5:
            result[row] = -1 if ignored[place] else free[place]
            free[place] = False
    return result


def _match_coco(boxes: Floats, truth: Floats, crowd: NDArray[np.bool_], outside: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Match as `_match_voc` for all areas and thresholds at once, N x areas x thresholds."""
    sizes = area(np.asarray(boxes, np.float64))
    odd = (sizes[:, None] < _LOW) | (sizes[:, None] > _HIGH)  # detections x areas
    shape = len(boxes), len(AREAS), len(THRESHOLDS)
    result = np.zeros(shape, np.int8)
    matched = np.zeros(shape, bool)
    if len(truth):
        iou = overlaps(boxes, truth, crowd)
        free = np.ones((len(AREAS), len(THRESHOLDS), len(truth)), bool)
        for row in np.flatnonzero(iou.max(1) >= THRESHOLDS[0]):
            _take(iou[row], crowd, outside, free, result[row], matched[row])
    result[~matched & np.broadcast_to(odd[:, :, None], shape)] = -1
    return result


def _take(
    iou: Floats,
    crowd: NDArray[np.bool_],
    outside: NDArray[np.bool_],
    free: NDArray[np.bool_],
    result: NDArray[np.int8],
    matched: NDArray[np.bool_],
) -> None:
    """Match one detection: to the best free object that counts, or else to the best that does not."""
    enough = iou >= np.minimum(THRESHOLDS, 1 - 1e-10)[:, None]
    fits = enough[None] & (free | crowd)  # areas x thresholds x objects
    counts = fits & ~outside[:, None]
    any_counts: NDArray[np.bool_] = np.any(counts, axis=-1)
    among = np.where(any_counts[..., None], counts, fits)
    value = np.where(among, iou, -1.0)[..., ::-1]  # of equals the last one, as the reference has it
    place = len(iou) - 1 - value.argmax(-1)
    matched[:] = among.any(-1)
    result[:] = np.where(any_counts, 1, np.where(matched, -1, 0))
    areas, thresholds = np.nonzero(matched)
    free[areas, thresholds, place[areas, thresholds]] = False


def _ranked(table: _Class, rows: Sequence[NDArray[np.int8]]) -> NDArray[np.int8]:
    """Concatenate the rows of all images, best score first."""
    order = np.argsort(-np.concatenate(table.scores), kind="mergesort")
    result: NDArray[np.int8] = np.concatenate(rows)[order]
    return result


def _voc_ap(table: _Class, eleven_points: bool) -> float:
    if not table.objects:
        return float("nan")
    if not table.scores:
        return 0.0
    state = _ranked(table, table.voc)
    right, wrong = np.cumsum(state == 1), np.cumsum(state == 0)
    recall = right / table.objects
    precision = right / np.maximum(right + wrong, 1)
    if eleven_points:
        return float(np.mean([precision[recall >= point].max(initial=0.0) for point in VOC_RECALLS]))
    recall = np.concatenate([[0.0], recall, [1.0]])
    envelope = np.maximum.accumulate(np.concatenate([[0.0], precision, [0.0]])[::-1])[::-1]
    return float(((recall[1:] - recall[:-1]) * envelope[1:]).sum())


def _coco_precision(table: _Class) -> Floats:
    """Return AP per area and threshold; nan for areas without objects."""
    result = np.full((len(AREAS), len(THRESHOLDS)), np.nan)
    present = table.objects_by_area > 0
    result[present] = 0.0
    if not table.scores:
        return result
    state = _ranked(table, table.coco)
    for a in np.flatnonzero(present):
        right, wrong = np.cumsum(state[:, a] == 1, 0), np.cumsum(state[:, a] == 0, 0)
        recall = right / table.objects_by_area[a]
        precision = right / (right + wrong + np.spacing(1))
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        for t in range(len(THRESHOLDS)):
            places = np.searchsorted(recall[:, t], RECALLS)
            result[a, t] = np.append(envelope[:, t], 0.0)[places].mean()
    return result


def as_json(scores: Scores, names: Sequence[str]) -> dict[str, Any]:
    """Return the scores as JSON values, rounded to a ten-thousandth of a percent; nan becomes null."""
    plain = {
        key: None if np.isnan(value) else round(value, 4) for key, value in vars(scores).items() if key != "per_class"
    }
    each = {
        name: {key: None if np.isnan(v) else round(v, 4) for key, v in own.items()}
        for name, own in zip(names, scores.per_class, strict=True)
    }
    return {**plain, "per_class": each}
