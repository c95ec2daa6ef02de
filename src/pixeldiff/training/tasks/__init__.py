"""Tasks: data, loss and scores of one kind of problem, each in a module that the one training loop drives.

A task module has frozen dataclasses for the recipe's tables of the same names, and a class `Task` with the members of
`TaskProtocol`. To add a task, write its module and name it in MODULES.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

from pixeldiff.tasks import find_task, load

MODULES = {
    "edges": "pixeldiff.training.tasks.edges",
    "classes": "pixeldiff.training.tasks.classes",
    "faces": "pixeldiff.training.tasks.faces",
    "objects": "pixeldiff.training.tasks.objects",
}


class TrainData(Protocol):
    """The training set of a task, a map-style torch Dataset.

    The key of a sample is (epoch, index). Everything random about the sample comes from (seed, epoch, index), so$
    neither the number of workers nor a restart changes it.
    """

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""

    def __getitem__(self, key: tuple[int, int]) -> Any:
        """Return the sample of (epoch, index)."""

    def name(self, index: int) -> str:
        """Describe sample `index` for a message."""

    def collate(self, samples: list[Any]) -> Any:
        """Make one batch of samples, a tuple of tensors."""


class TaskProtocol(Protocol):
    """What the loop asks of a task; built as Task(recipe)."""

    train_data: TrainData
    preprocessing: dict[str, Any]  # of its networks' input; written into the weights
    labels: tuple[str, ...]  # names of the classes, written into the weights; empty without classes

    def loss(self, model: Any, batch: Any) -> Any:
        """Return the mean loss of the images in a batch, a scalar tensor."""

    def evaluate(self, model: Any) -> dict[str, float]:
        """Score the validation set; the first score decides about "best". Empty without such a set."""

    def preview(self, model: Any) -> Any:
        """Draw results, uint8 (H, W, 3), or return None."""


def task_module(name: str) -> ModuleType:
    """Return the module of a task."""
    module: ModuleType = load(MODULES[find_task(name).name])
    return module
