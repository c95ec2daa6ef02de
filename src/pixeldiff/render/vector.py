"""Edges as vector lines: a thin map traced to polylines, simplified, written as SVG.

1. Pixels of at least `threshold` are thinned to lines one pixel wide (Guo and Hall).
2. Linked pixels are traced to chains between ends and junctions, and to loops (native/edges/trace.hpp).
3. Each chain is simplified: no pixel lies further than `tolerance` from the line that replaces it (Ramer 1972; Douglas
   and Peucker 1973). All chains are split at once, in a few passes over the pixels.
4. Specks are omitted: chains of fewer than three pixels, and linked chains with fewer than `min_length` in total.
5. A line's opacity is the mean strength of its pixels, in 16 steps, one group of the file per step.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native
from pixeldiff.edgemap import thin, to_float
from pixeldiff.image import FloatMap

THRESHOLD = 0.2  # weaker lines are mostly texture
TOLERANCE = 1.0  # pixels
_STEPS = 16
LINE_WIDTH = 1.0  # pixels
_SHORTEST = 3  # pixels; shorter chains are specks and spurs

Points = NDArray[np.int64]  # n x 2, row and column


@dataclass(frozen=True)
class LineDrawing:
    """A suppressed map and how its lines are drawn: white on black, black on white or on nothing."""

    edge_map: FloatMap
    threshold: float | None = None
    background: str = "black"
    tolerance: float = TOLERANCE
    min_length: float = 0
    line_width: float = LINE_WIDTH


def encode_svg(drawing: LineDrawing, provenance: str = "") -> bytes:
    """Encode lines as an SVG file of the map's size."""
    height, width = drawing.edge_map.shape
    ink = "#fff" if drawing.background == "black" else "#000"
    paper = {"black": "#000", "white": "#fff"}.get(drawing.background)
    background = f'<rect width="{width}" height="{height}" fill="{paper}"/>\n' if paper else ""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">\n'
        f"{f'<desc>{html.escape(provenance)}</desc>' if provenance else ''}{background}"
        # Pixel centers lie at half coordinates.
        f'<g transform="translate(.5 .5)" fill="none" stroke="{ink}" stroke-width="{drawing.line_width:g}" '
        'stroke-linecap="round" stroke-linejoin="round">\n'
    ]
    threshold = THRESHOLD if drawing.threshold is None else drawing.threshold
    groups: dict[int, list[str]] = {}
    for line, strength in lines(drawing.edge_map, threshold, drawing.tolerance, drawing.min_length):
        step = min(_STEPS, max(1, round(strength * _STEPS)))
        groups.setdefault(step, []).append(_path(line))
    for step in sorted(groups):
        paths = "".join(groups[step])
        parts.append(f'<path stroke-opacity="{step / _STEPS:g}" d="{paths}"/>\n')
    return "".join([*parts, "</g>\n</svg>\n"]).encode()


def lines(
    edge_map: FloatMap, threshold: float, tolerance: float, min_length: float = 0
) -> Iterator[tuple[list[list[int]], float]]:
    """Yield the simplified polylines of a map, each a list of (row, column), with the mean strength of its pixels."""
    edge_map = to_float(edge_map)
    chosen = edge_map >= max(threshold, np.finfo(np.float32).tiny)  # a map's zeros are never edges
    pixels, starts = _native.trace(thin(chosen).view(np.uint8))
    long = np.diff(starts) >= _SHORTEST
    if min_length > _SHORTEST:
        long &= _linked_length(pixels, starts) >= min_length
    if not long.any():
        return
    pixels = pixels[np.repeat(long, np.diff(starts))]
    starts = np.concatenate([[0], np.cumsum(np.diff(starts)[long])])
    points = np.stack(np.divmod(pixels.astype(np.int64), edge_map.shape[1]), axis=1)
    strengths = np.add.reduceat(edge_map.ravel()[pixels], starts[:-1], dtype=np.float64) / np.diff(starts)
    kept = simplify(points, starts, tolerance)
    corners, bounds = points[kept].tolist(), np.searchsorted(kept, starts).tolist()
    for begin, end, strength in zip(bounds, bounds[1:], strengths.tolist(), strict=False):
        yield corners[begin:end], strength


def _linked_length(pixels: NDArray[np.int32], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count for each chain the pixels of all chains linked to it; chains meet in their end pixels."""
    lengths = np.diff(starts)
    ends = np.stack([pixels[starts[:-1]], pixels[starts[1:] - 1]], axis=1)
    _, places = np.unique(ends, return_inverse=True)
    places = places.reshape(ends.shape)
    label = np.arange(places.max(initial=-1) + 1)
    while True:  # each place takes the smallest label of its chains, then that label's label: few passes for long rows
        least = label[places].min(axis=1)
        new = label.copy()
        np.minimum.at(new, places, least[:, None])
        new = new[new]
        if np.array_equal(new, label):
            break
        label = new
    labels = label[places[:, 0]]
    return np.bincount(labels, lengths, minlength=len(label)).astype(np.int64)[labels]


def simplify(points: Points, starts: NDArray[np.int64], tolerance: float) -> NDArray[np.int64]:
    """Return the indices of the points to keep of many polylines; the k-th is points[starts[k]:starts[k + 1]].

    Each pass splits all pieces between kept points whose furthest point is off by more than `tolerance`.
    """
    kept = np.zeros(len(points), bool)
    kept[starts[:-1]] = True
    kept[starts[1:] - 1] = True
    begin, end = starts[:-1], starts[1:] - 1  # the first and the last index of each piece
    while True:
        inner = end - begin - 1
        begin, end, inner = begin[inner > 0], end[inner > 0], inner[inner > 0]
        if not len(begin):
            return np.flatnonzero(kept)
        heads = np.concatenate([[0], np.cumsum(inner)[:-1]])
        piece = np.repeat(np.arange(len(begin)), inner)
        index = np.arange(len(piece)) - heads[piece] + begin[piece] + 1
        distance = _distance(points[index], points[begin][piece], points[end][piece])
        furthest = np.maximum.reduceat(distance, heads)
        # The first point of each piece at its furthest distance.
        candidates = np.flatnonzero(distance == furthest[piece])
        _, where = np.unique(piece[candidates], return_index=True)
        split = index[candidates[where]]
        bad = furthest > tolerance
        middle, begin, end = split[bad], begin[bad], end[bad]
        kept[middle] = True
        begin, end = np.concatenate([begin, middle]), np.concatenate([middle, end])


def _distance(points: Points, a: Points, b: Points) -> NDArray[np.float64]:
    """Return the distance of each point to the segment from a to b, which may be a single point."""
    along, offset = b - a, points - a
    length = (along * along).sum(1)
    part = np.clip((offset * along).sum(1) / np.maximum(length, 1), 0, 1)
    rest = offset - part[:, None] * along
    result: NDArray[np.float64] = np.sqrt((rest * rest).sum(1))
    return result


def _path(line: list[list[int]]) -> str:
    """Return SVG path data: the start of the line, then its steps; z closes a loop."""
    closed = len(line) > 2 and line[0] == line[-1]
    steps = pairwise(line[:-1] if closed else line)
    words = " ".join(f"{c - column} {r - row}" for (row, column), (r, c) in steps)
    return f"M{line[0][1]} {line[0][0]}l{words}{'z' * closed}"
