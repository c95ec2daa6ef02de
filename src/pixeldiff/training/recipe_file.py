"""Recipe files: TOML with shared keys on top, then the variants of a table or the stages of a network.

    [variant.c16]                 # one row of a table: pixeldiff train edges/patterns --variant c16
    model.pattern = "c16"

    [grid]                        # each combination is a variant, named by its values: tiny-carv, tiny-baseline
    model.name = ["tiny"]
    model.pattern = ["carv", "baseline"]

    [[stage]]                     # one after the other, each from the weights of the one before
    name = "first"
    schedule.samples = 14_400

A variant or a stage holds only the keys that it changes; a file without either is one recipe. `extends = "other.toml"`
(relative to the file) takes the shared keys of another file, not its variants or stages. The name of a shipped file is
its place: edges/patterns is recipes/edges/patterns.toml. This module needs no torch; `recipe` says what the keys mean.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pixeldiff.errors import InputError, UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parents[1] / "recipes"
MAX_BYTES = 2**16  # recipes have some thousand
MAX_LINE = 2000  # characters; reading a key takes time as the square of its length
MAX_DEPTH = 8  # of tables in tables, and of recipes that extend each other
MAX_VARIANTS = 1000  # of a grid
PARTS = ("variant", "grid", "stage")  # tables of a file that are not keys of a recipe
Table = dict[str, Any]


@dataclass(frozen=True)
class RecipeFile:
    """What a file holds: `shared` alone, or the complete tables of its variants or of its stages, in order."""

    name: str
    path: Path
    shared: Table
    variants: dict[str, Table] = field(default_factory=dict)
    stages: dict[str, Table] = field(default_factory=dict)

    def table(self, variant: str = "", stage: str = "") -> Table:
        """Return the table of one variant or stage, or that of a file without either."""
        if variant and stage:
            raise InputError(f"{self.name}: a recipe has variants or stages; give --variant or --stage, not both")
        for kind, wanted, tables in (("variant", variant, self.variants), ("stage", stage, self.stages)):
            if wanted and wanted not in tables:
                raise InputError(f"{self.name} has no {kind} {shown(wanted)}; {self._choices()}")
            if wanted:
                return tables[wanted]
        if self.variants or self.stages:
            raise InputError(f"{self.name} is not one recipe; {self._choices()}")
        return self.shared

    def _choices(self) -> str:
        for kind, tables in (("variant", self.variants), ("stage", self.stages)):
            if tables:
                return f"choose with --{kind}: {', '.join(tables)}"
        return "it is one recipe, without variants or stages"


def names() -> list[str]:
    """List the shipped recipes by name."""
    return sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.glob("*/*.toml"))


def read_file(recipe: str | Path) -> RecipeFile:
    """Read a shipped recipe by its name, or a file (./edges/patterns if it has the name of a shipped one)."""
    name = str(recipe)
    path = FOLDER / f"{name}.toml" if name in names() else Path(recipe)
    table = _read(path)
    variants = _named_variants(table.pop("variant", {}), table.pop("grid", {}), name)
    stages = _named_stages(table.pop("stage", []), name)
    if variants and stages:
        raise InputError(f"recipe {name} has variants and stages; divide it into two files")
    return RecipeFile(
        name,
        path,
        table,
        {key: merged(table, changes) for key, changes in variants.items()},
        {key: merged(table, changes) for key, changes in stages.items()},
    )


def changed(table: Table, changes: Iterable[str]) -> Table:
    """Apply `--set key=value` to a table; the value is TOML, or else a string (`model.pattern=c16`)."""
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals or not key.strip():
            raise InputError(
                f"invalid --set {shown(change)}; expected key=value, for example seed=1 or schedule.samples=3000"
            )
        value = _value(text.strip())
        for part in reversed(key.strip().split(".")):
            value = {part: value}
        _check_size(value, "--set")
        table = merged(table, value)
    return table


def merged(base: Table, changes: Table) -> Table:
    """Return `base` with the keys of `changes`, table by table."""
    result = dict(base)
    for key, value in changes.items():
        old = base.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def shown(value: Any) -> str:
    """Quote a value in a message, cut to the length of a line."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _read(path: Path, chain: tuple[Path, ...] = ()) -> Table:
    """Read the table of a file and of what it extends."""
    if (absolute := Path(os.path.abspath(path))) in chain:
        raise InputError(f"recipe {path} extends itself")
    if len(chain) > MAX_DEPTH:
        raise InputError(f"recipe {chain[0]} extends more than {MAX_DEPTH} others; use fewer files")
    table = _load(path)
    _check_size(table, f"recipe {path}")
    if "extends" not in table:
        return table
    base = table.pop("extends")
    if not isinstance(base, str):
        raise InputError(f"extends names one recipe file, got {shown(base)}")
    shared = _read(path.parent / base, (*chain, absolute))
    return merged({key: value for key, value in shared.items() if key not in PARTS}, table)


