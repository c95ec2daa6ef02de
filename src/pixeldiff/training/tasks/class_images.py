"""Images with class labels for training: CIFAR-100 in memory, or a folder of one folder per class.

Both give uint8 RGB batches (N, 3, H, W), channels last in memory, and draw everything random about an image from
(seed, epoch, index). The augmentation is the paper's: padding, a random crop of the training size, a horizontal flip.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from pixeldiff.data.cifar import SIDE, read_cifar100
from pixeldiff.data.lists import find_classes
from pixeldiff.image import CENTER, center_square, read8

Key = tuple[int, int]  # (epoch, index)
Batch = tuple[Tensor, Tensor]  # uint8 (N, 3, H, W), int64 (N,)


class Images(Protocol):
    """A split: items and `collate` with augmentation for training, `plain` without for evaluation."""

    names: tuple[str, ...]  # of the classes

    def __len__(self) -> int: ...

    def name(self, index: int) -> str: ...

    def __getitem__(self, key: Key) -> object: ...

    def collate(self, samples: list[object]) -> Batch: ...

    def plain(self, indices: NDArray[np.int64]) -> Batch: ...


def spread(count: int, total: int) -> NDArray[np.int64]:
    """Return `count` of `total` indices, evenly spaced, since images are often in class order; 0 is all."""
    count = min(count or total, total)
    return np.arange(count) * total // count


def as_tensor(images: NDArray[np.uint8]) -> Tensor:
    """View N x H x W x 3 as (N, 3, H, W), channels last."""
    return torch.from_numpy(images).permute(0, 3, 1, 2)


class CifarImages(Dataset[object]):
    """A split of CIFAR-100. Whole batches are augmented at once: zeros around, a random crop of 32x32, a flip."""

    def __init__(self, root: Path, split: str, seed: int = 0, padding: int = 4) -> None:
        self.cifar = read_cifar100(root, split)
        self.names = self.cifar.names
        self.split, self.seed, self.padding = split, seed, padding
        self._draws: dict[int, NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return len(self.cifar.labels)

    def name(self, index: int) -> str:
        return f"{self.split} image {index} ({self.names[self.cifar.labels[index]]})"

    def __getitem__(self, key: Key) -> object:
        return key

    def collate(self, samples: list[object]) -> Batch:
        epochs, indices = np.array(samples).T
        draws = np.stack([self._draw(epoch)[index] for epoch, index in zip(epochs, indices, strict=True)])
        p, steps = self.padding, np.arange(SIDE)
        images = np.pad(self.cifar.images[indices], ((0, 0), (p, p), (p, p), (0, 0)))
        rows = draws[:, 0, None] + steps
        columns = draws[:, 1, None] + np.where(draws[:, 2, None], steps[::-1], steps)
        crops = images[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
        return as_tensor(crops), torch.from_numpy(self.cifar.labels[indices])

    def plain(self, indices: NDArray[np.int64]) -> Batch:
        return as_tensor(self.cifar.images[indices]), torch.from_numpy(self.cifar.labels[indices])

    def _draw(self, epoch: int) -> NDArray[np.int64]:
        """Draw row, column and flip of every image in an epoch; two are cached, for a batch can span both."""
        if epoch not in self._draws:
            self._draws = dict([*self._draws.items()][-1:])
            rng = np.random.default_rng((self.seed, epoch, 1))
            self._draws[epoch] = rng.integers((2 * self.padding + 1, 2 * self.padding + 1, 2), size=(len(self), 3))
        return self._draws[epoch]


class FolderImages(Dataset[object]):
    """root/<split>/<class>/*.jpg as for ImageNet: a crop of random area and shape, resized to `size`; a flip.

    For evaluation the center square is taken, CENTER of the short side, and resized.
    """

    def __init__(self, root: Path, split: str, seed: int = 0, size: int = 224, min_area: float = 0.08) -> None:
        self.files, self.names = find_classes(root / split)
        self.seed, self.size, self.min_area = seed, size, min_area

    def __len__(self) -> int:
        return len(self.files)

    def name(self, index: int) -> str:
        return str(self.files[index][0])

    def __getitem__(self, key: Key) -> object:
        rng = np.random.default_rng((self.seed, *key))
        path, label = self.files[key[1]]
        image = Image.fromarray(read8(path))
        part = image.resize(
            (self.size, self.size), Image.Resampling.BILINEAR, _random_box(image.size, self.min_area, rng)
        )
        pixels = np.asarray(part)
        return (pixels[:, ::-1] if rng.integers(2) else pixels), label

    def collate(self, samples: list[object]) -> Batch:
        images, labels = zip(*samples, strict=True)
        return as_tensor(np.stack(images)), torch.tensor(labels)

    def plain(self, indices: NDArray[np.int64]) -> Batch:
        chosen = [self.files[index] for index in indices]
        return self.collate([(center_square(read8(path), self.size, CENTER), label) for path, label in chosen])


def _random_box(size: tuple[int, int], min_area: float, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Draw a box of `min_area` to all of the image, 3:4 to 4:3; the full image if ten tries do not fit."""
    width, height = size
    for _ in range(10):
        pixels = width * height * rng.uniform(min_area, 1.0)
        shape = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = np.sqrt(pixels * shape), np.sqrt(pixels / shape)
        if w <= width and h <= height:
            x, y = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return float(x), float(y), float(x + w), float(y + h)
    return 0.0, 0.0, float(width), float(height)
