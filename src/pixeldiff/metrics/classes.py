"""Accuracy of classifiers: top-1 and top-5, in percent. NumPy only."""

from __future__ import annotations

from collections.abc import Callable

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


def score(
    logits: Callable[[NDArray[np.uint8]], NDArray[np.floating]],
    pictures: Callable[[slice], NDArray[np.uint8]],
    labels: NDArray[np.integer],
    progress: Callable[[int], None] = lambda pictures: None,
    batch: int = 250,
) -> dict[str, float]:
    """top1 and top5, in percent, of a network over `pictures` (N x H x W x 3 of a slice); `progress` hears of each
    batch."""
    found = []
    for start in range(0, len(labels), batch):
        found.append(logits(pictures(slice(start, start + batch))))
        refuse_other_classes(found[-1], labels)
        progress(len(found[-1]))
    return accuracy(np.concatenate(found), labels)
