"""ODS and OIS of edge networks on corrupted images of BSDS500 test."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff import image
from pixeldiff.data import bsds
from pixeldiff.data.lists import check_files_exist, find_within
from pixeldiff.data.truth import GroundTruth
from pixeldiff.inference.edges import Look
from pixeldiff.metrics.edges import Counts, evaluate_image, summarize
from pixeldiff.robustness import Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.results import damage

Array = np.ndarray[Any, Any]
Sample = Callable[[], tuple[Array, Sequence[Array]]]  # reads an image and its annotators' boundary maps

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
    """The test images of a BSDS500 folder, each read with its annotators' maps when it is its turn."""
    root = find_within(data, "BSDS500", bsds.ORIGIN)
    pairs = [(one.image, one) for one in bsds.find_split(root, "test").values() if one.image is not None][:limit]
    check_files_exist(root, [image for image, _ in pairs])
    return Scorer([_reader(*pair) for pair in pairs], seed, threads)


def _reader(pixels: Path, truth: GroundTruth) -> Sample:
    return lambda: (image.read(pixels), truth.load())


@dataclass
class Scorer:
    samples: Sequence[Sample]
    seed: int = 0
    streams: int = 1
    source: str = "BSDS500 test"
    kinds: Sequence[str] = LAYOUT.kinds
    has_clean: bool = True

    @property
    def images(self) -> int:
        return len(self.samples)

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        def one(number: int) -> list[Counts]:
            image, truths = self.samples[number]()
            damaged = damage(image, condition, self.seed + number)
            return [evaluate_image(network(damaged, Look(max_size=None)), truths) for network in networks.values()]

        counts: list[list[Counts]] = []
        pool = ThreadPoolExecutor(self.streams)
        try:
            for of_image in pool.map(one, range(self.images)):
                counts.append(of_image)
                tick(1)
        finally:
            pool.shutdown(cancel_futures=True)  # a stopped run does not wait for the images not begun
        summaries = [summarize(of_network) for of_network in zip(*counts, strict=True)]
        return {name: {"ods": s.ods, "ois": s.ois} for name, s in zip(networks, summaries, strict=True)}
