"""Scores of models on corrupted pictures: a table whose cells are filled one by one and kept in one JSON file.

A cell is (model, kind, severity); ("clean", 0) is the undamaged data. All models of one (kind, severity) see the same
damaged pictures, made on the fly with the seed `seed + number of the picture`. After each (kind, severity) the file is
replaced as a whole, so a stopped run goes on where it was.

The edge table is scored with ODS and OIS of the boundary benchmark, the classification table with top-1 accuracy in
percent. CIFAR-100-C as published (one .npy per kind, the five severities one after the other) is read as it is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pixeldiff.data.npy import read_npy
from pixeldiff.errors import UserError
from pixeldiff.files import write_whole
from pixeldiff.metrics.classes import refuse_other_classes, top_hits
from pixeldiff.metrics.edges import Counts, evaluate_image, summarise
from pixeldiff.robustness.corruptions import FAMILIES, KINDS, SEVERITIES, corrupt

Array = np.ndarray[Any, Any]
Scores = dict[str, float]
Condition = tuple[str, int]  # kind, severity
CLEAN: Condition = ("clean", 0)

# The paper leaves elastic out of the edge table: it moves the edges away from their annotation.
DEFAULT_KINDS = {"edges": tuple(k for k in KINDS if k != "elastic_transform"), "classes": KINDS}
METRICS = {"edges": ("ods", "ois"), "classes": ("top1",)}


class Scorer(Protocol):
    """Scores of some models under one condition; `tick` is called after each picture (or batch of n pictures)."""

    @property
    def pictures(self) -> int: ...

    def __call__(self, condition: Condition, models: Sequence[str], tick: Callable[[int], None]) -> dict[str, Scores]:
        """model -> metric -> number"""


@dataclass
class Results:
    """What was scored on what, and the scores. Two runs continue each other if the first four fields agree."""

    task: str
    data: str
    pictures: int
    seed: int
    models: dict[str, str]  # name -> sha256 of its file
    cells: dict[tuple[str, Condition], Scores] = field(default_factory=dict)

    def missing(self, models: Sequence[str], condition: Condition) -> list[str]:
        return [model for model in models if (model, condition) not in self.cells]

    def as_json(self) -> dict[str, Any]:
        cells = [{"model": m, "kind": k, "severity": s, **scores} for (m, (k, s)), scores in self.cells.items()]
        head = {name: getattr(self, name) for name in ("task", "data", "pictures", "seed", "models")}
        return {**head, "cells": cells}

    def save(self, path: Path, comparisons: Sequence[Comparison] = ()) -> None:
        content = {**self.as_json(), "comparisons": [dataclasses.asdict(found) for found in comparisons]}
        write_whole(path, json.dumps(content, indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> Results:
        try:
            content = json.loads(path.read_text())
            content.pop("comparisons", None)
            cells = {
                (c.pop("model"), (c.pop("kind"), c.pop("severity"))): {k: float(v) for k, v in c.items()}
                for c in content.pop("cells")
            }
            return cls(**content, cells=cells)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UserError(f"{path} is not a result file of `pixeldiff robustness`; give another name") from error

    def resume(self, path: Path) -> Results:
        """This run with the cells that `path` holds, if it is a file of the same run."""
        if not path.exists():
            return self
        old = self.load(path)
        for name in ("task", "data", "pictures", "seed"):
            if getattr(old, name) != getattr(self, name):
                raise UserError(
                    f"{path} holds a run with {name} {getattr(old, name)!r}, this one has {getattr(self, name)!r}; "
                    "give another --json file"
                )
        # A model is its file's content: "last" of the old run may be "a/last" now that there is a "b/last", too.
        now = {sha: name for name, sha in self.models.items()}
        renamed = {name: now.get(sha, name) for name, sha in old.models.items()}
        models = {renamed[name]: sha for name, sha in old.models.items()}
        if changed := [name for name, sha in self.models.items() if models.get(name, sha) != sha]:
            raise UserError(f"{path} holds scores of an earlier {', '.join(changed)}; give another --json file")
        cells = {(renamed[name], condition): scores for (name, condition), scores in old.cells.items()}
        return Results(**{**vars(self), "models": models | self.models, "cells": cells})


def conditions(kinds: Sequence[str], severities: Sequence[int], clean: bool = True) -> list[Condition]:
    """The clean data, then each kind at each severity."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UserError(f"unknown corruption {', '.join(map(repr, unknown))}; there are {', '.join(KINDS)}")
    if wrong := [severity for severity in severities if severity not in SEVERITIES]:
        raise UserError(f"severity {', '.join(map(str, wrong))} is not one of 1, 2, 3, 4, 5")
    grid = [(kind, severity) for kind in KINDS if kind in kinds for severity in sorted(set(severities))]
    return [CLEAN, *grid] if clean else grid


def fill(
    results: Results,
    models: Sequence[str],
    grid: Sequence[Condition],
    score: Scorer,
    path: Path | None = None,
    started: Callable[[Condition], None] = lambda condition: None,
    tick: Callable[[int], None] = lambda pictures: None,
) -> None:
    """Score what is missing for these models, keeping the file up to date."""
    for condition in grid:
        missing = results.missing(models, condition)
        if not missing:
            continue
        started(condition)
        for model, scores in score(condition, missing, tick).items():
            results.cells[model, condition] = scores
        if path is not None:
            results.save(path)


