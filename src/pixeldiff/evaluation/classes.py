"""Top-1 and top-5 accuracy of classifiers: CIFAR-100 test, CIFAR-100-C as published, or a folder per class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.cifar import read_cifar100
from pixeldiff.data.lists import find_classes
from pixeldiff.data.npy import read_npy
from pixeldiff.errors import InputError
from pixeldiff.evaluation.benchmark import CLEAN, Benchmark, Condition, damage
from pixeldiff.metrics.classes import accuracy, check

Image = NDArray[np.uint8]  # H x W x 3
Logits = NDArray[np.floating[Any]]
SEVERITIES = 5  # of each file of CIFAR-100-C


class LabeledImages(Protocol):
    """Prepared images with the numbers of their classes."""

    source: str
    has_clean: bool
    labels: NDArray[np.integer[Any]]

    def image(self, index: int, condition: Condition, seed: int) -> Image: ...


class ArrayImages:
    """Images of one size in memory, N x H x W x 3."""

    has_clean = True

    def __init__(self, images: Image, labels: NDArray[np.integer[Any]], source: str = "CIFAR-100 test") -> None:
        self.images, self.labels, self.source = images, labels, source

    def image(self, index: int, condition: Condition, seed: int) -> Image:
        return damage(self.images[index], condition, seed)


class FolderImages:
    """FOLDER/val/<class> or FOLDER/<class>, each image prepared for a classifier."""

    has_clean = True

    def __init__(self, folder: Path, prepare: Callable[[Path], Image], known: Sequence[str] = ()) -> None:
        files, names = find_classes(folder / "val" if (folder / "val").is_dir() else folder)
        if known and tuple(known) != names:
            raise InputError(
                f"{folder} has {len(names)} classes, {names[0]} first; the model has {len(known)}, {known[0]} first; "
                "score it on the classes that it was trained for"
            )
        self.files = [path for path, _ in files]
        self.labels = np.array([label for _, label in files])
        self.prepare, self.source = prepare, "images per class"

    def image(self, index: int, condition: Condition, seed: int) -> Image:
        return damage(self.prepare(self.files[index]), condition, seed)


class PublishedCifarC:
    """CIFAR-100-C (or -10-C): <corruption>.npy and labels.npy, the test set five times in the order of severities."""

    has_clean = False
    source = "CIFAR-100-C as published"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        labels = self._read("labels")
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or len(labels) % SEVERITIES:
            raise InputError(
                f"{folder / 'labels.npy'} holds {labels.dtype} {labels.shape}; expected the labels of a test set five "
                "times"
            )
        self.size = len(labels) // SEVERITIES
        self.labels = labels[: self.size]
        self.files: dict[str, NDArray[Any]] = {}

    def corruptions(self) -> list[str]:
        """Return the names of the files of images."""
        return [path.stem for path in sorted(self.folder.glob("*.npy")) if path.stem != "labels"]

    def image(self, index: int, condition: Condition, seed: int) -> Image:
        corruption, severity = condition
        if corruption not in self.files:
            images = self._read(corruption)
            if images.shape != (self.size * SEVERITIES, 32, 32, 3) or images.dtype != np.uint8:
                raise InputError(
                    f"{corruption}.npy holds {images.dtype} {images.shape}; expected the test set five times"
                )
            self.files[corruption] = images
        return np.asarray(self.files[corruption][(severity - 1) * self.size + index])

    def _read(self, name: str) -> NDArray[Any]:
        return read_npy(self.folder / f"{name}.npy", mapped=True)


def read_cifar_test(root: Path) -> ArrayImages:
    """Read CIFAR-100 test."""
    test = read_cifar100(root, "test")
    return ArrayImages(test.images, test.labels)


class ClassBenchmark(Benchmark["tuple[Image, int]", Logits, "tuple[Logits, int]"]):
    """Prepared images of known classes; the models have `logits(batch)`."""

    task = "classes"
    parallel = False  # a batch takes all cores

    def __init__(self, data: LabeledImages, limit: int | None = None, batch_size: int = 250) -> None:
        self.data, self.batch_size = data, batch_size
        self.source, self.has_clean = data.source, data.has_clean
        self.labels = data.labels[:limit]

    def __len__(self) -> int:
        return len(self.labels)

    def load(self, index: int, condition: Condition = CLEAN, seed: int = 0) -> tuple[Image, int]:
        return self.data.image(index, condition, seed), int(self.labels[index])

    def predict(self, model: Any, batch: Sequence[tuple[Image, int]]) -> list[Logits]:
        images, labels = zip(*batch, strict=True)
        logits: Logits = model.logits(np.stack(images))
        check(logits, np.array(labels))
        return list(logits)

    def score(self, prediction: Logits, sample: tuple[Image, int]) -> tuple[Logits, int]:
        return prediction, sample[1]

    def summarize(self, counts: Sequence[tuple[Logits, int]]) -> dict[str, Any]:
        logits, labels = zip(*counts, strict=True)
        return {**accuracy(np.stack(logits), np.array(labels)), "images": len(labels)}
