"""Corrupted images, and what networks make of them: one module per task, found in MODULES. No torch.

LAYOUT                              how the paper lays out the task's table
prepare(data, seed, limit, threads) finds the images -> a Scorer
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

MODULES = {
    "edges": "pixeldiff.robustness.edges",
    "classes": "pixeldiff.robustness.classes",
    "faces": "pixeldiff.robustness.faces",
    "objects": "pixeldiff.robustness.objects",
}

Scores = dict[str, float]
Condition = tuple[str, int]  # kind, severity
Tick = Callable[[int], None]  # hears how many more images are done


@dataclass(frozen=True)
class Layout:
    """A table of the paper: models below each other, a column per kind, the highest severity first."""

    scores: tuple[str, ...]  # of a cell; models are compared on the first
    label: str  # of the first, in words
    axis: str  # and beside a plot
    digits: int
    width: int  # of a column
    kinds: tuple[str, ...]  # if none are named
    blocks: tuple[tuple[str, ...], ...]  # families of kinds that stand beside each other


class Scorer(Protocol):
    """Scores networks on the images of one data set."""

    @property
    def source(self) -> str: ...  # what the images are, for the file

    @property
    def kinds(self) -> Sequence[str]: ...  # if none are named

    @property
    def has_clean(self) -> bool: ...  # whether the uncorrupted images are there, too

    @property
    def streams(self) -> int: ...  # how many images a network will be given at once

    @property
    def images(self) -> int: ...

    def __call__(self, condition: Condition, networks: Mapping[str, Any], tick: Tick) -> dict[str, Scores]:
        """name -> score -> number"""
