"""Accuracy, in percent, of networks for faces on LFW's pairs, both images damaged after they are aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image
from pixeldiff.data.faces import ORIGINS, Pairs, read_pairs
from pixeldiff.data.lists import find_within
from pixeldiff.metrics.faces import summarize
from pixeldiff.robustness import Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.results import damage

_BATCH = 64

LAYOUT = Layout(
    scores=("accuracy",),
    label="accuracy",
    axis="accuracy (%)",
    digits=2,
    width=8,
    kinds=KINDS,
    blocks=(("noise", "blur", "weather", "digital"),),
)


def prepare(data: Path | None, seed: int, limit: int | None, threads: int) -> Scorer:
    """LFW; `limit` keeps so many pairs of each fold and kind."""
    root = find_within(data, "lfw", ORIGINS["lfw"])
    return Scorer(_limited(read_pairs("lfw", root), limit), seed)


def _limited(pairs: Pairs, limit: int | None) -> Pairs:
    if limit is None:
        return pairs
    kept = np.concatenate(
        [
            np.flatnonzero((pairs.folds == fold) & (pairs.same == same))[:limit]
            for fold in np.unique(pairs.folds)
            for same in (True, False)
        ]
    )
    return pairs.take(np.sort(kept))


@dataclass
class Scorer:
    pairs: Pairs
    seed: int = 0
    has_clean: bool = True
    source: str = "LFW View 2, corrupted here"
    streams: int = 1  # a batch takes all cores
    _faces: dict[Path, NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def kinds(self) -> Sequence[str]:
        return KINDS

    @property
    def images(self) -> int:
        return len(self.pairs.items)

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        vectors: dict[str, list[NDArray[np.float32]]] = {name: [] for name in networks}
        for start in range(0, self.images, _BATCH):
            part = range(start, min(start + _BATCH, self.images))
            faces = [damage(self._face(i, networks), condition, self.seed + i) for i in part]
            for name, network in networks.items():
                vectors[name].append(network.embed(np.stack(faces)))
            tick(len(part))
        return {name: {"accuracy": self._accuracy(np.concatenate(own))} for name, own in vectors.items()}

    def _face(self, number: int, networks: Mapping[str, Any]) -> NDArray[np.uint8]:
        """Aligned once, by whichever network comes first: all align alike."""
        path = self.pairs.items[number][0]
        if path not in self._faces:
            pixels = image.read8(path)
            face = next(iter(networks.values())).find(pixels)
            whole = image.as_8_bit(image.reduce(pixels, image.FACE))  # where there is none, as in eval
            self._faces[path] = whole if face is None else face
        return self._faces[path]

    def _accuracy(self, vectors: NDArray[np.float32]) -> float:
        scores = np.einsum("nd,nd->n", vectors[self.pairs.left], vectors[self.pairs.right])
        accuracy: float = summarize(scores, self.pairs.same, self.pairs.folds)["accuracy"]
        return accuracy
