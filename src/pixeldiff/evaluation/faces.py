"""Face verification on lists of pairs (LFW, CFP, YTF, CALFW, CPLFW or custom ones): accuracy, AUC and the ROC curve."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image
from pixeldiff.data.faces import Pairs
from pixeldiff.evaluation.benchmark import Benchmark, Condition, damage
from pixeldiff.figures import COLORS, save_figure
from pixeldiff.metrics.faces import roc, summarize

BATCH = 16  # faces that a model embeds at once
MAX_FRAMES = 100  # of a video, evenly spaced

Face = NDArray[np.uint8]  # an aligned face, H x W x 3
Vectors = NDArray[np.float32]
Align = Callable[[Face], "Face | None"]  # an image -> its aligned face, None if there is none


@dataclass(frozen=True)
class FaceSample:
    """The aligned faces of an image or of the frames of a video; `without_face` of them are full images."""

    faces: Sequence[Face]
    without_face: int


class FaceBenchmark(Benchmark[FaceSample, Vectors, "tuple[Vectors, int]"]):
    """The items of a list of pairs. The models have `embed(faces)`; all of them align alike."""

    task = "faces"
    batch_size = BATCH

    def __init__(self, pairs: Pairs, align: Align, *, source: str = "pairs", keep_faces: bool = False) -> None:
        self.pairs, self.align, self.source = pairs, align, source
        self.kept: dict[Path, tuple[Face, bool]] | None = {} if keep_faces else None  # for several conditions

    def __len__(self) -> int:
        return len(self.pairs.items)

    def load(self, index: int, condition: Condition, seed: int) -> FaceSample:
        item = self.pairs.items[index]
        frames = item[:: -(-len(item) // MAX_FRAMES)]
        aligned = [self._aligned(frame) for frame in frames]
        faces = [damage(face, condition, seed + k) for k, (face, _) in enumerate(aligned)]
        return FaceSample(faces, sum(not has_face for _, has_face in aligned))

    def _aligned(self, path: Path) -> tuple[Face, bool]:
        """Return the aligned face of an image and True, or the full image in that size and False: every pair counts."""
        if self.kept is not None and path in self.kept:
            return self.kept[path]
        pixels = image.read8(path)
        face = self.align(pixels)
        result = (image.as_8_bit(image.reduce(pixels, image.FACE)), False) if face is None else (face, True)
        if self.kept is not None:
            self.kept[path] = result
        return result

    def predict(self, model: Any, batch: Sequence[FaceSample]) -> list[Vectors]:
        faces = [face for sample in batch for face in sample.faces]
        parts = [model.embed(np.stack(faces[start : start + BATCH])) for start in range(0, len(faces), BATCH)]
        return np.split(np.concatenate(parts), np.cumsum([len(sample.faces) for sample in batch])[:-1])

    def score(self, prediction: Vectors, sample: FaceSample) -> tuple[Vectors, int]:
        """Return the unit vector of an item, for a video the mean of its frames."""
        vector: Vectors = prediction[0]
        if len(prediction) > 1:
            mean = prediction.mean(0)
            vector = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return vector, sample.without_face

    def cosines(self, counts: Sequence[tuple[Vectors, int]]) -> Vectors:
        """Return the score of each pair."""
        return cosines(np.stack([vector for vector, _ in counts]), self.pairs)

    def summarize(self, counts: Sequence[tuple[Vectors, int]]) -> dict[str, Any]:
        scores = summarize(self.cosines(counts), self.pairs.same, self.pairs.folds)
        return {**scores, "without_face": sum(missing for _, missing in counts)}


def cosines(vectors: Vectors, pairs: Pairs) -> Vectors:
    """Return the cosine of each pair's unit vectors."""
    result: Vectors = np.einsum("nd,nd->n", vectors[pairs.left], vectors[pairs.right])
    return result


def limit_pairs(pairs: Pairs, limit: int | None) -> Pairs:
    """Return the first `limit` pairs of each fold and kind."""
    if limit is None:
        return pairs
    rows = [
        np.flatnonzero((pairs.folds == fold) & (pairs.same == same))[:limit]
        for fold in np.unique(pairs.folds)
        for same in (True, False)
    ]
    return pairs.take(np.sort(np.concatenate(rows)))


def plot_roc(path: Path, curves: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]) -> None:
    """Plot true over false accept rates, the latter in decades, one curve per model (its pairs' scores and labels)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for k, (name, (scores, same)) in enumerate(curves.items()):
        false, true, _ = roc(scores, same)
        axes.plot(np.maximum(false, 1e-4), true, color=COLORS[k % len(COLORS)], linewidth=2, label=name)
    chance = np.geomspace(1e-4, 1, 100)
    axes.plot(chance, chance, ":", color="#888888", linewidth=1, label="chance")
    axes.set(xscale="log", xlim=(1e-4, 1), ylim=(0, 1), xlabel="False accept rate", ylabel="True accept rate")
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="upper left", framealpha=0.95, fontsize=9)
    save_figure(figure, path, dpi=200)
