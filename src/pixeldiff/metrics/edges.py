"""The boundary benchmark of the Berkeley Segmentation Data Set: edge maps against human annotators.

    counts = [evaluate_image(edge_map, targets) for edge_map, targets in images]
    summary = summarize(counts)                      # .ods .ois .ap .r50 .curve

Per image: non-maximum suppression, 8 bit, thresholds k / (K + 1) tested with >=, thinning, and a one-to-one
matching with each annotator within max_dist * image diagonal: most pairs, then least distance (native/edges/match.hpp).
Recall counts the annotators' pixels; precision counts predicted pixels that any annotator confirms. Counts add up over
images: sum(counts) is the data set.

Martin, Fowlkes, Malik, "Learning to detect natural image boundaries using local brightness, color, and texture
cues", PAMI 2004; Arbelaez et al., "Contour detection and hierarchical image segmentation", PAMI 2011.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native, edgemap
from pixeldiff.errors import UserError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BSDS_MAX_DIST = 0.0075  # of other data sets: data/edges.py


def threshold_values(thresholds: int | Sequence[float]) -> Floats:
    """Return K evenly spaced thresholds k / (K + 1), or the given values."""
    if isinstance(thresholds, int):
        if thresholds < 1:
            raise UserError(f"thresholds is a number of thresholds, at least 1, got {thresholds}")
        return np.arange(1, thresholds + 1) / (thresholds + 1)
    values = np.asarray(thresholds, dtype=np.float64)
    if values.ndim != 1 or not values.size or not ((values >= 0) & (values <= 1)).all():
        raise UserError(f"thresholds is a number of thresholds or values from 0 to 1, got {thresholds!r}")
    return values


def lowest_levels(values: Floats) -> list[int]:
    """Return the lowest 8-bit level that passes each threshold: level / 255 >= threshold, as in exact arithmetic.

    The small step back undoes rounding: level 85 passes 1/3.
    """
    return [max(1, int(np.ceil(255 * value - 1e-9))) for value in values]


@dataclass(frozen=True)
class Counts:
    """Counts of one image or of a sum of images, one entry per threshold."""

    thresholds: Floats
    matched_truth: Ints
    all_truth: Ints
    matched_prediction: Ints
    all_prediction: Ints

    def __add__(self, other: Counts) -> Counts:
        if not np.array_equal(self.thresholds, other.thresholds):
            raise UserError("counts of different thresholds do not add up; evaluate all images with the same ones")
        return Counts(
            self.thresholds,
            self.matched_truth + other.matched_truth,
            self.all_truth + other.all_truth,
            self.matched_prediction + other.matched_prediction,
            self.all_prediction + other.all_prediction,
        )

    def __radd__(self, other: int) -> Counts:
        return self  # sum() starts from 0

    @property
    def recall(self) -> Floats:
        return self.matched_truth / np.maximum(self.all_truth, 1)

    @property
    def precision(self) -> Floats:
        return self.matched_prediction / np.maximum(self.all_prediction, 1)

    @property
    def f(self) -> Floats:
        return f_measure(self.recall, self.precision)


def evaluate_image(
    edge_map: NDArray[Any],
    targets: Sequence[NDArray[Any]],
    thresholds: int | Sequence[float] = 99,
    max_dist: float = BSDS_MAX_DIST,
    nms: bool = True,
    *,
    nms_radius: int = 1,
    thin: bool = True,
) -> Counts:
    """Count the matches of one map, of any type that `edgemap.to_float` takes, with the masks of its annotators.

    CEval is nms=False, thin=False.
    """
    values = threshold_values(thresholds)
    _check_sizes(edge_map, targets)
    if not 0 <= max_dist <= 1:
        raise UserError(f"max_dist is a fraction of the image diagonal, 0 to 1, got {max_dist}")
    levels = edgemap.to_8_bit(edgemap.nms(edge_map, nms_radius) if nms else edge_map)
    stack = np.stack([np.ascontiguousarray(edgemap.to_mask(target, "targets")) for target in targets]).view(np.uint8)
    radius = max_dist * float(np.hypot(*levels.shape))
    matched_truth, matched_prediction, all_prediction, _ = _native.count_boundary(
        levels, lowest_levels(values), thin, stack, radius
    )
    all_truth = np.full(len(values), np.count_nonzero(stack), dtype=np.int64)
    return Counts(values, matched_truth, all_truth, matched_prediction, all_prediction)


def _check_sizes(edge_map: NDArray[Any], targets: Sequence[NDArray[Any]]) -> None:
    edgemap.check(edge_map)
    if not len(targets):
        raise UserError("targets is empty; expected one mask per annotator")
    for target in targets:
        if target.shape != edge_map.shape:
            raise UserError(f"map and target differ in size: {_size(edge_map.shape)} and {_size(target.shape)}")


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) + " (height x width)"


def f_measure(recall: Floats, precision: Floats) -> Floats:
    total = recall + precision
    result: Floats = np.divide(2 * recall * precision, total, out=np.zeros_like(total), where=total > 0)
    return result


@dataclass(frozen=True)
class Point:
    """One place on a precision-recall curve."""

    threshold: float
    recall: float
    precision: float
    f: float


@dataclass(frozen=True)
class Summary:
    """The scores of a data set. ODS: one threshold for all. OIS: the best threshold of each image."""

    ods: float
    ois: float
    ap: float
    r50: float
    ods_point: Point
    ois_recall: float
    ois_precision: float
    curve: Counts  # the sum over images, with .recall, .precision and .f
    images: tuple[Point, ...]  # the best point of each


def summarize(counts: Iterable[Counts]) -> Summary:
    """Compute the scores from the counts of each image."""
    images = list(counts)
    if not images:
        raise UserError("nothing to summarize: no images were evaluated")
    total: Counts = sum(images)  # type: ignore[assignment]
    if not total.all_truth.any():
        raise UserError("no label marks an edge; check what wrote the labels: black, and bright at edges")
    best = best_point(total)
    # OIS: the first best threshold of each image, not interpolated; its counts are summed.
    chosen = [int(np.argmax(c.f)) for c in images]
    matched_truth, all_truth, matched_prediction, all_prediction = (
        sum(int(getattr(c, name)[k]) for c, k in zip(images, chosen, strict=True))
        for name in ("matched_truth", "all_truth", "matched_prediction", "all_prediction")
    )
    ois_recall, ois_precision = matched_truth / max(all_truth, 1), matched_prediction / max(all_prediction, 1)
    return Summary(
        ods=best.f,
        ois=float(f_measure(np.array(ois_recall), np.array(ois_precision))),
        ap=average_precision(total.recall, total.precision),
        r50=recall_at_half_precision(total.recall, total.precision),
        ods_point=best,
        ois_recall=ois_recall,
        ois_precision=ois_precision,
        curve=total,
        images=tuple(best_point(c) for c in images),
    )


def best_point(counts: Counts) -> Point:
    """Return the point with the largest F, of 100 points between each two neighboring thresholds."""
    part = np.linspace(0, 1, 100)[None, :]

    def between(values: Floats) -> Floats:
        ends = (values[:-1], values[1:]) if len(values) > 1 else (values, values)
        line: Floats = (ends[0][:, None] * (1 - part) + ends[1][:, None] * part).ravel()
        return line

    threshold, recall, precision = between(counts.thresholds), between(counts.recall), between(counts.precision)
    f = f_measure(recall, precision)
    k = int(np.argmax(f))
    return Point(float(threshold[k]), float(recall[k]), float(precision[k]), float(f[k]))


def average_precision(recall: Floats, precision: Floats) -> float:
    """Return the sum of precision interpolated at recall 0, 0.01 .. 1 (0 outside the measured range), / 100."""
    unique, first = np.unique(recall, return_index=True)
    if len(unique) < 2:
        return 0.0
    return float(np.interp(np.arange(101) / 100, unique, precision[first], left=0, right=0).sum() / 100)


def recall_at_half_precision(recall: Floats, precision: Floats) -> float:
    """Return recall at precision 0.5; at the lowest measured precision if that is higher; 0 if all are lower."""
    unique, first = np.unique(precision, return_index=True)
    return float(np.interp(max(0.5, unique[0]), unique, recall[first], right=0))


def crispness(edge_map: NDArray[Any]) -> float:
    """Return the fraction of a map's strength on pixels that survive non-maximum suppression."""
    edge_map = edgemap.to_float(edge_map)
    total = float(np.sum(edge_map, dtype=np.float64))
    return float(np.sum(edge_map[edgemap.nms(edge_map) > 0], dtype=np.float64)) / total if total > 0 else 0.0
