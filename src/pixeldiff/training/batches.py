"""Batches for the loop: worker processes prepare samples in the order of the run, and end with it."""

from __future__ import annotations

import signal
from typing import Any

import torch
from torch.utils.data import DataLoader

from pixeldiff.errors import UserError
from pixeldiff.training.order import ResumableBatchSampler
from pixeldiff.training.processes import Processes
from pixeldiff.training.run import Run
from pixeldiff.training.tasks import TaskProtocol


class _Samples:
    """A task's samples for the loader. A user's mistake is a value: raised in a worker it would be a traceback."""

    def __init__(self, task: TaskProtocol) -> None:
        self.task = task

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        try:
            return self.task[key]
        except UserError as error:
            return error

    def collate(self, samples: list[Any]) -> Any:
        wrong = [sample for sample in samples if isinstance(sample, UserError)]
        return wrong[0] if wrong else self.task.collate(samples)


def make_loader(task: TaskProtocol, positions: ResumableBatchSampler, workers: int) -> DataLoader[Any]:
    """Batches as tuples of tensors, or the UserError that made one impossible."""
    samples = _Samples(task)
    return DataLoader(
        samples,  # type: ignore[arg-type]
        batch_sampler=positions,
        collate_fn=samples.collate,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_prepare_worker,
        pin_memory=torch.cuda.is_available(),
    )


class Batches:
    """The run's batches in order. Its workers end with it, whatever happens: they ignore signals and are waited for."""

    def __init__(self, run: Run, processes: Processes) -> None:
        self.positions = ResumableBatchSampler(
            len(run.task), run.recipe, run.step, run.steps, processes.rank, processes.world
        )
        self._iterator: Any = iter(make_loader(run.task, self.positions, run.recipe.loop.workers))

    def take(self) -> Any:
        batch = next(self._iterator)
        if isinstance(batch, UserError):
            raise batch
        return batch

    def __enter__(self) -> Batches:
        return self

    def __exit__(self, *_: object) -> None:
        iterator, self._iterator = self._iterator, None
        if hasattr(iterator, "_shutdown_workers"):  # by name: the traceback of an error may still hold the iterator
            iterator._shutdown_workers()


def _prepare_worker(_: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the main process decides when to stop
    torch.set_num_threads(1)
