"""Top-1 and top-5 against sorting."""

import numpy as np
import pytest

from pixeldiff.metrics.classes import accuracy, top_hits


def test_top_k_equals_sorting(rng):
    logits, labels = rng.normal(size=(300, 20)), rng.integers(20, size=300)
    order = np.argsort(-logits, axis=1)
    for k in (1, 3, 5):
        assert top_hits(logits, labels, k) == sum(label in row[:k] for label, row in zip(labels, order, strict=True))


def test_percent():
    logits = np.array([[0.0, 1, 2, 3, 4, 5, 6], [6.0, 5, 4, 3, 2, 1, 0]])
    assert accuracy(logits, np.array([6, 6])) == {"top1": 50.0, "top5": 50.0}


@pytest.mark.parametrize("dead", [0.0, np.nan])
def test_a_dead_network_knows_nothing(dead):
    assert accuracy(np.full((4, 10), dead), np.arange(4)) == {"top1": 0.0, "top5": 0.0}


def test_nan_is_no_hit_among_few_classes():
    assert accuracy(np.full((3, 3), np.nan), np.arange(3)) == {"top1": 0.0, "top5": 0.0}
    assert accuracy(np.zeros((3, 3)), np.arange(3)) == {"top1": 0.0, "top5": 100.0}
