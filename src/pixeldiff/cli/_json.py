"""`--json FILE|-` of every command: one outer shape, into a file or, for `-`, on stdout.

    {"version": 1, "command": "eval", "results": [...], "failed": [...]}

`results` has one object per image, model or data set, `failed` one per input that failed. What belongs to the whole run
stands beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from pixeldiff.cli import _options
from pixeldiff.cli._outputs import check_outputs, is_json_result
from pixeldiff.errors import OutputError
from pixeldiff.files import atomic_write, check_overwrite

VERSION = 1
STDOUT = "-"

option = _options.option(
    _options.INPUT_OUTPUT,
    "--json",
    "json_target",
    metavar="FILE|-",
    help="Write the results as JSON; - prints them.",
)
overwrite = _options.option(
    _options.INPUT_OUTPUT, "--overwrite", is_flag=True, help="Replace the --json file if it exists."
)


def check(target: str | None, overwrite: bool) -> None:
    """Raise before the work if --json cannot be written after it, or if an output would replace an input."""
    check_outputs()
    if target is None or target == STDOUT:
        return
    path = Path(target)
    if not path.parent.is_dir():
        raise OutputError(f"no folder {path.parent} to write {path.name} into; make it first")
    if path.is_dir():
        raise OutputError(f"--json {path} is a folder; give the name of a file")
    if path.suffix.lower() != ".json" and not is_json_result(path):
        raise OutputError(f"--json {path} is to hold JSON; give a name that ends in .json")
    check_overwrite(path, overwrite)


def write(
    target: str | None,
    command: str,
    results: Sequence[Any],
    failed: Sequence[Any] = (),
    overwrite: bool = False,
    **more: Any,
) -> None:
    """Write or print the results of a command; nothing without a target."""
    if target is None:
        return
    content = {"version": VERSION, "command": command, **more, "results": list(results), "failed": list(failed)}
    text = json.dumps(content, indent=1)
    if target == STDOUT:
        click.echo(text)
        return
    check_overwrite(Path(target), overwrite)
    atomic_write(Path(target), (text + "\n").encode())
