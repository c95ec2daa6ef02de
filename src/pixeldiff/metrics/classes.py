"""Accuracy of classifiers: top-1 and top-5, in percent. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError


def top_hits(logits: NDArray[np.floating], labels: NDArray[np.integer], k: int) -> int:
    """For how many rows the right class is among the k best. A tie counts against it, and NaN is no hit."""
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    return int(np.sum((np.sum(~(logits < own), axis=1) <= k) & ~np.isnan(own[:, 0])))


def accuracy(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> dict[str, float]:
    """top1 and top5 of (N, classes) scores, in percent."""
    return {f"top{k}": 100.0 * top_hits(logits, labels, k) / len(labels) for k in (1, 5)}


def refuse_other_classes(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> None:
    if logits.shape[1] <= labels.max():
        raise UserError(
            f"the network tells {logits.shape[1]} classes apart, the pictures have {labels.max() + 1} or more; "
            "score it on the data it was trained for"
        )
