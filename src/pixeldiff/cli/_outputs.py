"""No output of a command replaces what the command reads, --overwrite or not.

This looks at the arguments and options of the running command. The results of single images are `files.check_targets`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click

from pixeldiff.errors import OutputError
from pixeldiff.files import holds

# The parameters of all commands that name what is written; every other parameter may name what is read.
OUTPUTS = {
    "output": "-o",
    "json_target": "--json",
    "plot": "--plot",
    "per_image": "--per-image",
    "text_files": "--text-files",
    "embeddings": "",  # inference/face_index.py replaces only files of its own kind
}
_PLOT = b"Matplotlib"
_JSON_START = b'{\n "version": 1,\n "command": "'


def check_outputs() -> None:
    """Refuse an output file that the running command also reads, or that lies in a folder which it reads."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    given = context.params
    inputs = [value for name in given.keys() - OUTPUTS.keys() for value in _texts(given[name])]
    for name, option in OUTPUTS.items():
        for output in _texts(given.get(name)) if option else ():
            if os.path.isfile(output) and (read := next((one for one in inputs if _reads(one, output)), None)):
                where = "is an input" if _is_same(read, output) else f"is among the inputs ({read})"
                raise OutputError(f"{option} {output} {where}; give another name")


def is_json_result(path: Path) -> bool:
    """Whether a file holds the results of one of our commands."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(_JSON_START)) == _JSON_START
    return False


def _texts(value: Any) -> Iterator[str]:
    """What a parameter says that may be a path; a source such as IMAGES:LABELS also by its parts."""
    if isinstance(value, tuple | list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str | Path):
        text = str(value)
        yield from dict.fromkeys([text, *text.split(":")])


def _reads(given: str, output: str) -> bool:
    """Whether the input `given` means the file `output`: it is the file, a folder above it, or a glob that fits."""
    if _is_same(given, output):
        return True
    if is_json_result(Path(output)) or holds(Path(output), _PLOT):  # users keep results beside their images
        return False
    if os.path.isdir(given):
        return Path(os.path.realpath(given)) in Path(os.path.realpath(output)).parents
    return not os.path.exists(given) and fnmatch(os.path.abspath(output), os.path.abspath(given))


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):  # not there, or not a path
        return False