def damage(image: Array, condition: Condition, seed: int) -> Array:
    kind, severity = condition
    return image if condition == CLEAN else corrupt(image, severity, kind, seed=seed)


# --- edges -------------------------------------------------------------------------------------------------------


@dataclass
class EdgeScorer:
    """ODS and OIS of detectors (uint8 picture -> map in [0, 1]) on pictures with their annotators' boundary maps."""

    detectors: Mapping[str, Callable[[Array], Array]]
    samples: Sequence[Callable[[], tuple[Array, Sequence[Array]]]]  # each reads (picture, boundary maps)
    seed: int = 0
    workers: int = 1

    @property
    def pictures(self) -> int:
        return len(self.samples)

    def __call__(self, condition: Condition, models: Sequence[str], tick: Callable[[int], None]) -> dict[str, Scores]:
        def one(number: int) -> list[Counts]:
            picture, truths = self.samples[number]()
            damaged = damage(picture, condition, self.seed + number)
            return [evaluate_image(self.detectors[model](damaged), truths) for model in models]

        counts: list[list[Counts]] = []
        pool = ThreadPoolExecutor(self.workers)
        try:
            for of_picture in pool.map(one, range(self.pictures)):
                counts.append(of_picture)
                tick(1)
        finally:
            pool.shutdown(cancel_futures=True)  # a stopped run does not wait for the pictures not begun
        summaries = [summarise(of_model) for of_model in zip(*counts, strict=True)]
        return {m: {"ods": s.ods, "ois": s.ois} for m, s in zip(models, summaries, strict=True)}


# --- classification ----------------------------------------------------------------------------------------------


@dataclass
class DamagedPictures:
    """Pictures of one size (N x H x W x 3, uint8) and their labels, corrupted on the fly."""

    images: Array
    labels: Array
    seed: int = 0
    has_clean: bool = True

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, condition: Condition, size: int) -> Iterator[tuple[Array, Array]]:
        for start in range(0, len(self), size):
            images = self.images[start : start + size]
            damaged = [damage(image, condition, self.seed + start + i) for i, image in enumerate(images)]
            yield np.stack(damaged), self.labels[start : start + size]


class PublishedCifarC:
    """CIFAR-100-C (or -10-C) as published: <kind>.npy and labels.npy, the test set five times, severities in order."""

    has_clean = False

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

    def kinds(self) -> list[str]:
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
class ClassifyScorer:
    """Top-1 accuracy, in percent, of classifiers (uint8 N x H x W x 3 -> N x classes)."""

    classifiers: Mapping[str, Callable[[Array], Array]]
    source: DamagedPictures | PublishedCifarC
    batch: int = 250

    @property
    def pictures(self) -> int:
        return len(self.source)

    def __call__(self, condition: Condition, models: Sequence[str], tick: Callable[[int], None]) -> dict[str, Scores]:
        right = dict.fromkeys(models, 0)
        for images, labels in self.source.batches(condition, self.batch):
            for model in models:
                scores = self.classifiers[model](images)
                if scores.ndim != 2:
                    raise UserError(
                        f"{model} is no classifier: it gives {scores.shape[1:]} for a picture; use --task edges"
                    )
                refuse_other_classes(scores, labels)
                right[model] += top_hits(scores, labels, 1)
            tick(len(labels))
        return {model: {"top1": 100 * n / len(self.source)} for model, n in right.items()}


# --- what the table says -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """Model against reference over the kinds of one severity (None: all), on the task's first metric."""

    model: str
    reference: str
    severity: int | None
    cells: int
    ahead: int
    mean: float  # of the model
    difference: float  # mean of the paired differences
    error: float | None  # its standard error over the cells, where there are several


def compare(results: Results, model: str, reference: str, grid: Sequence[Condition]) -> list[Comparison]:
    """One comparison per severity and one over all, from the cells that both models have."""
    metric = METRICS[results.task][0]
    damaged = [c for c in grid if c != CLEAN and not results.missing([model, reference], c)]
    found = []
    for severity in [*sorted({s for _, s in damaged}), None]:
        chosen = [c for c in damaged if severity in (None, c[1])]
        ours = np.array([results.cells[model, c][metric] for c in chosen])
        difference = ours - np.array([results.cells[reference, c][metric] for c in chosen])
        error = float(difference.std(ddof=1) / np.sqrt(len(chosen))) if len(chosen) > 1 else None
        ahead = int(np.sum(difference > 0))
        numbers = (len(chosen), ahead, float(ours.mean()), float(difference.mean()), error) if chosen else None
        if numbers:
            found.append(Comparison(model, reference, severity, *numbers))
    return found


def families(kinds: Sequence[str]) -> dict[str, list[str]]:
    """The kinds asked for, by family."""
    chosen = {family: [kind for kind in members if kind in kinds] for family, members in FAMILIES.items()}
    return {family: members for family, members in chosen.items() if members}
