"""Batches for the loop, prepared by worker processes in the order of the run."""

from __future__ import annotations

import signal
from typing import Any

import torch
from torch.utils.data import DataLoader

from pixeldiff.errors import UserError
from pixeldiff.training.order import ResumableBatchSampler
from pixeldiff.training.processes import Processes
from pixeldiff.training.run import Run
from pixeldiff.training.tasks import TrainData


class _Samples:
    """The training set for the loader. A user's mistake is returned as a value: a worker would print a traceback."""

    def __init__(self, train_data: TrainData) -> None:
        self.train_data = train_data

    def __len__(self) -> int:
        return len(self.train_data)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        try:
            return self.train_data[key]
        except UserError as error:
            return error

    def collate(self, samples: list[Any]) -> Any:
        errors = [sample for sample in samples if isinstance(sample, UserError)]
        return errors[0] if errors else self.train_data.collate(samples)


def make_loader(train_data: TrainData, sampler: ResumableBatchSampler, workers: int) -> DataLoader[Any]:
    """Load batches as tuples of tensors, or the UserError that made one impossible."""
    samples = _Samples(train_data)
    return DataLoader(
        samples,  # type: ignore[arg-type]
        batch_sampler=sampler,
        collate_fn=samples.collate,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_prepare_worker,
        pin_memory=torch.cuda.is_available(),
    )


class Batches:
    """The batches of a run in order. The workers ignore signals; leaving the context ends them and waits for them."""

    def __init__(self, run: Run, processes: Processes) -> None:
        train_data = run.task.train_data
        self.sampler = ResumableBatchSampler(
            len(train_data), run.recipe, run.step, run.steps, processes.rank, processes.world
        )
        self._iterator: Any = iter(make_loader(train_data, self.sampler, run.recipe.train.workers))

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
