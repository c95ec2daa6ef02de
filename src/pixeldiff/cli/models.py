"""`pixeldiff models`: the shipped networks."""

from __future__ import annotations

import json
from typing import Any

import click

from pixeldiff import weights

_SCORES = {"ods": "ODS {:.3f}", "ois": "OIS {:.3f}", "top1": "top-1 {:.1f} %", "top5": "top-5 {:.1f} %"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with everything the cards say.")
def models(as_json: bool) -> None:
    """List the networks that come with pixeldiff: size, scores on BSDS500 or CIFAR-100 test, licence."""
    rows = [_row(card) for card in weights.cards().values()]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
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
    for licence in dict.fromkeys(row["licence"] for row in rows):
        names = ", ".join(row["name"] for row in rows if row["licence"] == licence)
        click.echo("\n" + click.wrap_text(f"{names}: {licence or 'no licence is named'}", 80, subsequent_indent="  "))


def _row(card: dict[str, Any]) -> dict[str, Any]:
    """The card, with the size of the file that runs (ONNX or packed, else any); every row has ODS and OIS."""
    files = card.get("files", {})
    runs: dict[str, Any] = files.get(".onnx") or files.get(".pdn") or next(iter(files.values()), {})
    return {"ods": None, "ois": None, **card, "file_bytes": runs.get("bytes"), "licence": card.get("licence")}


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    size = "" if row["file_bytes"] is None else f"{row['file_bytes'] / 1e6:.2f} MB"
    scores = (form.format(row[key]) for key, form in _SCORES.items() if row.get(key) is not None)
    return (row["name"], row["task"], f"{row['params']:,}", size, ", ".join(scores) or "-")
