"""Open the model that --model names: a pretrained model, or a weights file.

The file says its task, and the table of tasks which class opens it. Files that only torch reads are exported to a
temporary file, which exists as long as the model is open.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli._options import PERFORMANCE, option
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.inference.backends import DEFAULT_DEVICE
from pixeldiff.machine import run_python
from pixeldiff.tasks import Task, find_task, load


@dataclass(frozen=True)
class Named:
    """A model that a user named."""

    name: str
    task: Task
    path: Path  # its file
    runs: Path  # the file that runs: the same, or an export of it

    @cached_property
    def sha256(self) -> str:
        return weights.sha256(self.path)


@dataclass(frozen=True)
class Open(Named):
    """A model that is ready to run."""

    network: Any  # of the class that its task names


@contextmanager
def open_network(
    given: str | os.PathLike[str],
    task: str | None = None,
    threads: int | None = None,
    streams: int = 1,
    device: str = DEFAULT_DEVICE,
) -> Iterator[Open]:
    """Open the model that a user named, of `task` if that is given; `streams` threads may call it at once.

    Only edge networks run on other devices than the CPU.
    """
    with find_network(given, task) as named:
        placed = {} if device == DEFAULT_DEVICE else {"device": device}
        network = load(named.task.model)(named.runs, threads=threads, streams=streams, **placed)
        yield Open(named.name, named.task, named.path, named.runs, network)


@contextmanager
def find_network(given: str | os.PathLike[str], task: str | None = None) -> Iterator[Named]:
    """Find the model that a user named, as `open_network` does, without opening it."""
    path = weights.runtime_file(given)
    row = find_task(weights.describe(path)["task"])
    if task is not None:
        weights.check_task(given, row.name, task)
    if path.suffix in weights.suffixes(row.name):
        yield Named(path.stem, row, path, path)
        return
    import tempfile  # slow, and of no use to files that run

    with tempfile.TemporaryDirectory() as folder:
        yield Named(path.stem, row, path, _export(path, Path(folder) / f"{path.stem}{row.suffix}"))


def _export(path: Path, destination: Path) -> Path:
    """Export in another process: running and scoring never import torch."""
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("train", str(path), "torch")
    script = "from pixeldiff.cli import main\nmain()"
    done = run_python(script, "export", "-o", str(destination), "--", str(path))
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["export failed"]
        raise UserError(last[0].removeprefix("error: "))
    return destination


def device_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --device, where an edge network runs."""
    says = "Device of the network: cpu, or one of PyTorch (ONNX Runtime for .onnx files) such as cuda:1. [default: cpu]"
    return option(PERFORMANCE, "--device", metavar="NAME", default=DEFAULT_DEVICE, help=says)(command)


def complete_model(task: str) -> Any:
    """Complete the names of a task's pretrained models in a shell."""

    def complete(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
        return [name for name in weights.shipped(task) if name.startswith(begun)]

    return complete
