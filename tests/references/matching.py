"""The specification of native/edges/match.hpp: SciPy's exact solver on the same graph and the same integers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.extras import optional

coo_array = optional("scipy.sparse").coo_array
min_weight_full_bipartite_matching = optional("scipy.sparse.csgraph").min_weight_full_bipartite_matching
cKDTree = optional("scipy.spatial").cKDTree


Mask = NDArray[np.bool_]


def match(prediction: Mask, truth: Mask, radius: float, annotator: int = 0) -> tuple[Mask, int]:
    """The matched predicted pixels and the total of round(100 * distance).

    Most pairs, then least total cost, then the predicted pixels of highest priority. Every predicted pixel may take a
    truth pixel or a private stand-in whose cost outweighs any saving and grows with the priority's rank.
    """
    matched = np.zeros(prediction.shape, dtype=bool)
    predicted, true = np.argwhere(prediction), np.argwhere(truth)
    if not len(predicted) or not len(true):
        return matched, 0
    near = cKDTree(predicted).query_ball_tree(cKDTree(true), radius + 1)
    rows = np.repeat(np.arange(len(predicted)), [len(n) for n in near])
    columns = np.array([t for n in near for t in n], dtype=np.int64)
    squared = ((predicted[rows] - true[columns]) ** 2).sum(1)
    inside = squared <= radius**2
    rows, columns, squared = rows[inside], columns[inside], squared[inside]
    cost = np.floor(100 * np.sqrt(squared) + 0.5).astype(np.int64)

    scale = len(predicted) + 1
    single = (min(len(predicted), len(true)) + 1) * (int(cost.max(initial=0)) + 1) * scale
    assert single < 2**50, "SciPy's solver works on doubles"
    rank = np.argsort(np.argsort(priority(np.flatnonzero(prediction), annotator)))
    everyone = np.arange(len(predicted))
    weights = np.concatenate([cost * scale, single + rank]) + 1  # a stored 0 would be no edge
    graph = coo_array(
        (weights, (np.concatenate([rows, everyone]), np.concatenate([columns, len(true) + everyone]))),
        shape=(len(predicted), len(true) + len(predicted)),
    ).tocsr()
    p, t = min_weight_full_bipartite_matching(graph)
    p, t = p[t < len(true)], t[t < len(true)]
    matched[tuple(predicted[p].T)] = True
    distances = np.sqrt(((predicted[p] - true[t]) ** 2).sum(1))
    return matched, int(np.floor(100 * distances + 0.5).sum())


def priority(pixels: NDArray[np.int64], annotator: int) -> NDArray[np.uint32]:
    mixed = pixels.astype(np.uint32) * np.uint32(0x9E3779B1)
    result: NDArray[np.uint32] = mixed ^ np.uint32(annotator * 0x85EBCA6B & 0xFFFFFFFF)
    return result


def count(mask: Mask, truths: list[Mask], radius: float) -> tuple[int, int, int, int]:
    """(matched truth, matched prediction, all prediction, cost) of one binary map, as _native.count_boundary."""
    results = [match(mask, truth, radius, annotator) for annotator, truth in enumerate(truths)]
    union = np.any([matched for matched, _ in results], axis=0)
    pairs = sum(int(matched.sum()) for matched, _ in results)
    return pairs, int(union.sum()), int(mask.sum()), sum(cost for _, cost in results)
