"""The pretrained models: a model card (JSON) each, beside its files.

`<name>.json` is the model card, `<name>.safetensors` the file for training and research. The file that runs may be the
same; the table of tasks has its suffix. A name means the pretrained model even if a file in the current folder has that
name; anything else is a file.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from pixeldiff.errors import InputError, UserError, suggestion
from pixeldiff.tasks import TASKS, find_task
from pixeldiff.weights.description import FOR_TORCH, TRAINED, read_json
from pixeldiff.weights.description import describe as describe

FOLDER = Path(__file__).parent
EXTRA_SUFFIXES = {"edges": (".onnx",)}  # of further files that run, by task


def canonical_name(name: str) -> str:
    """Return the one spelling of a name: "pidinet_tiny_l", "PiDiNet-tiny-l" and "tiny-l" are the same model."""
    return re.sub("_l$", "-l", re.sub("^pidinet[_-]", "", name.lower()))


def cards() -> dict[str, dict[str, Any]]:
    """Read the model card of every pretrained model, by name."""
    return {path.stem: read_json(path.read_bytes(), path) for path in sorted(FOLDER.glob("*.json"))}


def suffixes(task: str) -> tuple[str, ...]:
    """Return the suffixes of files that run a task without an export, the usual one first."""
    return (find_task(task).suffix, *EXTRA_SUFFIXES.get(task, ()))


def shipped(task: str) -> dict[str, Path]:
    """Return the pretrained models of a task by name, each with the file that runs."""
    suffix = find_task(task).suffix
    return {name: FOLDER / f"{name}{suffix}" for name, card in cards().items() if card["task"] == task}


def best(task: str) -> str:
    """Return the name of the pretrained model with the highest score of a task."""
    scores = {name: cards()[name][next(iter(find_task(task).scores))] for name in shipped(task)}
    if not scores:
        raise UserError(
            f"no pretrained model for {task} in this version; train one (see pixeldiff recipes) and give its file"
        )
    return max(scores, key=scores.__getitem__)


def runtime_file(model: str | os.PathLike[str]) -> Path:
    """Return the file that runs of the pretrained model of that name, or the file itself."""
    return _find(model, None)


def training_file(model: str | os.PathLike[str]) -> Path:
    """Return the file for torch of the pretrained model of that name, or the file itself."""
    return _find(model, TRAINED)


def runnable(model: str | os.PathLike[str], task: str) -> tuple[Path, dict[str, Any]]:
    """Return a file that runs a task without an export, and its description."""
    path = Path(model)
    if path.suffix in FOR_TORCH and path.suffix not in suffixes(task):
        target = f"{path.stem}{find_task(task).suffix}"
        raise InputError(f"{path} needs torch to run; export it first: pixeldiff export {path} -o {target}")
    path = runtime_file(model)
    described = describe(path)
    check_task(model, described["task"], task)
    return path, described


def check_task(model: str | os.PathLike[str], task: str, expected: str) -> None:
    """Raise an error if a model is for another task than expected."""
    if task != expected:
        names = ", ".join(shipped(expected)) or "none"
        raise InputError(f"{model} is a model for {task}, not for {expected}; pretrained are {names} (or give a file)")


def _find(model: str | os.PathLike[str], suffix: str | None) -> Path:
    name, path = os.fspath(model), Path(model)
    if name == path.name and os.path.isfile(card := FOLDER / f"{canonical_name(name)}.json"):
        file = card.with_suffix(suffix or find_task(read_json(card.read_bytes(), card)["task"]).suffix)
        if not file.is_file():
            raise InputError(
                f"{file.name} is not part of the wheels; pip install --no-binary pixeldiff pixeldiff has it"
            )
        return file
    if os.path.isfile(path):  # False where Path.is_file raises: a name too long for a file
        return path
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; give the weights file in it")
    if path.suffix in (*FOR_TORCH, *(suffix for task in TASKS for suffix in suffixes(task))):
        raise InputError(f"no weights file {name[:300]}; check the name")
    raise InputError(f"no pretrained model named {name[:99]!r}; {suggestion(name[:99], cards())} (or give a file)")


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
