"""Overlaps and non-maximum suppression of boxes, against their definitions."""

import numpy as np
import pytest

from pixeldiff.metrics import boxes as module
from pixeldiff.metrics.boxes import area, overlaps, suppress
from tests.references.objects import iou


def random_boxes(rng, count):
    corner = rng.uniform(0, 60, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(5, 40, (count, 2))], 1).astype(np.float32)


def test_overlaps_are_those_of_the_definition(rng):
    first, second = random_boxes(rng, 7), random_boxes(rng, 5)
    np.testing.assert_allclose(overlaps(first, second), [[iou(a, b) for b in second] for a in first], rtol=1e-6)
    crowd = np.array([True, False, True, False, False])
    shared = overlaps(first, second) * (area(first)[:, None] + area(second)) / (1 + overlaps(first, second))
    inside = shared / area(first)[:, None]
    np.testing.assert_allclose(overlaps(first, second, crowd)[:, crowd], inside[:, crowd], rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 16, 256])
@pytest.mark.parametrize("of_smaller", [False, True])
def test_suppression_is_its_definition(rng, monkeypatch, rows, of_smaller):
    monkeypatch.setattr(module, "_ROWS", rows)
    boxes = random_boxes(rng, 80)
    labels = rng.integers(0, 3, 80)

    def overlap(one, other):
        width, height = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
        shared = max(width, 0) * max(height, 0)
        first, second = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
        return shared / (min(first, second) if of_smaller else first + second - shared)

    for classes in (None, labels):
        kept = []
        for k in range(80):
            rivals = [j for j in kept if classes is None or classes[j] == classes[k]]
            if all(overlap(boxes[j], boxes[k]) <= 0.4 for j in rivals):
                kept.append(k)
        assert suppress(boxes, 0.4, classes, of_smaller=of_smaller).tolist() == kept
    assert suppress(boxes[:0], 0.4, labels[:0]).tolist() == []
