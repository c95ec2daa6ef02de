"""Recipe files: TOML with shared keys on top, then the runs of a table or the stages of a network.

    [run.c16]                     # one row of a table: pixeldiff train edges/patterns --run c16
    model.pattern = "c16"

    [[stage]]                     # one after the other, each from the weights of the one before
    name = "first"
    schedule.epochs = 24

A run or a stage holds only the keys that it changes; a file without either is one recipe. `extends = "other.toml"`
(relative to the file) takes the shared keys of another, not its runs or stages. The shipped files are called by their
place: edges/patterns is recipes/edges/patterns.toml. This module needs no torch: what the keys mean is in `recipe`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pixeldiff.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "recipes"
LARGEST_FILE = 2**16  # bytes; recipes have some thousand
LONGEST_LINE = 2000  # reading a key takes time as the square of its length
DEPTH = 8  # of tables in tables, and of recipes that extend each other
Table = dict[str, Any]


@dataclass(frozen=True)
class RecipeFile:
    """What a file holds: `shared` alone, or the complete tables of its runs or of its stages, in order."""

    name: str
    path: Path
    shared: Table
    runs: dict[str, Table] = field(default_factory=dict)
    stages: dict[str, Table] = field(default_factory=dict)

    def table(self, run: str = "", stage: str = "") -> Table:
        """The table of one run or stage, or that of a file without."""
        if run and stage:
            raise UserError(f"{self.name}: a recipe has runs or stages; give --run or --stage, not both")
        for kind, wanted, parts in (("run", run, self.runs), ("stage", stage, self.stages)):
            if wanted and wanted not in parts:
                raise UserError(f"{self.name} has no {kind} {shown(wanted)}; {self._parts()}")
            if wanted:
                return parts[wanted]
        if self.runs or self.stages:
            raise UserError(f"{self.name}: which one? {self._parts()}")
        return self.shared

    def _parts(self) -> str:
        for kind, parts in (("run", self.runs), ("stage", self.stages)):
            if parts:
                return f"choose with --{kind}: {', '.join(parts)}"
        return "it is one recipe, without runs or stages"


def names() -> list[str]:
    """The shipped recipes, as a user calls them."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.toml"))


def read_file(recipe: str | Path) -> RecipeFile:
    """A shipped recipe by its name, or a file of the user's (./edges/patterns if it has the name of a shipped one)."""
    name = str(recipe)
    path = FOLDER / f"{name}.toml" if name in names() else Path(recipe)
    table = _read(path)
    runs, stages = _named_runs(table.pop("run", {}), name), _named_stages(table.pop("stage", []), name)
    if runs and stages:
        raise UserError(f"recipe {name} has runs and stages; divide it into two files")
    return RecipeFile(
        name,
        path,
        table,
        {key: merged(table, changes) for key, changes in runs.items()},
        {key: merged(table, changes) for key, changes in stages.items()},
    )


def changed(table: Table, changes: Iterable[str]) -> Table:
    """The table after `--set key=value`: a TOML value, or else a text (`model.pattern=c16`)."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise UserError(f"--set takes key=value, for example seed=1 or schedule.epochs=3; got {shown(change)}")
        value = _value(text.strip())
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        _check_odd(value, "--set")
        table = merged(table, value)
    return table


def merged(base: Table, changes: Table) -> Table:
    """`base` with the keys of `changes`, table by table."""
    result = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def shown(value: Any) -> str:
    """A value of the user's, not longer than a line bears."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _read(path: Path, seen: tuple[Path, ...] = ()) -> Table:
    """The table of a file and of what it extends."""
    if (here := Path(os.path.abspath(path))) in seen:
        raise UserError(f"recipe {path} extends itself")
    if len(seen) > DEPTH:
        raise UserError(f"recipe {seen[0]} extends more than {DEPTH} others; put what they say into fewer")
    table = _load(path)
    _check_odd(table, f"recipe {path}")
    if "extends" not in table:
        return table
    base = table.pop("extends")
    if not isinstance(base, str):
        raise UserError(f"extends names one recipe file, got {shown(base)}")
    shared = _read(path.parent / base, (*seen, here))
    return merged({key: value for key, value in shared.items() if key not in ("run", "stage")}, table)


def _load(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)  # not by its size: /dev/zero says it has none
        if len(content) > LARGEST_FILE:
            raise UserError(f"recipe {path} is larger than {LARGEST_FILE >> 10} KB; recipes name data, not hold it")
        text = content.decode("utf-8")
        if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:
            raise UserError(f"recipe {path} has a line of more than {LONGEST_LINE} characters; divide it")
        table: Table = tomllib.loads(text)
        return table
    except IsADirectoryError as error:
        raise UserError(
            f"{path} is a folder, not a recipe; give a .toml file, or a name of `pixeldiff recipes`"
        ) from error
    except FileNotFoundError as error:
        raise UserError(f"no recipe {path}; there are {', '.join(names())}, and your own .toml files") from error
    except UserError:
        raise
    except RecursionError as error:
        raise UserError(f"recipe {path} is nested too deeply; it has tables of values and lists") from error
    except (OSError, ValueError) as error:  # also numbers of thousands of digits
        raise UserError(f"recipe {path} is not readable TOML: {error}") from error


def _check_odd(value: Any, where: str, depth: int = 0) -> None:
    """What TOML can say and no recipe means: tables in tables without end, numbers beyond 64 bits."""
    if depth > DEPTH:
        raise UserError(f"{where} is nested too deeply; it has tables of values and lists")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{where} has a whole number beyond 64 bits; none is meant to be so large")
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_odd(one, where, depth + 1)


def _named_runs(runs: Any, recipe: str) -> dict[str, Table]:
    if not isinstance(runs, dict) or not all(isinstance(changes, dict) for changes in runs.values()):
        raise UserError(f"recipe {recipe}: a run is a table, write [run.NAME] and its keys below")
    for name in runs:
        _check_name(name, recipe)
    return runs


def _named_stages(stages: Any, recipe: str) -> dict[str, Table]:
    named: dict[str, Table] = {}
    for stage in stages if isinstance(stages, list) else [stages]:
        if not isinstance(stage, dict) or not isinstance(stage.get("name"), str):
            raise UserError(
                f'recipe {recipe}: a stage is a table with a name, write [[stage]] and name = "first" below'
            )
        name = stage["name"]
        _check_name(name, recipe)
        if name in named:
            raise UserError(f"recipe {recipe} has two stages named {name}")
        named[name] = {key: value for key, value in stage.items() if key != "name"}
    return named


def _check_name(name: str, recipe: str) -> None:
    """It becomes the name of a folder."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,60}", name):
        raise UserError(f"recipe {recipe}: runs and stages have names of letters, digits and -, got {shown(name)}")


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if table.keys() == {"value"} else text
