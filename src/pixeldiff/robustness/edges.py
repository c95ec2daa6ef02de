"""ODS and OIS of edge networks on damaged pictures of BSDS500 test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff import image
from pixeldiff.data import bsds
from pixeldiff.data.lists import find_within, refuse_missing
from pixeldiff.data.truth import Truth
from pixeldiff.metrics.edges import Counts, evaluate_image, summarise
from pixeldiff.robustness import Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.results import damage

Array = np.ndarray[Any, Any]
Sample = Callable[[], tuple[Array, Sequence[Array]]]  # reads a picture and its annotators' boundary maps

LAYOUT = Layout(
    scores=("ods", "ois"),
    label="ODS",
    axis="ODS",
    digits=3,
    width=12,
    # The paper leaves elastic out: it moves the edges away from their annotation.
    kinds=tuple(kind for kind in KINDS if kind != "elastic_transform"),
    blocks=(("noise", "blur"), ("digital", "weather")),
)


def prepare(data: Path | None, seed: int, limit: int | None, threads: int) -> Scorer:
    """The test pictures of a BSDS500 folder, each read with its annotators' maps when it is its turn."""
    root = find_within(data, "BSDS500", bsds.ORIGIN)
    pairs = [(one.picture, one) for one in bsds.find_split(root, "test").values() if one.picture is not None][:limit]
    refuse_missing(root, [picture for picture, _ in pairs])
    return Scorer([_reader(*pair) for pair in pairs], seed, threads)


def _reader(picture: Path, truth: Truth) -> Sample:
    return lambda: (image.read(picture), truth.load())


@dataclass
class Scorer:
    samples: Sequence[Sample]
    seed: int = 0
    streams: int = 1
    source: str = "BSDS500 test"
    kinds: Sequence[str] = LAYOUT.kinds
    has_clean: bool = True

    @property
    def pictures(self) -> int:
        return len(self.samples)

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        def one(number: int) -> list[Counts]:
            picture, truths = self.samples[number]()
            damaged = damage(picture, condition, self.seed + number)
            return [evaluate_image(network(damaged, size="full"), truths) for network in networks.values()]

        counts: list[list[Counts]] = []
        pool = ThreadPoolExecutor(self.streams)
        try:
            for of_picture in pool.map(one, range(self.pictures)):
                counts.append(of_picture)
                tick(1)
        finally:
            pool.shutdown(cancel_futures=True)  # a stopped run does not wait for the pictures not begun
        summaries = [summarise(of_network) for of_network in zip(*counts, strict=True)]
        return {name: {"ods": s.ods, "ois": s.ois} for name, s in zip(networks, summaries, strict=True)}
