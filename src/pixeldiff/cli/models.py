"""`pixeldiff models`: the pretrained models."""

from __future__ import annotations

from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.tasks import find_task


@click.command()
@_json.option
@_json.overwrite
def models(json_target: str | None, overwrite: bool) -> None:
    """List the networks that come with pixeldiff: task, size, scores, license."""
    _json.check(json_target, overwrite)
    rows = [_row(card) for card in weights.cards().values()]
    _json.write(json_target, "models", rows, overwrite=overwrite)
    if json_target == _json.STDOUT:
        return
    if not rows:
        click.echo("no networks are shipped with this version; train one or export weights of your own")
        return
    header = ("name", "task", "parameters", "size", "scores")
    table = [header, *(_cells(row) for row in rows)]
    widths = [max(len(line[k]) for line in table) for k in range(len(header))]
    for line in table:
        # Words to the left, numbers to the right.
        cells = (c.rjust(w) if k in (2, 3) else c.ljust(w) for k, (c, w) in enumerate(zip(line, widths, strict=True)))
        click.echo("  ".join(cells).rstrip())
    for license in dict.fromkeys(row["license"] for row in rows):
        names = ", ".join(row["name"] for row in rows if row["license"] == license)
        click.echo("\n" + click.wrap_text(f"{names}: {license or 'no license is named'}", 80, subsequent_indent="  "))


def _row(card: dict[str, Any]) -> dict[str, Any]:
    """The card, with every score of its task and the size of the file that runs."""
    task = find_task(card["task"])
    runs = card.get("files", {}).get(task.suffix, {})
    named = {"name": card["name"], "task": task.name, **dict.fromkeys(task.scores), "license": None}
    return {**named, **card, "file_bytes": runs.get("bytes")}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    size = "" if row["file_bytes"] is None else f"{row['file_bytes'] / 1e6:.2f} MB"
    scores = (form.format(row[key]) for key, form in find_task(row["task"]).scores.items() if row[key] is not None)
    return (row["name"], row["task"], f"{row['params']:,}", size, ", ".join(scores) or "-")
