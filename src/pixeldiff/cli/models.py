"""`pixeldiff models`: the pretrained models."""

from __future__ import annotations

from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.inference.edges import DEFAULT
from pixeldiff.tasks import TASKS, find_task

HEADER = ("name", "task", "parameters", "size", "scores")
RIGHT = ("parameters", "size")  # columns of numbers


@click.command()
@_json.option
@_json.overwrite
def models(json_target: str | None, overwrite: bool) -> None:
    """List the pretrained models: task, size, scores, license. A star marks the default of a task."""
    _json.check(json_target, overwrite)
    cards = weights.cards()
    defaults = [DEFAULT, *(weights.best(task) for task in TASKS if task != "edges" and weights.shipped(task))]
    rows = [_row(card, card["name"] in defaults) for card in cards.values()]
    _json.write(json_target, "models", rows, overwrite=overwrite)
    if json_target == _json.STDOUT:
        return
    if not rows:
        click.echo("no pretrained models come with this version; `pixeldiff recipes` lists what trains one")
        return
    table = [HEADER, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        cells = (
            cell.rjust(width) if name in RIGHT else cell.ljust(width)
            for name, cell, width in zip(HEADER, line, widths, strict=True)
        )
        click.echo("  ".join(cells).rstrip())
    for license in dict.fromkeys(row["license"] for row in rows):
        names = ", ".join(row["name"] for row in rows if row["license"] == license)
        click.echo("\n" + click.wrap_text(f"{names}: {license or 'license not stated'}", 80, subsequent_indent="  "))


def _row(card: dict[str, Any], default: bool) -> dict[str, Any]:
    """Return the card with every score of its task (None if missing) and the size of the file that runs."""
    task = find_task(card["task"])
    file = card.get("files", {}).get(task.suffix, {})
    fields = {"name": card["name"], "task": task.name, **dict.fromkeys(task.scores), "license": None}
    return {**fields, **card, "default": default, "file_bytes": file.get("bytes")}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    size = "" if row["file_bytes"] is None else f"{row['file_bytes'] / 1e6:.2f} MB"
    scores = (form.format(row[key]) for key, form in find_task(row["task"]).scores.items() if row[key] is not None)
    name = row["name"] + (" *" if row["default"] else "")
    return (name, row["task"], f"{row['params']:,}", size, ", ".join(scores) or "-")
