"""Scores of models on corrupted images: a table whose cells are filled one by one and kept in one JSON file.

A cell is (model, kind, severity); ("clean", 0) is the undamaged data. All models of one (kind, severity) see the same
corrupted images, made on the fly with the seed `seed + number of the image`. After each (kind, severity) the file is
replaced as a whole, so a stopped run goes on where it was. What a cell holds is the task's: robustness/<task>.py.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff.errors import UserError
from pixeldiff.robustness import MODULES, Condition, Layout, Scores, Tick
from pixeldiff.robustness.corruptions import FAMILIES, KINDS, SEVERITIES, corrupt
from pixeldiff.tasks import load

Array = np.ndarray[Any, Any]
CLEAN: Condition = ("clean", 0)
_HEAD = ("task", "data", "images", "seed", "models")


@dataclass
class Results:
    """What was scored on what, and the scores. Two runs continue each other if the first four fields agree."""

    task: str
    data: str
    images: int
    seed: int
    models: dict[str, str]  # name -> sha256 of its file
    cells: dict[tuple[str, Condition], Scores] = field(default_factory=dict)

    def missing(self, models: Sequence[str], condition: Condition) -> list[str]:
        return [model for model in models if (model, condition) not in self.cells]

    @property
    def layout(self) -> Layout:
        """How the task's table looks."""
        layout: Layout = load(MODULES[self.task]).LAYOUT
        return layout

    def as_json(self, comparisons: Sequence[Comparison] = ()) -> dict[str, Any]:
        """The file's content: the cells are its `results`."""
        cells = [{"model": m, "kind": k, "severity": s, **scores} for (m, (k, s)), scores in self.cells.items()]
        head = {name: getattr(self, name) for name in _HEAD}
        return {**head, "comparisons": [dataclasses.asdict(found) for found in comparisons], "results": cells}

    @classmethod
    def load(cls, path: Path) -> Results:
        try:
            content = json.loads(path.read_text())
            cells = {
                (c.pop("model"), (c.pop("kind"), c.pop("severity"))): {k: float(v) for k, v in c.items()}
                for c in content["results"]
            }
            found = cls(**{name: content[name] for name in _HEAD}, cells=cells)
            texts = (text for pair in found.models.items() for text in pair)
            complete = (set(found.layout.scores) <= own.keys() and m in found.models for (m, _), own in cells.items())
            if not all(isinstance(text, str) for text in texts) or not all(complete):
                raise ValueError("models are names and hashes, and their cells hold all scores")
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise UserError(f"{path} is not a result file of `pixeldiff robustness`; give another name") from error

    def resume(self, path: Path) -> Results:
        """This run with the cells that `path` holds, if it is a file of the same run."""
        if not path.exists():
            return self
        old = self.load(path)
        for name in ("task", "data", "images", "seed"):
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
    score: Callable[[Condition, Sequence[str], Tick], dict[str, Scores]],
    save: Callable[[], None] = lambda: None,
    started: Callable[[Condition], None] = lambda condition: None,
    tick: Tick = lambda images: None,
) -> None:
    """Score what is missing for these models; `save` is called after each condition."""
    for condition in grid:
        missing = results.missing(models, condition)
        if not missing:
            continue
        started(condition)
        for model, scores in score(condition, missing, tick).items():
            results.cells[model, condition] = scores
        save()


def damage(image: Array, condition: Condition, seed: int) -> Array:
    kind, severity = condition
    return image if condition == CLEAN else corrupt(image, severity, kind, seed=seed)


@dataclass(frozen=True)
class Comparison:
    """Model against reference over the kinds of one severity (None: all), on the first score of a cell."""

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
    metric = results.layout.scores[0]
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
