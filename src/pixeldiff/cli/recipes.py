"""`pixeldiff recipes [RECIPE]`: the recipes of `pixeldiff train`, and the published numbers."""

from __future__ import annotations

import json
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
@click.option("--resolved", is_flag=True, help="All keys of RECIPE, with what it extends, in the order of its parts.")
@_json.option
@_json.overwrite
def recipes(recipe: str | None, resolved: bool, json_target: str | None, overwrite: bool) -> None:
    """List the shipped recipes with their variants or stages, or describe one RECIPE."""
    try:
        from pixeldiff.training.recipe_file import names, read_file
    except ImportError as error:  # TOML, before Python 3.11
        raise MissingExtra("train", "reading recipes", error.name) from error

    if resolved and not recipe:
        raise click.UsageError("--resolved needs a RECIPE")
    _json.check(json_target, overwrite)
    files = [read_file(name) for name in ([recipe] if recipe else names())]
    rows = [_row(file, with_tables=recipe is not None) for file in files]
    _json.write(json_target, "recipes", rows, overwrite=overwrite)
    if json_target != _json.STDOUT:
        if resolved:
            print("\n\n".join(_resolved(files[0])))
        else:
            print(_described(rows[0]) if recipe else "\n".join(_listed(row) for row in rows))


def _row(file: RecipeFile, *, with_tables: bool) -> dict[str, Any]:
    """A recipe as --json prints it, with the complete table of each variant or stage on request."""

    def described(table: dict[str, Any]) -> dict[str, Any]:
        texts = {key: table.get(key, "") for key in ("description", "reference")}
        return {**texts, **({"table": table} if with_tables else {})}

    return {
        "task": file.shared.get("task", ""),
        "recipe": file.name,
        "file": str(file.path),
        **described(file.shared),
        "variants": [{"name": name, **described(table)} for name, table in file.variants.items()],
        "stages": [{"name": name, **described(table)} for name, table in file.stages.items()],
    }


def _listed(row: dict[str, Any]) -> str:
    """A recipe in the list: its description, and its variants or stages."""
    lines = textwrap.wrap(row["description"], WIDTH - MARGIN, break_on_hyphens=False) or [""]
    for kind in ("variants", "stages"):
        if row[kind]:
            names = f"{kind}: {', '.join(part['name'] for part in row[kind])}"
            lines += textwrap.wrap(names, WIDTH - MARGIN, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(f"{'' if k else row['recipe']:{MARGIN}}{line}" for k, line in enumerate(lines))


def _described(row: dict[str, Any]) -> str:
    """One recipe: its variants or stages with the published numbers, its file, and how to train it."""
    lines = _wrapped(f"{row['recipe']} ({row['task']}): ", row["description"], indent=4)
    if row["reference"]:
        lines += _wrapped("reference: ", row["reference"], indent=4)
    parts = row["variants"] or row["stages"]
    width = max((len(part["name"]) for part in parts), default=0)
    for part in parts:
        reference = part["reference"] if part["reference"] != row["reference"] else ""
        lines += _wrapped(f"  {part['name']:{width}}  ", reference, indent=width + 4)
    choice = " --variant NAME" if row["variants"] else " [--stage NAME]" if row["stages"] else ""
    return "\n".join([*lines, row["file"], f"pixeldiff train {row['recipe']}{choice} -o DIR"])


def _resolved(file: RecipeFile) -> list[str]:
    """Each part of a recipe as TOML, a key per line."""
    variants = {f"# variant {name}\n": table for name, table in file.variants.items()}
    stages = {f"# stage {name}\n": table for name, table in file.stages.items()}
    return [header + "\n".join(_toml(table)) for header, table in ({**variants, **stages} or {"": file.shared}).items()]


def _toml(table: dict[str, Any], prefix: str = "") -> list[str]:
    """The lines `key.key = value` of a table."""
    lines: list[str] = []
    for key, value in table.items():
        lines += _toml(value, f"{prefix}{key}.") if isinstance(value, dict) else [f"{prefix}{key} = {_value(value)}"]
    return lines


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value)


def _wrapped(start: str, text: str, indent: int) -> list[str]:
    return textwrap.wrap(start + text, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)
