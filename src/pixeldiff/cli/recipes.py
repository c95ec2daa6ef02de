"""`pixeldiff recipes [RECIPE]`: what `pixeldiff train` can be asked for, and the published numbers."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.cli import _json
from pixeldiff.errors import MissingExtra

if TYPE_CHECKING:
    from pixeldiff.training.recipe_file import RecipeFile

WIDTH, MARGIN = 80, 26  # columns of the list, and of its names


@click.command()
@click.argument("recipe", required=False)
@_json.option
@_json.overwrite
def recipes(recipe: str | None, json_target: str | None, overwrite: bool) -> None:
    """List the shipped recipes with their runs or stages, or what one RECIPE holds."""
    try:
        from pixeldiff.training.recipe_file import names, read_file
    except ImportError as error:  # TOML, before Python 3.11
        raise MissingExtra("train", "reading recipes", error.name) from error

    _json.check(json_target, overwrite)
    files = [read_file(name) for name in ([recipe] if recipe else names())]
    rows = [_row(file, whole=recipe is not None) for file in files]
    _json.write(json_target, "recipes", rows, overwrite=overwrite)
    if json_target != _json.STDOUT:
        print(_one(rows[0]) if recipe else "\n".join(_listed(row) for row in rows))


def _row(file: RecipeFile, *, whole: bool) -> dict[str, Any]:
    """A recipe as --json gives it; `whole` with the complete table of each run or stage."""

    def described(table: dict[str, Any]) -> dict[str, Any]:
        return {"paper": table.get("paper", ""), **({"table": table} if whole else {})}

    return {
        "task": file.shared.get("task", ""),
        "recipe": file.name,
        "file": str(file.path),
        **described(file.shared),
        "runs": [{"name": name, **described(table)} for name, table in file.runs.items()],
        "stages": [{"name": name, **described(table)} for name, table in file.stages.items()],
    }


def _listed(row: dict[str, Any]) -> str:
    """A recipe in the list: what it is for, and its parts."""
    lines = textwrap.wrap(row["paper"], WIDTH - MARGIN, break_on_hyphens=False) or [""]
    for kind in ("runs", "stages"):
        if row[kind]:
            names = f"{kind}: {', '.join(part['name'] for part in row[kind])}"
            lines += textwrap.wrap(names, WIDTH - MARGIN, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(f"{'' if k else row['recipe']:{MARGIN}}{line}" for k, line in enumerate(lines))


def _one(row: dict[str, Any]) -> str:
    """Everything about one: its parts with their numbers, the file, and how to train it."""
    lines = _wrapped(f"{row['recipe']} ({row['task']}): ", row["paper"], indent=4)
    parts = row["runs"] or row["stages"]
    wide = max((len(part["name"]) for part in parts), default=0)
    for part in parts:
        own = part["paper"] if part["paper"] != row["paper"] else ""
        lines += _wrapped(f"  {part['name']:{wide}}  ", own, indent=wide + 4)
    choice = " --run NAME" if row["runs"] else " [--stage NAME]" if row["stages"] else ""
    return "\n".join([*lines, row["file"], f"pixeldiff train {row['recipe']}{choice} --out DIR"])


def _wrapped(start: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(start + text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
