"""Top-1 and top-5 accuracy of a classifier on CIFAR-100 test, or on a folder with one folder of images per class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.cifar import ORIGIN, read_cifar100
from pixeldiff.data.lists import find_classes, find_root
from pixeldiff.errors import UserError
from pixeldiff.evaluation import Asked, Each, Network, Outcome, Progress, one_by_one
from pixeldiff.metrics.classes import accuracy, check

Images = Callable[[slice], NDArray[np.uint8]]  # those of a slice, N x H x W x 3
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """A network's top-1 and top-5 accuracy on CIFAR-100 test, or on the images in FOLDER/val/<class> or
    FOLDER/<class>."""


def prepare(options: Options, asked: Asked) -> Job:
    if asked.data is None:
        raise UserError("where are the images? give --data FOLDER: cifar-100-python, or one with a folder per class")
    return Job(DATASETS[asked.dataset], find_root(asked.data, ORIGIN), asked.each)


@dataclass(frozen=True)
class Job:
    read: Callable[[Any, Path], tuple[Images, Labels]]
    data: Path
    each: Each | None = None
    streams: int = 1  # a batch takes all cores

    def run(self, network: Network | None, progress: Progress) -> Outcome:
        if network is None:
            raise UserError("one network is scored: give --model NAME or --weights FILE")
        images, labels = self.read(network.run, self.data)
        logits = partial(_logits, network.run)
        scores = score(logits, images, labels, progress(network.name, len(labels)), each=self.each)
        result = {"name": network.name, **scores, "images": len(labels), "sha256": network.sha256}
        wide = max(7, len(network.name))
        numbers = f"{scores['top1']:6.2f}  {scores['top5']:6.2f}  {len(labels):8}"
        return Outcome([result], [f"{'network':{wide}}   top-1   top-5  images", f"{network.name:{wide}}  {numbers}"])


def score(
    logits: Callable[[NDArray[np.uint8]], NDArray[np.floating]],
    images: Images,
    labels: NDArray[np.integer],
    progress: Callable[[int], None] = lambda images: None,
    batch: int = 250,
    each: Each | None = None,
) -> dict[str, float]:
    """top1 and top5, in percent, of a network over `images`; `progress` hears of each batch. `each` runs them
    elsewhere than in this thread."""

    def work(start: int) -> NDArray[np.floating]:
        return logits(images(slice(start, start + batch)))

    found: dict[int, NDArray[np.floating]] = {}
    for start, own in (each or one_by_one)(work, range(0, len(labels), batch)):
        check(own, labels[start : start + batch])
        progress(len(own))
        found[start] = own
    return accuracy(np.concatenate([found[start] for start in sorted(found)]), labels)


def _logits(network: Any, batch: NDArray[np.uint8]) -> NDArray[np.floating]:
    result: NDArray[np.floating] = network.logits(batch)
    return result


def _cifar100(classifier: Any, data: Path) -> tuple[Images, Labels]:
    test = read_cifar100(data, "test")
    return test.images.__getitem__, test.labels


def _folder(classifier: Any, data: Path) -> tuple[Images, Labels]:
    """FOLDER/val/<class> or FOLDER/<class>, each image prepared as the network wants it."""
    files, names = find_classes(data / "val" if (data / "val").is_dir() else data)
    if classifier.labels and tuple(classifier.labels) != names:
        raise UserError(
            f"{data} has {len(names)} classes, {names[0]} first; the network knows {len(classifier.labels)}, "
            f"{classifier.labels[0]} first; score it on the classes it was trained for"
        )
    labels = np.array([label for _, label in files])
    return lambda part: np.stack([classifier.prepare(path) for path, _ in files[part]]), labels


DATASETS = {"cifar100": _cifar100, "folder": _folder}