def _load(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)  # not by its size: /dev/zero has none
        if len(content) > MAX_BYTES:
            raise InputError(f"recipe {path} is larger than {MAX_BYTES >> 10} KB; recipes name data, not hold it")
        text = content.decode("utf-8")
        if max(map(len, text.splitlines()), default=0) > MAX_LINE:
            raise InputError(f"recipe {path} has a line of more than {MAX_LINE} characters; divide it")
        table: Table = tomllib.loads(text)
        return table
    except IsADirectoryError as error:
        raise InputError(
            f"{path} is a folder, not a recipe; give a .toml file, or a name of `pixeldiff recipes`"
        ) from error
    except FileNotFoundError as error:
        raise InputError(f"no recipe {path}; there are {', '.join(names())}, and your .toml files") from error
    except UserError:
        raise
    except RecursionError as error:
        raise InputError(f"recipe {path} is nested too deeply; use tables of values and lists") from error
    except (OSError, ValueError) as error:  # also numbers of thousands of digits
        raise InputError(f"recipe {path} is not readable TOML: {error}") from error


def _check_size(value: Any, where: str, depth: int = 0) -> None:
    """Raise an error for what TOML allows and no recipe means: endless nesting, integers beyond 64 bits."""
    if depth > MAX_DEPTH:
        raise InputError(f"{where} is nested too deeply; use tables of values and lists")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError(f"{where} has an integer beyond 64 bits; use a smaller one")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_size(inner, where, depth + 1)


def _named_variants(variants: Any, grid: Any, recipe: str) -> dict[str, Table]:
    """Return the changes of each variant: those of the grid first, then what [variant.NAME] adds."""
    if not isinstance(variants, dict) or not all(isinstance(changes, dict) for changes in variants.values()):
        raise InputError(f"recipe {recipe}: a variant is a table, write [variant.NAME] and its keys below")
    named = _grid_variants(grid, recipe)
    for name, changes in variants.items():
        named[name] = merged(named.get(name, {}), changes)
    for name in named:
        _check_name(name, recipe)
    return named


def _grid_variants(grid: Any, recipe: str) -> dict[str, Table]:
    """Return each combination of the listed values, named by them: {"tiny-carv": {"model": {...}}}."""
    if not isinstance(grid, dict):
        raise InputError(f"recipe {recipe}: the grid is a table, write [grid] and lists of values below")
    axes = list(_leaves(grid))
    count = 1
    for key, values in axes:
        if not isinstance(values, list) or not values or any(isinstance(value, (dict, list)) for value in values):
            raise InputError(f"recipe {recipe}: grid.{'.'.join(key)} is a list of values, got {shown(values)}")
        count *= len(values)
    if count > MAX_VARIANTS:
        raise InputError(f"recipe {recipe}: the grid has {count} variants, more than {MAX_VARIANTS}")
    named: dict[str, Table] = {}
    for values in itertools.product(*(values for _, values in axes)) if axes else ():
        changes: Table = {}
        for (key, _), value in zip(axes, values, strict=True):
            for part in reversed(key):
                value = {part: value}
            changes = merged(changes, value)
        named["-".join(map(str, values))] = changes
    return named


def _leaves(table: Table, key: tuple[str, ...] = ()) -> Iterable[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*key, name))
        else:
            yield (*key, name), value


def _named_stages(stages: Any, recipe: str) -> dict[str, Table]:
    named: dict[str, Table] = {}
    for stage in stages if isinstance(stages, list) else [stages]:
        if not isinstance(stage, dict) or not isinstance(stage.get("name"), str):
            raise InputError(
                f'recipe {recipe}: a stage is a table with a name, write [[stage]] and name = "first" below'
            )
        name = stage["name"]
        _check_name(name, recipe)
        if name in named:
            raise InputError(f"recipe {recipe} has two stages named {name}")
        named[name] = {key: value for key, value in stage.items() if key != "name"}
    return named


def _check_name(name: str, recipe: str) -> None:
    """Raise an error unless the name can be that of a folder."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.+-]{0,60}", name):
        raise InputError(f"recipe {recipe}: invalid variant or stage name {shown(name)}; use letters, digits and -")


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return table["value"] if table.keys() == {"value"} else text
