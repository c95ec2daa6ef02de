"""A data set through a metric: one module per task, which `pixeldiff eval` finds in MODULES. No torch.

Options                     what only this task asks: a frozen dataclass, whose fields become options of the command
prepare(options, asked)     finds the data and refuses mistakes before a network is opened -> a Job
job.streams                 how many images its network will be given at once
job.run(network, progress)  scores, and writes the files that the options ask for -> an Outcome
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

MODULES = {
    "edges": "pixeldiff.evaluation.edges",
    "classes": "pixeldiff.evaluation.classes",
    "faces": "pixeldiff.evaluation.faces",
    "objects": "pixeldiff.evaluation.objects",
}
DATASETS = {  # what `eval --dataset` takes
    "edges": ("custom", "bsds500", "nyud", "multicue", "biped"),
    "classes": ("cifar100", "folder"),
    "faces": ("lfw", "cfp-ff", "cfp-fp", "ytf", "calfw", "cplfw", "pairs"),
    "objects": ("voc", "coco", "yolo"),
}

Item = TypeVar("Item")
Result = TypeVar("Result")

# (what is scored, how many) -> a function that hears how many more are done
Progress = Callable[[str, int], Callable[[int], None]]


class Each(Protocol):
    """What calls a function on each of many items, and gives them with their results as they are ready."""

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]: ...


def one_by_one(work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
    """... in this thread."""
    for item in items:
        yield item, work(item)


@dataclass(frozen=True)
class InThreads:
    """... in threads of this process."""

    threads: int

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[Item, Result]]:
        pool = ThreadPoolExecutor(self.threads)
        try:
            futures = {pool.submit(work, item): item for item in items}
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:  # on an error or Ctrl-C nothing new is begun; what runs ends within a moment
            pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class Asked:
    """What `pixeldiff eval` asks of every task."""

    dataset: str
    data: Path | None = None
    threads: int = 1
    cache: Path | None = None  # a file that may keep what is scored already
    overwrite: bool = False
    each: Each | None = None  # where images are scored, if not here


@dataclass(frozen=True)
class Network:
    """A network to score: what it is called, what runs it, and its file's hash."""

    name: str
    run: Any  # of the task's class in runtime
    sha256: str


@dataclass(frozen=True)
class Outcome:
    """One JSON object per thing that was scored, and the same as lines of a table."""

    results: Sequence[dict[str, Any]]
    table: Sequence[str]


class Job(Protocol):
    @property
    def streams(self) -> int: ...

    def run(self, network: Network | None, progress: Progress) -> Outcome: ...
