"""The table of tasks: everything that differs by task stands in one row.

No command, no server and no script asks "if edges"; it asks the row. A row names its pieces as "module" or
"module:name", so that the table imports nothing; `load` fetches a piece when it is needed. To add a task: one
file of its name in each of data, metrics, evaluation, robustness, models, training/tasks and inference, and one row
here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pixeldiff.errors import UserError


@dataclass(frozen=True)
class Task:
    """One row."""

    name: str
    suffix: str  # of the file that runs without torch
    scores: Mapping[str, str]  # what a card holds and how it is printed; the first one ranks networks
    datasets: tuple[str, ...]  # what `eval --dataset` takes; the first one if none is named
    command: str  # scores the pretrained model {name}, as its card says
    license: str  # of shipped weights
    runtime: str  # a class: (path, threads=, streams=) -> a network ready to run
    evaluation: str  # a module: Options, prepare; see pixeldiff.evaluation
    robustness: str  # a module: LAYOUT, prepare; see pixeldiff.robustness
    training: str  # a module: Data, Loss, Evaluate, Task, Network; see pixeldiff.training.tasks
    export: str  # (weights, destination, pattern=None) -> how far the file is from the network
    bench: str  # (path, threads, images, others) -> figures; `others` run the same network, to compare with
    also: tuple[str, ...] = ()  # what else a card takes from the scores, for those who run the network
    runs_too: tuple[str, ...] = ()  # suffixes of further files that export writes and the runtime takes


_ROWS = (
    Task(
        name="edges",
        suffix=".safetensors",
        runs_too=(".onnx",),
        scores={"ods": "ODS {:.3f}", "ois": "OIS {:.3f}", "ap": "AP {:.3f}"},
        datasets=("custom", "bsds500", "nyud", "multicue", "biped"),
        command="pixeldiff eval --model {name} --dataset bsds500 --data BSDS500",
        license="Apache-2.0 for the file; BSDS500, on which it was trained, is for non-commercial research and "
        "education",
        runtime="pixeldiff.detector:EdgeDetector",
        evaluation="pixeldiff.evaluation.edges",
        robustness="pixeldiff.robustness.edges",
        training="pixeldiff.training.tasks.edges",
        export="pixeldiff.export.onnx:export_weights",
        bench="pixeldiff.jobs.bench:measure_edges",
    ),
    Task(
        name="classes",
        suffix=".pdn",
        scores={"top1": "top-1 {:.1f} %", "top5": "top-5 {:.1f} %"},
        datasets=("cifar100", "folder"),
        command="pixeldiff eval --model {name} --dataset cifar100 --data cifar-100-python",
        license="Apache-2.0 for the file; CIFAR-100, on which it was trained, names no license: take it for research",
        runtime="pixeldiff.inference.classes:Classifier",
        evaluation="pixeldiff.evaluation.classes",
        robustness="pixeldiff.robustness.classes",
        training="pixeldiff.training.tasks.classes",
        export="pixeldiff.export.packed:export_packed",
        bench="pixeldiff.jobs.bench:measure_classes",
    ),
    Task(
        name="faces",
        suffix=".pdn",
        scores={"accuracy": "accuracy {:.1f} %", "auc": "AUC {:.3f}"},
        datasets=("lfw", "cfp-ff", "cfp-fp", "ytf", "calfw", "cplfw", "pairs"),
        command="pixeldiff eval --model {name} --dataset lfw --data lfw",
        license="Apache-2.0 for the file; CFP and IMFDB, on which it was trained, are for research",
        runtime="pixeldiff.inference.faces:FaceEmbedder",
        evaluation="pixeldiff.evaluation.faces",
        robustness="pixeldiff.robustness.faces",
        training="pixeldiff.training.tasks.faces",
        export="pixeldiff.export.packed:export_packed",
        bench="pixeldiff.jobs.bench:measure_faces",
        also=("threshold", "true_accepts", "false_accepts"),
    ),
    Task(
        name="objects",
        suffix=".onnx",
        scores={"map50": "mAP@.5 {:.1f} %", "ap": "AP {:.1f} %"},
        datasets=("voc", "coco", "yolo"),
        command="pixeldiff eval --model {name} --dataset voc --data VOCdevkit",
        license="Apache-2.0 for the file; VOC 2012, on which it was trained, has photographs of Flickr under its terms",
        runtime="pixeldiff.inference.objects:ObjectDetector",
        evaluation="pixeldiff.evaluation.objects",
        robustness="pixeldiff.robustness.objects",
        training="pixeldiff.training.tasks.objects",
        export="pixeldiff.export.objects:export_objects",
        bench="pixeldiff.jobs.bench:measure_objects",
    ),
)

TASKS: dict[str, Task] = {row.name: row for row in _ROWS}


def find_task(name: str) -> Task:
    """The row of a task."""
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; there are {', '.join(TASKS)}")
    return TASKS[name]


def task_of_dataset(name: str) -> Task:
    """The task whose networks are scored on this data set."""
    for task in TASKS.values():
        if name in task.datasets:
            return task
    known = ", ".join(dataset for task in TASKS.values() for dataset in task.datasets)
    raise UserError(f"unknown data set {name!r}; there are {known}")


def load(piece: str) -> Any:
    """The module, or the name in a module, that a row speaks of."""
    module, _, name = piece.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
