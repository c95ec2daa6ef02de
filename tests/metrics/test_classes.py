"""Top-1 and top-5 against sorting."""

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.metrics.classes import accuracy, top_hits


def test_top_k_equals_sorting(rng):
    logits, labels = rng.normal(size=(300, 20)), rng.integers(20, size=300)
    order = np.argsort(-logits, axis=1)
    for k in (1, 3, 5):
        assert top_hits(logits, labels, k) == sum(label in row[:k] for label, row in zip(labels, order, strict=True))


def test_percent():
    logits = np.array([[0.0, 1, 2, 3, 4, 5, 6], [6.0, 5, 4, 3, 2, 1, 0]])
    assert accuracy(logits, np.array([6, 6])) == {"top1": 50.0, "top5": 50.0}


def test_a_dead_network_knows_nothing():
    assert accuracy(np.zeros((4, 10)), np.arange(4)) == {"top1": 0.0, "top5": 0.0}
    assert accuracy(np.zeros((3, 3)), np.arange(3)) == {"top1": 0.0, "top5": 100.0}


LOGITS = np.eye(4, 10)


@pytest.mark.parametrize(
    ("logits", "labels", "words"),
    [
        (np.where(LOGITS > 0, np.nan, LOGITS), np.arange(4), "NaN"),
        (LOGITS, np.array([0, 1, 2, -1]), "from 0, got int64 values from -1"),
        (LOGITS, np.array([0, 1, 2, 10]), "10 classes"),
        (LOGITS, np.arange(4) / 1, "got float64"),
        (LOGITS[:, :1], np.zeros(4, int), "two or more classes"),
        (LOGITS[:0], np.zeros(0, int), r"got \(0, 10\)"),
        (LOGITS, np.arange(3), "a label for each"),
    ],
)
def test_what_has_no_accuracy_is_an_error(logits, labels, words):
    for score in (accuracy, lambda *given: top_hits(*given, 1)):
        with pytest.raises(UserError, match=words):
            score(logits, labels)
