"""The task of faces: A-Softmax over the people of a folder; scores of pairs of people that it has not seen.

The images are aligned (`pixeldiff faces align`). The only augmentation is the paper's: half of them are mirrored.
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
from pixeldiff.errors import UserError
from pixeldiff.metrics.faces import summarize
from pixeldiff.models.sphereface import SphereFace
from pixeldiff.nn.margin import MARGINS, annealed
from pixeldiff.training.tasks.class_images import Batch, Key, as_tensor
from pixeldiff.training.tasks.images import normalize


@dataclass(frozen=True)
class Data:
    """Where the aligned faces are."""

    roots: tuple[str, ...]  # folders with a folder per person: here, or under PIXELDIFF_DATA
    leave_out: tuple[str, ...] = ()  # people: names, patterns, files of names (.txt)

    def __post_init__(self) -> None:
        if not self.roots:
            raise UserError("data.roots names one folder at least, with a folder of aligned faces per person")


@dataclass(frozen=True)
class Loss:
    """A-Softmax; lambda is max(last_lambda, first_lambda / (1 + decay * step)). The defaults are SphereFace's."""

    margin: int = 4  # m; 1 is a plain softmax over angles
    first_lambda: float = 1000.0
    last_lambda: float = 5.0
    decay: float = 0.1

    def __post_init__(self) -> None:
        if self.margin not in MARGINS:
            raise UserError(f"loss.margin is one of {', '.join(map(str, MARGINS))}, got {self.margin}")
        if not 0 <= self.last_lambda <= self.first_lambda or self.decay < 0:
            raise UserError(
                "loss needs 0 <= last_lambda <= first_lambda and decay >= 0, "
                f"got {self.last_lambda}, {self.first_lambda} and {self.decay}"
            )


@dataclass(frozen=True)
class Evaluate:
    """Pairs that are scored: aligned images and lists, as `pixeldiff eval` takes them."""

    data: str = ""  # their folder; empty for no scores
    datasets: tuple[str, ...] = ("cfp-ff", "cfp-fp")
    folds: tuple[int, ...] = ()  # empty for all
    batch: int = 100

    def __post_init__(self) -> None:
        if unknown := [name for name in self.datasets if name not in ORIGINS]:
            raise UserError(f"evaluate.datasets are of {', '.join(ORIGINS)}, got {unknown[0]!r}")
        if self.batch < 1:
            raise UserError(f"evaluate.batch is at least 1, got {self.batch}")


def embed(model: nn.Module, faces: NDArray[np.uint8], batch: int = 100) -> NDArray[np.float32]:
    """Unit vectors of aligned faces (N, H, W, 3), each from the image and its mirror image, in eval mode."""
    training, found = model.training, []
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for start in range(0, len(faces), batch):
            x = _normalized(as_tensor(faces[start : start + batch]).to(device))
            found.append(F.normalize(torch.cat([model(x), model(x.flip(3))], 1)).cpu().numpy())
    model.train(training)
    return np.concatenate(found)


def _normalized(images: Tensor) -> Tensor:
    return normalize(images, image.FACE_MEAN, image.FACE_STD)


def read_face(path: Path) -> NDArray[np.uint8]:
    """An aligned image."""
    face = image.read8(path)
    if face.shape[:2] != image.FACE:
        height, width = image.FACE
        raise UserError(
            f"{path} is {face.shape[0]} x {face.shape[1]}, an aligned face {height} x {width}; align the folder first: "
            "pixeldiff faces align SRC DST"
        )
    return face


class FaceImages(Dataset[tuple[NDArray[np.uint8], int]]):
    """The aligned faces of people; half of them are flipped."""

    def __init__(self, people: People, seed: int) -> None:
        self.people, self.seed = people, seed

    def __len__(self) -> int:
        return len(self.people.files)

    def __getitem__(self, key: Key) -> tuple[NDArray[np.uint8], int]:
        face = read_face(self.people.files[key[1]])
        flipped = np.random.default_rng((self.seed, *key)).integers(2)
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
        self.people = find_people(recipe.data.roots, recipe.data.leave_out)
        self.train_data = FaceImages(self.people, recipe.seed)
        self.preprocessing = image.face_preprocessing()
        self.pairs = {}
        if self.scored.data:
            for name in self.scored.datasets:
                pairs = read_pairs(name, self.scored.data, incomplete=True).present()  # some have no face to align
                self.pairs[name] = pairs.only(self.scored.folds) if self.scored.folds else pairs

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        assert isinstance(model, SphereFace)
        faces, people = batch
        head = model.head
        if head is None or len(head.weight) != len(self.people.names):
            raise UserError(
                f"the network has {model.config.classes} people, the images {len(self.people.names)}; "
                f"set classes = {len(self.people.names)} in [model]"
            )
        settings = self.settings
        plain = annealed(settings.first_lambda, settings.last_lambda, settings.decay, int(head.steps))
        head.steps += 1
        return F.cross_entropy(head(model(_normalized(faces)), people, settings.margin, plain), people)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """AUC (the mean over data sets first), and accuracy."""
        scores: dict[str, float] = {}
        for name, pairs in self.pairs.items():
            vectors = embed(model, np.stack([read_face(item[0]) for item in pairs.items]), self.scored.batch)
            cosines = (vectors[pairs.left] * vectors[pairs.right]).sum(1)
            found = summarize(cosines, pairs.same, pairs.folds)
            scores |= {f"{name} auc": found["auc"], f"{name} accuracy": found["accuracy"]}
        mean = [value for key, value in scores.items() if key.endswith("auc")]
        return {"auc": float(np.mean(mean)), **scores} if mean else {}

    def preview(self, model: nn.Module) -> np.ndarray | None:
        return None
