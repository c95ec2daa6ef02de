"""Accuracy of classifiers: top-1 and top-5, in percent. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def top_hits(logits: NDArray[np.floating], labels: NDArray[np.integer], k: int) -> int:
    """For how many rows fewer than k classes score higher than the right one."""
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    return int(np.sum(np.sum(logits > own, axis=1) < k))


def accuracy(logits: NDArray[np.floating], labels: NDArray[np.integer]) -> dict[str, float]:
    """top1 and top5 of (N, classes) scores, in percent."""
    return {f"top{k}": 100.0 * top_hits(logits, labels, k) / len(labels) for k in (1, 5)}
