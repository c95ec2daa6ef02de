"""Faces: A-Softmax over the people of a folder; scores of pairs of other people.

The images are aligned (`pixeldiff faces align`). The only augmentation is the paper's: half of them are flipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import Dataset

from pixeldiff import image
from pixeldiff.data.faces import ORIGINS, People, find_people, read_pairs
from pixeldiff.errors import InputError
from pixeldiff.metrics.faces import summarize
from pixeldiff.models.sphereface import SphereFace
from pixeldiff.nn.margin import MARGINS, annealed
from pixeldiff.training.tasks.class_images import Batch, Key, as_tensor
from pixeldiff.training.tasks.images import normalize


@dataclass(frozen=True)
class Data:
    """Where the aligned faces are."""

    roots: tuple[str, ...]  # folders with a folder per person: here, or under PIXELDIFF_DATA
    exclude: tuple[str, ...] = ()  # people: names, patterns, files of names (.txt)

    def __post_init__(self) -> None:
        if not self.roots:
            raise InputError("data.roots must name at least one folder with a folder of aligned faces per person")


@dataclass(frozen=True)
class Augment:
    """How training images are changed."""

    hflip: bool = True  # half of them


@dataclass(frozen=True)
class Loss:
    """A-Softmax; lambda is max(last_lambda, first_lambda / (1 + decay * step)). The defaults are SphereFace's."""

    margin: int = 4  # m; 1 is a plain softmax over angles
    first_lambda: float = 1000.0
    last_lambda: float = 5.0
    decay: float = 0.1

    def __post_init__(self) -> None:
        if self.margin not in MARGINS:
            raise InputError(f"loss.margin must be one of {', '.join(map(str, MARGINS))}, got {self.margin}")
        if not 0 <= self.last_lambda <= self.first_lambda or self.decay < 0:
            raise InputError(
                "loss needs 0 <= last_lambda <= first_lambda and decay >= 0, "
                f"got {self.last_lambda}, {self.first_lambda} and {self.decay}"
            )


@dataclass(frozen=True)
class Evaluate:
    """Pairs that are scored: aligned images and lists, as `pixeldiff eval` takes them."""

    root: str = ""  # their folder; empty for no scores
    datasets: tuple[str, ...] = ("cfp-ff", "cfp-fp")
    folds: tuple[int, ...] = ()  # empty for all
    batch_size: int = 100

    def __post_init__(self) -> None:
        if unknown := [name for name in self.datasets if name not in ORIGINS]:
            raise InputError(f"unknown evaluate.datasets {unknown[0]!r}; expected {', '.join(ORIGINS)}")
        if self.batch_size < 1:
            raise InputError(f"evaluate.batch_size must be at least 1, got {self.batch_size}")


def embed(model: nn.Module, faces: NDArray[np.uint8], batch: int = 100) -> NDArray[np.float32]:
    """Return unit vectors of aligned faces (N, H, W, 3), each from the image and its horizontal flip, in eval mode."""
    training, vectors = model.training, []
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for start in range(0, len(faces), batch):
            x = _normalized(as_tensor(faces[start : start + batch]).to(device))
            vectors.append(F.normalize(torch.cat([model(x), model(x.flip(3))], 1)).cpu().numpy())
    model.train(training)
    return np.concatenate(vectors)


def _normalized(images: Tensor) -> Tensor:
    return normalize(images, image.FACE_MEAN, image.FACE_STD)


def read_face(path: Path) -> NDArray[np.uint8]:
    """Read an aligned image."""
    face = image.read8(path)
    if face.shape[:2] != image.FACE:
        height, width = image.FACE
        raise InputError(
            f"{path} is {face.shape[0]} x {face.shape[1]}, an aligned face {height} x {width}; align the folder first: "
            "pixeldiff faces align SRC DST"
        )
    return face


class FaceImages(Dataset[tuple[NDArray[np.uint8], int]]):
    """The aligned faces of people for training."""

    def __init__(self, people: People, seed: int, hflip: bool = True) -> None:
        self.people, self.seed, self.hflip = people, seed, hflip

    def __len__(self) -> int:
        return len(self.people.files)

    def __getitem__(self, key: Key) -> tuple[NDArray[np.uint8], int]:
        face = read_face(self.people.files[key[1]])
        flipped = self.hflip and np.random.default_rng((self.seed, *key)).integers(2)
        return (face[:, ::-1] if flipped else face), self.people.labels[key[1]]

    def name(self, index: int) -> str:
        return str(self.people.files[index])

    def collate(self, samples: list[tuple[NDArray[np.uint8], int]]) -> Batch:
        faces, labels = zip(*samples, strict=True)
        return as_tensor(np.stack(faces)), torch.tensor(np.array(labels))


class Task:
    """Faces for the training loop; see TaskProtocol. People have no names in the weights."""

    labels: tuple[str, ...] = ()

    def __init__(self, recipe: Any) -> None:
        self.settings: Loss = recipe.loss
        self.scored: Evaluate = recipe.evaluate
        self.people = find_people(recipe.data.roots, recipe.data.exclude)
        self.train_data = FaceImages(self.people, recipe.seed, recipe.augment.hflip)
        self.preprocessing = image.face_preprocessing()
        self.pairs = {}
        if self.scored.root:
            for name in self.scored.datasets:
                pairs = read_pairs(name, self.scored.root, incomplete=True).present()  # some have no face to align
                self.pairs[name] = pairs.only(self.scored.folds) if self.scored.folds else pairs

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, SphereFace)
        faces, people = batch
        head = model.head
        if head is None or len(head.weight) != len(self.people.names):
            raise InputError(
                f"the network has {model.config.classes} people, the images {len(self.people.names)}; "
                f"set classes = {len(self.people.names)} in [model]"
            )
        settings = self.settings
        plain = annealed(settings.first_lambda, settings.last_lambda, settings.decay, int(head.steps))
        head.steps += 1
        return F.cross_entropy(head(model(_normalized(faces)), people, settings.margin, plain), people)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return AUC (the mean over data sets first) and accuracy."""
        scores: dict[str, float] = {}
        for name, pairs in self.pairs.items():
            vectors = embed(model, np.stack([read_face(item[0]) for item in pairs.items]), self.scored.batch_size)
            cosines = (vectors[pairs.left] * vectors[pairs.right]).sum(1)
            summary = summarize(cosines, pairs.same, pairs.folds)
            scores |= {f"{name} auc": summary["auc"], f"{name} accuracy": summary["accuracy"]}
        mean = [value for key, value in scores.items() if key.endswith("auc")]
        return {"auc": float(np.mean(mean)), **scores} if mean else {}

    def preview(self, model: nn.Module) -> np.ndarray | None:
        return None
