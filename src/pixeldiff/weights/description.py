"""The description in a weights file: name, task, preprocessing, labels, license. No torch, no onnxruntime.

It is a JSON object under METADATA_KEY: among the properties of an .onnx file, in the header of all others (.safetensors
and .pdn are both safetensors). Export copies it from the file that training wrote. `JsonReader` checks every value that
is used.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pixeldiff.errors import InputError
from pixeldiff.weights.graph_file import read_properties
from pixeldiff.weights.metadata import migrate

METADATA_KEY = "pixeldiff"
TRAINED = ".safetensors"
AUTHORS = (".pth", ".pt")  # files of the paper's authors: PiDiNets
FOR_TORCH = (TRAINED, *AUTHORS)
MOST_HEADER_BYTES = 10_000_000


def describe(path: Path) -> dict[str, Any]:
    """Read the description of a file; it has a `name` and a `task` at least."""
    if path.suffix in AUTHORS:
        return {"name": path.stem, "task": "edges"}
    text = (read_properties if path.suffix == ".onnx" else _read_header)(path).get(METADATA_KEY)
    if text is None:
        raise InputError(f"{path} holds weights of another network; use a file written by pixeldiff export")
    described = {"name": path.stem, **migrate(read_json(text, path))}
    if "task" not in described:
        raise InputError(f"{path} does not name its task; {'save' if path.suffix == TRAINED else 'export'} it again")
    for key in ("name", "task"):
        JsonReader(described, str(path)).text(key)
    return described


def _read_header(path: Path) -> dict[str, Any]:
    """Read the metadata of a safetensors file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = file.read(length) if length <= MOST_HEADER_BYTES else b""
        return dict(json.loads(header).get("__metadata__") or {})
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not a readable weights file; export or download it again") from error


def read_json(text: str | bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Parse a JSON object: the description in a file, or a model card."""
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{path} is damaged: its description is not a JSON object; export it again") from error


def normalization(described: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of red, green and blue, in [0, 1], that a network expects."""
    fields = JsonReader(JsonReader(described, "the description").value("preprocessing"), "the preprocessing")
    mean, std = fields.numbers("mean", 3), fields.numbers("std", 3)
    if min(std) <= 0:
        raise InputError("the preprocessing needs a std above 0")
    return mean, std


class JsonReader:
    """Typed access to one JSON object; `what` names it in errors."""

    def __init__(self, table: Any, what: str) -> None:
        if not isinstance(table, dict):
            raise InputError(f"{what} is not a JSON object")
        self.table, self.what = table, what

    def value(self, key: str) -> Any:
        if key not in self.table:
            raise InputError(f"{self.what} has no {key!r}")
        return self.table[key]

    def text(self, key: str) -> str:
        value = self.value(key)
        if not isinstance(value, str):
            raise InputError(f"{self.what} has a {key!r} that is not text")
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        return check_integer(self.value(key), low, high, f"{key!r} of {self.what}")

    def boolean(self, key: str) -> bool:
        value = self.value(key)
        if not isinstance(value, bool):
            raise InputError(f"{key!r} of {self.what} is neither true nor false")
        return value

    def number(self, key: str) -> float:
        return check_number(self.value(key), f"{key!r} of {self.what}")

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        value = self.value(key)
        if not isinstance(value, list) or len(value) != count:
            raise InputError(f"{key!r} of {self.what} is not a list of {count} numbers")
        return tuple(check_number(v, f"{key!r} of {self.what}") for v in value)


def check_integer(value: Any, low: int, high: int, what: str) -> int:
    """Return an integer of a file; an error that starts with `what` if it is not one from low to high."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InputError(f"{what} is not an integer from {low} to {high}")
    return value


def check_number(value: Any, what: str) -> float:
    """Return a number of a file; an error that starts with `what` if it is not one."""
    # Compared as they are: a huge whole number would not convert to float.
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e6 < value < 1e6:
        raise InputError(f"{what} has a value that is not a number between -1e6 and 1e6")
    return float(value)
