"""From --model NAME or --weights FILE to a file that runs; those of the torch world are exported on the way."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from pixeldiff.errors import UserError
from pixeldiff.tasks import Task, load
from pixeldiff.weights import TORCH_SUFFIXES, cards, resolve, sha256


def complete_model(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """The shipped networks that fit the verb, for shells that complete words."""
    task = "classes" if context.info_name == "classify" else "edges"
    return [name for name, card in cards().items() if card["task"] == task and name.startswith(begun)]


@contextmanager
def network_file(model: str | None, weights: Path | None, suffix: str) -> Iterator[tuple[Path, Path]]:
    """The network's file, and the one with `suffix` to run, which may last only as long as the context."""
    if (model is None) == (weights is None):
        raise UserError("give --model NAME or --weights FILE, one of them; they exclude each other")
    path = resolve(weights or str(model), suffix)
    if path.suffix not in TORCH_SUFFIXES:
        yield path, path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield path, _export(path, Path(folder) / f"{path.stem}{suffix}")


def _export(path: Path, graph: Path) -> Path:
    """ONNX or packed from a torch file. In a process of its own: running and scoring never import torch."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(f"{path} needs torch to run; install it with: pip install 'pixeldiff[train]'")
    command = [sys.executable, "-m", "pixeldiff", "export", str(path), "--to", str(graph)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["export failed"]
        raise UserError(last[0].removeprefix("pixeldiff: "))
    return graph


@contextmanager
def open_network(given: str | Path, task: Task, threads: int, streams: int = 1) -> Iterator[tuple[str, Any, str]]:
    """A network by its shipped name or its file: what it is called, what runs it, and its file's hash."""
    model, weights = (given, None) if isinstance(given, str) else (None, given)
    with network_file(model, weights, task.suffix) as (path, runs):
        parallel = {"streams": streams} if streams > 1 else {}
        yield model or path.stem, load(task.runtime)(runs, threads=threads, **parallel), sha256(path)
