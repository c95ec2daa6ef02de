"""Top-1 accuracy, in percent, of classifiers on CIFAR-100 test damaged here, or on CIFAR-100-C as published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff.data import cifar
from pixeldiff.data.lists import find_within
from pixeldiff.data.npy import read_npy
from pixeldiff.errors import UserError
from pixeldiff.metrics.classes import top_hits
from pixeldiff.robustness import Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import KINDS, SEVERITIES
from pixeldiff.robustness.results import damage

Array = np.ndarray[Any, Any]

LAYOUT = Layout(
    scores=("top1",),
    label="top-1",
    axis="top-1 (%)",
    digits=2,
    width=8,
    kinds=KINDS,
    blocks=(("noise", "blur", "weather", "digital"),),
)


def prepare(data: Path | None, seed: int, limit: int | None, threads: int) -> Scorer:
    """CIFAR-100-C as published if the folder holds it, else CIFAR-100 test damaged on the fly."""
    root = find_within(data, "CIFAR-100-C", cifar.ORIGIN)
    if (root / "labels.npy").exists():
        return Scorer(PublishedCifarC(root, limit))
    test = cifar.read_cifar100(root, "test")
    return Scorer(CorruptedImages(test.images[:limit], test.labels[:limit], seed))


@dataclass
class CorruptedImages:
    """Images of one size (N x H x W x 3, uint8) and their labels, corrupted on the fly."""

    images: Array
    labels: Array
    seed: int = 0
    has_clean: bool = True
    source: str = "CIFAR-100 test, corrupted here"

    def __len__(self) -> int:
        return len(self.labels)

    def kinds(self) -> Sequence[str]:
        return KINDS

    def batches(self, condition: Condition, size: int) -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(self), size):
            images = self.images[start : start + size]
            damaged = [damage(image, condition, self.seed + start + i) for i, image in enumerate(images)]
            yield np.stack(damaged), self.labels[start : start + size]


class PublishedCifarC:
    """CIFAR-100-C (or -10-C) as published: <kind>.npy and labels.npy, the test set five times, severities in order."""

    has_clean = False
    source = "CIFAR-100-C as published"

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder
        labels = self._read("labels")
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or len(labels) % len(SEVERITIES):
            raise UserError(
                f"{folder / 'labels.npy'} holds {labels.dtype} {labels.shape}, not the labels of a test set five times"
            )
        self.size = len(labels) // len(SEVERITIES)
        self.labels = labels[: min(limit or self.size, self.size)]

    def __len__(self) -> int:
        return len(self.labels)

    def kinds(self) -> Sequence[str]:
        return [kind for kind in KINDS if (self.folder / f"{kind}.npy").exists()]

    def batches(self, condition: Condition, size: int) -> Iterator[tuple[Array, Array]]:
        kind, severity = condition
        images = self._read(kind)
        if images.shape != (self.size * len(SEVERITIES), 32, 32, 3) or images.dtype != np.uint8:
            raise UserError(f"{kind}.npy holds {images.dtype} {images.shape}, not the test set five times")
        first = (severity - 1) * self.size
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            yield np.asarray(images[first + start : first + stop]), self.labels[start:stop]

    def _read(self, name: str) -> Array:
        return read_npy(self.folder / f"{name}.npy", mapped=True)


@dataclass
class Scorer:
    data: CorruptedImages | PublishedCifarC
    batch: int = 250
    streams: int = 1  # a batch takes all cores

    @property
    def source(self) -> str:
        return self.data.source

    @property
    def kinds(self) -> Sequence[str]:
        return self.data.kinds() or LAYOUT.kinds

    @property
    def has_clean(self) -> bool:
        return self.data.has_clean

    @property
    def images(self) -> int:
        return len(self.data)

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        right = dict.fromkeys(networks, 0)
        for images, labels in self.data.batches(condition, self.batch):
            for name, network in networks.items():
                scores = network.logits(images)
                right[name] += top_hits(scores, labels, 1)
            tick(len(labels))
        return {name: {"top1": 100 * n / self.images} for name, n in right.items()}
