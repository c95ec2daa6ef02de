"""Classification: cross-entropy or a teacher's probabilities, top-1 and top-5.

With a teacher (Hinton et al. 2015, as ReActNet uses it) the loss of an image is

    (1 - d) * cross-entropy(label) + d * T^2 * KL(softmax(teacher / T) || softmax(student / T)),    d = distillation

Two-stage training (paper, section 7.2) is two stages of one recipe: the first with `binary_weights = false` in [model],
the second from its weights; both name the teacher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.data.cifar import ORIGIN, SIDE
from pixeldiff.data.lists import find_root
from pixeldiff.errors import InputError
from pixeldiff.metrics.classes import accuracy
from pixeldiff.models.saving import load_model
from pixeldiff.training.tasks.class_images import Batch, CifarImages, FolderImages, Images, spread
from pixeldiff.training.tasks.images import normalize

DATASETS = ("cifar100", "folder")


@dataclass(frozen=True)
class Data:
    """Where the images are."""

    root: str  # a folder, or its name under PIXELDIFF_DATA
    dataset: str = "cifar100"  # or "folder": train/<class>/*.jpg and val/<class>/*.jpg
    size: int = 224  # folder: side of the training images

    def __post_init__(self) -> None:
        if self.dataset not in DATASETS:
            raise InputError(f"unknown data.dataset {self.dataset!r}; expected {' or '.join(DATASETS)}")
        if self.size < 1:
            raise InputError(f"data.size must be at least 1, got {self.size}")


@dataclass(frozen=True)
class Augment:
    """How training images are changed, beside a horizontal flip of half of them."""

    padding: int = 4  # cifar100: zeros on each side before the random crop
    min_area: float = 0.08  # folder: smallest fraction of an image that a crop covers

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise InputError(f"augment.padding must be at least 0, got {self.padding}")
        if not 0 < self.min_area <= 1:
            raise InputError(f"augment.min_area must be more than 0 and at most 1, got {self.min_area}")


@dataclass(frozen=True)
class Loss:
    """The teacher, if any."""

    teacher: str = ""  # a weights file; empty for labels only
    distillation: float = 1.0  # d above: with a teacher, 1 ignores the labels
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.distillation <= 1 or not self.temperature > 0:
            raise InputError(
                "loss.distillation must be 0 to 1 and loss.temperature more than 0, "
                f"got {self.distillation} and {self.temperature}"
            )


@dataclass(frozen=True)
class Evaluate:
    """The images that are scored: CIFAR-100 test, or the folder's val."""

    limit: int = 0  # number of images, evenly spaced; 0 is all
    batch_size: int = 250

    def __post_init__(self) -> None:
        if self.limit < 0 or self.batch_size < 1:
            raise InputError(
                f"evaluate.limit must be at least 0 and .batch_size at least 1, got {self.limit} and {self.batch_size}"
            )


def data_of(described: Mapping[str, Any], stem: str, root: str = "") -> Data:
    """Return the data settings of a network: of the recipe in its file, or else of its stem."""
    table = described.get("recipe", {}).get("data", {})
    dataset = table.get("dataset", "cifar100" if stem == "cifar" else "folder")
    return Data(root, dataset, size=table.get("size", Data.size))


def preprocessing(data: Data) -> dict[str, Any]:
    """Return the preprocessing of a network trained on these images."""
    small = data.dataset == "cifar100"
    return image.preprocessing(size=SIDE if small else data.size, crop=1.0 if small else image.CENTER)


def open_images(data: Data, seed: int, *, training: bool, augment: Augment | None = None) -> Images:
    """Open the training or the test split of a recipe's data."""
    augment = augment or Augment()
    folders = "folders of images, <root>/train/<class> and <root>/val/<class>"
    root = find_root(data.root, f"CIFAR-100: {ORIGIN}" if data.dataset == "cifar100" else folders)
    if data.dataset == "cifar100":
        return CifarImages(root, "train" if training else "test", seed, augment.padding)
    return FolderImages(root, "train" if training else "val", seed, data.size, augment.min_area)


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float = 1.0) -> Tensor:
    """Return T^2 * KL(teacher || student), the mean over images."""
    t = temperature
    log_student, log_teacher = F.log_softmax(student / t, 1), F.log_softmax(teacher / t, 1)
    return t * t * F.kl_div(log_student, log_teacher, reduction="batchmean", log_target=True)


def predict(model: nn.Module, entries: Images, count: int = 0, batch: int = 250) -> tuple[np.ndarray, np.ndarray]:
    """Return logits and labels of `count` images (0: all), in eval mode."""
    training, logits, labels = model.training, [], []
    indices = spread(count, len(entries))
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for start in range(0, len(indices), batch):
            images, truth = entries.plain(indices[start : start + batch])
            logits.append(model(normalize(images.to(device))).float().cpu().numpy())
            labels.append(truth.numpy())
    model.train(training)
    return np.concatenate(logits), np.concatenate(labels)


class Task:
    """Classification for the training loop; see TaskProtocol."""

    def __init__(self, recipe: Any) -> None:
        self.data: Data = recipe.data
        self.settings: Loss = recipe.loss
        self.scored: Evaluate = recipe.evaluate
        self.seed: int = recipe.seed
        self.train_data = open_images(self.data, self.seed, training=True, augment=recipe.augment)
        self.test = open_images(self.data, self.seed, training=False)
        if self.test.names != self.train_data.names:
            raise InputError(
                f"the test images have {len(self.test.names)} classes, the training images "
                f"{len(self.train_data.names)}; both need the same folders"
            )
        self.labels = self.train_data.names
        self.preprocessing = preprocessing(self.data)
        self.teacher = load_model(self.settings.teacher).requires_grad_(False) if self.settings.teacher else None

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        images, labels = batch
        x = normalize(images)
        logits = model(x)
        if logits.shape[1] != len(self.labels):
            raise InputError(
                f"the network has {logits.shape[1]} classes, the images {len(self.labels)}; "
                f"set classes = {len(self.labels)} in [model]"
            )
        if self.teacher is None:
            return F.cross_entropy(logits, labels)
        with torch.no_grad():
            targets = self.teacher.to(x.device)(x)
        if targets.shape != logits.shape:
            raise InputError(f"the teacher has {targets.shape[1]} classes, the network {logits.shape[1]}")
        d = self.settings.distillation
        loss = d * distillation_loss(logits, targets, self.settings.temperature)
        return loss if d == 1 else loss + (1 - d) * F.cross_entropy(logits, labels)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return accuracy(*predict(model, self.test, self.scored.limit, self.scored.batch_size))

    def preview(self, model: nn.Module) -> np.ndarray | None:
        return None
