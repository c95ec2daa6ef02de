"""Recipes: tables as frozen dataclasses; a key that is unknown or of the wrong type is an error that names it.

The tables [data], [augment], [loss] and [evaluate] belong to the task and are described by the task's dataclasses.
`recipe_file` finds and reads files, with their variants and stages.
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

from pixeldiff.errors import InputError, UserError
from pixeldiff.models import list_models, model_config, model_task
from pixeldiff.training.optimizers import Optimizer
from pixeldiff.training.recipe_file import changed, read_file, shown
from pixeldiff.training.schedule import Schedule
from pixeldiff.training.tasks import task_module

T = TypeVar("T")
TASK_TABLES = ("data", "augment", "loss", "evaluate")
PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class Train:
    """How steps are made. A step learns from batch_size * grad_accum_steps images, over all processes."""

    batch_size: int = 24  # images of a forward pass, over all processes
    grad_accum_steps: int = 1  # forward passes of a step
    ema_decay: float = 0.0  # of the average of the weights, which is evaluated and saved; 0 is off
    precision: str = "fp32"  # or "bf16"
    channels_last: bool = True
    compile: bool = False
    workers: int = 1  # processes that prepare images; 0 is the main process
    log_every: int = 20  # steps
    eval_every: int = 0  # steps between two scores, each with a snapshot; 0 is only at the end
    preview_every: int = 0  # steps between two preview images; 0 is off
    checkpoint_minutes: float = 5.0

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise InputError(f"unknown train.precision {self.precision!r}; expected {' or '.join(PRECISIONS)}")
        for rule, value, holds in (
            ("batch_size must be at least 1", self.batch_size, self.batch_size >= 1),
            ("grad_accum_steps must be at least 1", self.grad_accum_steps, self.grad_accum_steps >= 1),
            ("batch_size * grad_accum_steps must be at most a million", self.step_size, self.step_size <= 10**6),
            ("ema_decay must be 0 (off) to below 1", self.ema_decay, 0 <= self.ema_decay < 1),
            ("log_every must be at least 1", self.log_every, self.log_every >= 1),
            *(
                (f"{key} must be at least 0", getattr(self, key), getattr(self, key) >= 0)
                for key in ("workers", "checkpoint_minutes", "eval_every", "preview_every")
            ),
        ):
            if not holds:
                raise InputError(f"train.{rule}, got {value}")

    @property
    def step_size(self) -> int:
        """Images of an optimizer step."""
        return self.batch_size * self.grad_accum_steps


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a run. `data`, `augment`, `loss` and `evaluate` are the dataclasses of the task."""

    task: str
    model: dict[str, Any]  # name, then changes to its config: create_model(**model)
    data: Any
    augment: Any
    loss: Any
    evaluate: Any
    schedule: Schedule
    description: str = ""
    reference: str = ""  # the published number to compare with
    seed: int = 0
    init_from: str = ""  # weights to start from: a file or the name of a pretrained model
    optimizer: Optimizer = field(default_factory=Optimizer)
    train: Train = field(default_factory=Train)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed must be 0 to 2**32 - 1, got {self.seed}")

    @property
    def steps(self) -> int:
        """Number of optimizer steps."""
        return self.schedule.steps(self.train.step_size)


def read_recipe(recipe: str | Path, *, variant: str = "", stage: str = "", changes: Iterable[str] = ()) -> Recipe:
    """Read and check a shipped recipe ("edges/patterns") or a TOML file, or one of its variants or stages.

    `changes` are those of `--set`: "seed=1", "model.pattern=c16".
    """
    return parse_recipe(changed(read_file(recipe).table(variant, stage), changes))


def parse_recipe(table: dict[str, Any]) -> Recipe:
    """Check the recipe in a table of tables; `as_table(recipe)` gives the table back."""
    table = {"schedule": {}, **table}
    task = _take(table, "task", str)
    module = task_module(task)
    model = _take(table, "model", dict)
    _check_model(model, task)
    parts = {name: from_table(getattr(module, name.capitalize()), table.pop(name, {}), name) for name in TASK_TABLES}
    hints = typing.get_type_hints(Recipe)
    for key, value in table.items():
        if key not in hints:
            raise InputError(f"unknown key {key!r} in the recipe{_hint(key, hints)}")
        parts[key] = _typed(value, hints[key], key)
    return Recipe(task=task, model=model, **parts)


def as_table(recipe: Recipe) -> dict[str, Any]:
    """Return the recipe as plain values, for checkpoints and metadata."""
    table: dict[str, Any] = _plain(dataclasses.asdict(recipe))
    return table


def from_table(kind: type[T], table: Any, where: str) -> T:
    """Make a dataclass of a TOML table; errors name the key as `where.key`."""
    if not isinstance(table, dict):
        raise InputError(f"{where} is a table, write [{where}] and its keys below; got {shown(table)}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in table.items():
        if key not in fields:
            raise InputError(f"unknown key {where}.{key}{_hint(key, fields)}")
        values[key] = _typed(value, hints[key], f"{where}.{key}")
    missing = [
        name
        for name, f in fields.items()
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and name not in values
    ]
    if missing:
        raise InputError(f"missing key {where}.{missing[0]} in the recipe")
    return kind(**values)


def _check_model(model: dict[str, Any], task: str) -> None:
    if not isinstance(model.get("name"), str):
        raise InputError('missing name in [model] of the recipe, for example name = "tiny"')
    config = model_config(model["name"])
    if model_task(model["name"]) != task:
        known = ", ".join(list_models(task=task))
        raise InputError(f"model {model['name']} is not for the task {task}; expected one of {known}")
    from_table(type(config), dataclasses.asdict(config) | {k: v for k, v in model.items() if k != "name"}, "model")


def _take(table: dict[str, Any], key: str, kind: type[T]) -> T:
    if key not in table:
        raise InputError(f"missing key {key} in the recipe")
    value: T = _typed(table.pop(key), kind, key)
    return value


def _typed(value: Any, kind: Any, where: str) -> Any:
    """Return `value` as `kind`: a TOML type, a dataclass, a tuple or a union of them. Errors name the key."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        for choice in arguments:
            try:
                return None if choice is type(None) and value is None else _typed(value, choice, where)
            except UserError:
                continue
    elif dataclasses.is_dataclass(kind):
        return from_table(typing.cast(type, kind), value, where)
    elif origin is tuple and isinstance(value, list):
        inner = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(inner) == len(value):
            places = [f"{where}[{k}]" if dataclasses.is_dataclass(i) else where for k, i in enumerate(inner)]
            return tuple(_typed(*item) for item in zip(value, inner, places, strict=True))
    elif _fits(value, kind):
        if kind is float and not math.isfinite(value):
            raise InputError(f"{where} must be a finite number, got {value}")
        return float(value) if kind is float else value
    raise InputError(f"{where} must be {_words(kind)}, got {shown(value)}")


def _fits(value: Any, kind: Any) -> bool:
    """Check a value of a simple type: an integer is also a number; true and false are neither."""
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, int | float) if kind is float else isinstance(kind, type) and isinstance(value, kind)


def _words(kind: Any) -> str:
    names = {float: "a number", int: "an integer", str: "a string", bool: "true or false", dict: "a table"}
    if typing.get_origin(kind) is tuple:
        item, *more = typing.get_args(kind)
        count = "a list of" if more[-1:] == [Ellipsis] else f"a list of {1 + len(more)}"
        return f"{count} {names.get(item, 'a table').split(' ', 1)[-1]}s"
    return names.get(kind, "a table" if dataclasses.is_dataclass(kind) else str(kind))


def _hint(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f"; expected one of {', '.join(known)}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
