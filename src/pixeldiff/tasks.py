"""The tasks that models do: name, file suffix, scores, and the class that runs a model.

What else differs by task stands in a dictionary beside its user, with the task's name as the key.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pixeldiff.errors import UserError


@dataclass(frozen=True)
class Task:
    """One task."""

    name: str
    suffix: str  # of the file that runs without torch
    scores: Mapping[str, str]  # what a model card holds and how it is printed; the first one ranks models
    model: str  # "module:Class", called with (path, threads=, streams=)


TASKS = {
    task.name: task
    for task in (
        Task(
            "edges",
            ".safetensors",
            {"ods": "ODS {:.3f}", "ois": "OIS {:.3f}", "ap": "AP {:.3f}"},
            "pixeldiff.inference.edges:EdgeNetwork",
        ),
        Task(
            "classes",
            ".pdn",
            {"top1": "top-1 {:.1f} %", "top5": "top-5 {:.1f} %"},
            "pixeldiff.inference.classes:Classifier",
        ),
        Task(
            "faces",
            ".pdn",
            {"accuracy": "accuracy {:.1f} %", "auc": "AUC {:.3f}"},
            "pixeldiff.inference.faces:FaceEmbedder",
        ),
        Task(
            "objects",
            ".onnx",
            {"map50": "mAP@.5 {:.1f} %", "ap": "AP {:.1f} %"},
            "pixeldiff.inference.objects:ObjectDetector",
        ),
    )
}


def find_task(name: str) -> Task:
    """Return the task of that name."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; expected {', '.join(TASKS)}")
    return TASKS[name]


def load(target: str) -> Any:
    """Import "module" or "module:name" and return it."""
    module, _, name = target.partition(":")
    imported = importlib.import_module(module)
    return getattr(imported, name) if name else imported
