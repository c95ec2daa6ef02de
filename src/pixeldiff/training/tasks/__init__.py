"""Tasks: data, loss and evaluation of one kind of problem, each in a module that the one training loop drives.

A task module has three frozen dataclasses, `Data`, `Loss` and `Evaluate` (the recipe's tables of the same names), a
class `Task` with the members of `TaskProtocol`, and `Network`, the config of the networks that it trains. To add a
task, write its module and name it in the task's row of `pixeldiff.tasks`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

from pixeldiff.tasks import find_task, load


class TaskProtocol(Protocol):
    """What the loop asks of a task; built as Task(recipe).

    A sample is named by (epoch, index): everything random about it comes from (seed, epoch, index), so neither the
    number of workers nor a restart changes it.
    """

    preprocessing: dict[str, Any]  # how its networks see images; travels with the weights
    labels: tuple[str, ...]  # names of the classes, which travel with the weights; empty without classes

    def __len__(self) -> int:
        """Entries of the training set: one epoch."""

    def __getitem__(self, key: tuple[int, int]) -> Any:
        """The sample of (epoch, index)."""

    def name(self, index: int) -> str:
        """What a person calls entry `index`."""

    def collate(self, samples: list[Any]) -> Any:
        """Samples as one batch: a tuple of tensors."""

    def loss(self, model: Any, batch: Any) -> Any:
        """The mean of the images' losses, a scalar tensor."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Scores on the validation set, the one that decides about "best" first; empty without such a set."""

    def preview(self, model: Any) -> Any:
        """An image to look at, uint8 (H, W, 3), or None."""


def task_module(name: str) -> ModuleType:
    """The module of a task by name."""
    module: ModuleType = load(find_task(name).training)
    return module
