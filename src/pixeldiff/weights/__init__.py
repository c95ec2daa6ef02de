"""The shipped weights: one card (JSON) per network, beside its files. No torch here.

`<name>.json` is the card, `<name>.safetensors` is for training and research, and the file that runs, which may be the
same, ends as the table of tasks says. A name means the pretrained model, also where a file here is called so; anything
else is a file.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from pixeldiff.errors import UserError, suggestion
from pixeldiff.tasks import TASKS, find_task
from pixeldiff.weights.description import FOR_TORCH, TRAINED, read_json
from pixeldiff.weights.description import describe as describe

FOLDER = Path(__file__).parent
EXTRA_SUFFIXES = {"edges": (".onnx",)}  # of further files that run, by task


def canonical_name(name: str) -> str:
    """One spelling for a network: "pidinet_tiny_l", "PiDiNet-tiny-l" and "tiny-l" are the same edge network."""
    return re.sub("_l$", "-l", re.sub("^pidinet[_-]", "", name.lower()))


def cards() -> dict[str, dict[str, Any]]:
    """Every pretrained model's card, by name."""
    return {path.stem: read_json(path.read_bytes(), path) for path in sorted(FOLDER.glob("*.json"))}


def suffixes(task: str) -> tuple[str, ...]:
    """Return the suffixes of files that run a task without an export, the usual one first."""
    return (find_task(task).suffix, *EXTRA_SUFFIXES.get(task, ()))


def shipped(task: str) -> dict[str, Path]:
    """The pretrained models of a task, by name, and the files that run."""
    suffix = find_task(task).suffix
    return {name: FOLDER / f"{name}{suffix}" for name, card in cards().items() if card["task"] == task}


def best(task: str) -> str:
    """The pretrained model with the highest score of a task."""
    scores = {name: cards()[name][next(iter(find_task(task).scores))] for name in shipped(task)}
    if not scores:
        raise UserError(
            f"no network for {task} is shipped with this version; train one (pixeldiff recipes names how) and give its "
            "file with --model"
        )
    return max(scores, key=scores.__getitem__)


def resolve(given: str | os.PathLike[str]) -> Path:
    """The file that runs of the pretrained model of that name, or a file as given."""
    return _find(given, None)


def trained(given: str | os.PathLike[str]) -> Path:
    """The file for torch of the pretrained model of that name, or a file as given."""
    return _find(given, TRAINED)


def runnable(given: str | os.PathLike[str], task: str) -> tuple[Path, dict[str, Any]]:
    """A file that runs without torch, and what it says of its network, which does this task."""
    path, row = Path(given), find_task(task)
    if path.suffix in FOR_TORCH and path.suffix not in suffixes(task):
        to = f"{path.stem}{row.suffix}"
        raise UserError(f"{path} needs torch to run; export it first: pixeldiff export {path} -o {to}")
    path = resolve(given)
    described = describe(path)
    check_task(given, described["task"], task)
    return path, described


def check_task(given: str | os.PathLike[str], task: str, wanted: str) -> None:
    if task != wanted:
        there = ", ".join(shipped(wanted)) or "none shipped"
        raise UserError(f"{given} is a network for {task}, not for {wanted}; there are {there} (or give a file)")


def _find(given: str | os.PathLike[str], suffix: str | None) -> Path:
    name, path = os.fspath(given), Path(given)
    if name == path.name and os.path.isfile(card := FOLDER / f"{canonical_name(name)}.json"):
        file = card.with_suffix(suffix or find_task(read_json(card.read_bytes(), card)["task"]).suffix)
        if not file.is_file():
            raise UserError(
                f"{file.name} is not part of the wheels; pip install --no-binary pixeldiff pixeldiff has it"
            )
        return file
    if os.path.isfile(path):  # False where Path.is_file raises: a name too long for a file
        return path
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder; give the weights file in it")
    if path.suffix in (*FOR_TORCH, *(suffix for task in TASKS for suffix in suffixes(task))):
        raise UserError(f"no weights file {name[:300]}; check the name")
    raise UserError(f"no pretrained model named {name[:99]!r}; {suggestion(name[:99], cards())} (or give a file)")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
