"""Recipes: tables as frozen dataclasses; a key that is unknown or of the wrong type is an error that names it.

The tables [data], [loss] and [evaluate] belong to the task and are described by the task's dataclasses. How the tables
are found and read from files, with their runs and stages, is in `recipe_file`.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pixeldiff.errors import UserError
from pixeldiff.models import list_models, model_config, model_task
from pixeldiff.training.optimizers import Optimizer
from pixeldiff.training.recipe_file import changed, read_file, shown
from pixeldiff.training.schedule import Schedule
from pixeldiff.training.tasks import task_module

T = TypeVar("T")


def _check(rule: str, value: object, holds: bool) -> None:
    if not holds:
        raise UserError(f"{rule}, got {value}")


@dataclass(frozen=True)
class Loop:
    """How the steps are made. `batch` and `ema` change what is learned, `accumulate` too where there is batch norm."""

    batch: int = 24  # images per optimizer step, over all processes
    accumulate: int = 24  # forward passes that share one step; several processes divide them, or else the images
    ema: float = 0.0  # decay of the weight average that is evaluated and saved; 0 is off
    channels_last: bool = True
    compile: bool = False
    bf16: bool = False
    workers: int = 1  # processes that prepare images; 0 is the main process
    log_steps: int = 20
    checkpoint_minutes: float = 5.0
    evaluate_steps: int = 0  # score and keep a snapshot every so many steps; 0 is only at the end
    preview_steps: int = 0  # draw the preview images every so many steps; 0 is off

    def __post_init__(self) -> None:
        if self.batch < 1 or self.accumulate < 1 or self.batch % self.accumulate:
            raise UserError(
                f"loop.batch is a multiple of loop.accumulate, got {self.batch} and {self.accumulate}: "
                "each of the `accumulate` forward passes of a step sees batch / accumulate images"
            )
        _check("loop.batch is at most a million", self.batch, self.batch <= 10**6)
        _check("loop.ema is 0 (off) to below 1", self.ema, 0.0 <= self.ema < 1.0)
        _check("loop.log_steps is at least 1", self.log_steps, self.log_steps >= 1)
        for name in ("workers", "checkpoint_minutes", "evaluate_steps", "preview_steps"):
            _check(f"loop.{name} is at least 0", getattr(self, name), getattr(self, name) >= 0)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run. `data`, `loss` and `evaluate` are the dataclasses of the task."""

    task: str
    model: dict[str, Any]  # name, then changes to its config: create_model(**model)
    data: Any
    loss: Any
    evaluate: Any
    paper: str = ""  # the published number this recipe is for
    seed: int = 0
    initial: str = ""  # weights to start from: a file or a pretrained model's name
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    loop: Loop = field(default_factory=Loop)

    def __post_init__(self) -> None:
        _check("seed is 0 to 2**32 - 1", self.seed, 0 <= self.seed < 2**32)


def read_recipe(recipe: str | Path, *, run: str = "", stage: str = "", changes: Iterable[str] = ()) -> Recipe:
    """A shipped recipe ("edges/patterns") or a TOML file's, of one of its runs or stages, checked.

    `changes` are those of `--set`: "seed=1", "model.pattern=c16".
    """
    return parse_recipe(changed(read_file(recipe).table(run, stage), changes))


def parse_recipe(table: dict[str, Any]) -> Recipe:
    """The recipe in a table of tables, checked; `as_table(recipe)` gives the table back."""
    table = dict(table)
    task = _taken(table, "task", str, "the recipe")
    module = task_module(task)
    model = _taken(table, "model", dict, "the recipe")
    if not isinstance(model.get("name"), str):
        raise UserError('the recipe\'s [model] table needs a name, for example name = "tiny"')
    config = model_config(model["name"])
    if model_task(model["name"]) != task:
        raise UserError(
            f"{model['name']} is not a network for the task {task}; there are {', '.join(list_models(task=task))}"
        )
    from_table(type(config), dataclasses.asdict(config) | {k: v for k, v in model.items() if k != "name"}, "model")
    parts = {
        name: from_table(getattr(module, name.capitalize()), table.pop(name, {}), name)
        for name in ("data", "loss", "evaluate")
    }
    known = {f.name: f for f in dataclasses.fields(Recipe)}
    rest: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise UserError(f"unknown key {key!r} in the recipe{_hint(key, known)}")
        if key in ("optimizer", "schedule", "loop"):
            kind = {"optimizer": Optimizer, "schedule": Schedule, "loop": Loop}[key]
            rest[key] = from_table(kind, value, key)
        else:
            rest[key] = _typed(value, {"paper": str, "seed": int, "initial": str}[key], key)
    return Recipe(task=task, model=model, **parts, **rest)


def as_table(recipe: Recipe) -> dict[str, Any]:
    """The recipe as plain values, for checkpoints and metadata."""
    table: dict[str, Any] = _plain(dataclasses.asdict(recipe))
    return table


def from_table(kind: type[T], table: Any, where: str) -> T:
    """A dataclass from a TOML table; errors name the key as `where.key`."""
    if not isinstance(table, dict):
        raise UserError(f"{where} is a table, write [{where}] and its keys below; got {shown(table)}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise UserError(f"unknown key {where}.{key}{_hint(key, fields)}")
        values[key] = _typed(value, hints[key], f"{where}.{key}")
    needed = [
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and name not in values
    ]
    if needed:
        raise UserError(f"the recipe does not say {where}.{needed[0]}")
    return kind(**values)


def _taken(table: dict[str, Any], key: str, kind: type[T], where: str) -> T:
    if key not in table:
        raise UserError(f"{where} does not say {key}")
    value: T = _typed(table.pop(key), kind, key)
    return value


def _typed(value: Any, kind: Any, where: str) -> Any:
    """`value` as `kind` (a TOML type, a tuple of one, or one of a union), or an error that names the key."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        for choice in arguments:
            try:
                return None if choice is type(None) and value is None else _typed(value, choice, where)
            except UserError:
                continue
    elif origin is tuple and isinstance(value, list):
        inner = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(inner) == len(value):
            return tuple(_typed(v, k, where) for v, k in zip(value, inner, strict=True))
    elif _fits(value, kind):
        if kind is float and not math.isfinite(value):
            raise UserError(f"{where} is a finite number, got {value}")
        return float(value) if kind is float else value
    raise UserError(f"{where} takes {_words(kind)}, got {shown(value)}")


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a simple type; a whole number is also a number, true and false are none."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float) if kind is float else isinstance(kind, type) and isinstance(value, kind)


def _words(kind: Any) -> str:
    names = {float: "a number", int: "a whole number", str: "a text in quotes", bool: "true or false", dict: "a table"}
    if typing.get_origin(kind) is tuple:
        arguments = typing.get_args(kind)
        count = "a list of" if arguments[-1] is Ellipsis else f"a list of {len(arguments)}"
        return f"{count} {names.get(arguments[0], str(arguments[0])).split(' ', 1)[-1]}s"
    return names.get(kind, str(kind))


def _hint(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
