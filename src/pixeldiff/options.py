"""Options: dataclass fields that state once what they accept, for Python, the command line, the server and ComfyUI.

    @dataclass(frozen=True)
    class Look:
        max_size: int | None = option(Number(16, whole=True, none=True), 800, "Longer side of ...")

        def __post_init__(self) -> None:
            check(self)

A front reads `options_of(Look, front="cli")` and makes its own parameters from that.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pixeldiff.errors import InputError

Front = Literal["cli", "server", "node"]
FRONTS: tuple[Front, ...] = ("cli", "server", "node")
_KEY = "option"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    expected = "true or false"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, bool)

    def parse(self, text: str) -> bool:
        return {"true": True, "1": True, "false": False, "0": False}[text.lower()]

    def text(self, value: bool) -> str:
        return str(value).lower()


@dataclass(frozen=True)
class Choice:
    """One of several names."""

    choices: tuple[str, ...]

    @property
    def expected(self) -> str:
        return ", ".join(self.choices[:-1]) + f" or {self.choices[-1]}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.choices

    def parse(self, text: str) -> str:
        return text

    def text(self, value: str) -> str:
        return value


@dataclass(frozen=True)
class Number:
    """A number from `low` to `high`; with `above`, `low` itself is excluded, and with `none`, None is a value."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    whole: bool = False
    none: bool = False

    @property
    def expected(self) -> str:
        if math.isfinite(self.high):
            span = (
                f" above {self.low:g} and at most {self.high:g}"
                if self.above
                else f" from {self.low:g} to {self.high:g}"
            )
        else:
            span = f" above {self.low:g}" if self.above else f" of at least {self.low:g}"
        return f"a {'whole ' * self.whole}number{span}{' or none' * self.none}"

    def accepts(self, value: Any) -> bool:
        if value is None:
            return self.none
        kind = numbers.Integral if self.whole else numbers.Real
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        number = float(value)
        return (
            (self.low < number if self.above else self.low <= number) and number <= self.high and math.isfinite(number)
        )

    def parse(self, text: str) -> float | None:
        if self.none and text.lower() == "none":
            return None
        return int(text) if self.whole else float(text)

    def text(self, value: float | None) -> str:
        return "none" if value is None else f"{value:.12g}"


@dataclass(frozen=True)
class Numbers:
    """One or more numbers, separated by commas in text."""

    each: Number

    @property
    def expected(self) -> str:
        return f"one or more numbers, each {self.each.expected}"

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Sequence) and len(value) > 0 and all(self.each.accepts(number) for number in value)

    def parse(self, text: str) -> tuple[float | None, ...]:
        return tuple(self.each.parse(part) for part in text.split(","))

    def text(self, value: Sequence[float]) -> str:
        return ",".join(map(self.each.text, value))


Kind = Flag | Choice | Number | Numbers


@dataclass(frozen=True)
class Option:
    """One field of a dataclass, as a front shows it."""

    name: str
    kind: Kind
    default: Any
    help: str
    unit: str = ""

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str) -> Any:
        """Convert text to a value; a wrong one is an InputError that says what is expected."""
        try:
            value = self.kind.parse(text)
        except (ValueError, KeyError):
            value = None
            valid = False
        else:
            valid = self.kind.accepts(value)
        if not valid:
            raise InputError(f"invalid value {text!r}; expected {self.kind.expected}")
        return value


def option(kind: Kind, default: Any, help: str, unit: str = "", fronts: Sequence[Front] = FRONTS) -> Any:
    """Declare a dataclass field that is an option of the `fronts`."""
    return dataclasses.field(default=default, metadata={_KEY: (kind, help, unit, tuple(fronts))})


def options_of(*classes: type, front: Front) -> Iterator[Option]:
    """List the options of dataclasses that a front shows."""
    for cls in classes:
        for field in dataclasses.fields(cls):
            kind, help, unit, fronts = field.metadata[_KEY]
            if front in fronts:
                yield Option(field.name, kind, field.default, help, unit)


def check(instance: Any) -> None:
    """Raise an InputError that names the first field with an invalid value."""
    for field in dataclasses.fields(instance):
        kind, value = field.metadata[_KEY][0], getattr(instance, field.name)
        if not kind.accepts(value):
            expected = kind.expected.replace("or none", "or None")
            raise InputError(f"invalid {field.name} {value!r}; expected {expected}")


def build(values: Mapping[str, Any], *classes: type) -> list[Any]:
    """Make one instance of each class from values by field name; unknown names are an InputError."""
    names = [{field.name for field in dataclasses.fields(cls)} for cls in classes]
    if unknown := sorted(set(values).difference(*names)):
        known = ", ".join(sorted(set().union(*names)))
        raise InputError(f"unknown option {unknown[0]!r}; expected {known}")
    return [
        cls(**{name: values[name] for name in fields & values.keys()})
        for cls, fields in zip(classes, names, strict=True)
    ]
