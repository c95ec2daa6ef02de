"""Accuracy of classifiers: top-1 and top-5, in percent. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError


def top_hits(logits: NDArray[np.floating], labels: NDArray[np.integer], k: int) -> int:
    """Count the rows whose correct class is among the k best. Ties count as wrong."""
    check(logits, labels)
    correct = np.take_along_axis(logits, labels[:, None], axis=1)
    return int(np.sum(np.sum(logits >= correct, axis=1) <= k))


def accuracy(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> dict[str, float]:
    """Return top1 and top5 of logits (N, classes), in percent."""
    return {f"top{k}": 100.0 * top_hits(logits, labels, k) / len(labels) for k in (1, 5)}


def check(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
    """Raise an error if rows of logits and their labels cannot be compared."""
    if logits.ndim != 2 or logits.shape[1] < 2 or not len(labels) or labels.shape != logits.shape[:1]:
        raise UserError(
            f"accuracy needs rows of two or more classes and a label for each, got {logits.shape} and {labels.shape}"
        )
    if np.isnan(logits).any():
        raise UserError("the model's logits are NaN; train it again with a lower learning rate")
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise UserError(f"labels are numbers of classes from 0, got {labels.dtype} values from {labels.min()}")
    if logits.shape[1] <= labels.max():
        raise UserError(
            f"the model has {logits.shape[1]} classes, the images have {labels.max() + 1} or more; score it on the "
            "classes that it was trained for"
        )
