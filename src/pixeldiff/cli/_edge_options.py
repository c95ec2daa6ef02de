"""Options of commands that come from dataclasses: one click option per field, one instance per class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from pixeldiff.cli._options import option as grouped
from pixeldiff.errors import InputError
from pixeldiff.options import Choice, Flag, Kind, Option, build, options_of

_GROUPS = {"Look": "Detection", "Drawing": "Drawing"}  # titles in --help


class OptionText(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Text that an option's kind parses."""

    name = "value"

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # a default
            return value
        try:
            return Option("", self.kind, None, "").parse(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def edge_options(*classes: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of dataclasses to a command.

    The command gets one instance per class, named after it (`look=`, `drawing=`), and `chosen`, the names of the
    options that the user gave.
    """
    options = list(options_of(*classes, front="cli"))
    groups = {option.name: _GROUPS.get(cls.__name__, "") for cls in classes for option in options_of(cls, front="cli")}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        def run(**values: Any) -> Any:
            context = click.get_current_context()
            fields = {option.name: values.pop(option.name) for option in options}
            default = click.core.ParameterSource.DEFAULT
            chosen = {name for name in fields if context.get_parameter_source(name) is not default}
            instances = {cls.__name__.lower(): made for cls, made in zip(classes, build(fields, *classes), strict=True)}
            return command(**values, **instances, chosen=chosen)

        decorated: Callable[..., Any] = functools.update_wrapper(run, command)
        for option in reversed(options):
            decorated = _click_option(option, groups[option.name])(decorated)
        return decorated

    return decorate


def _click_option(option: Option, group: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    if isinstance(option.kind, Flag):
        return grouped(group, option.flag, option.name, is_flag=True, default=option.default, help=option.help)
    kind = click.Choice(option.kind.choices) if isinstance(option.kind, Choice) else OptionText(option.kind)
    default = "" if option.default is None else f" [default: {option.kind.text(option.default)}]"
    return grouped(
        group,
        option.flag,
        option.name,
        type=kind,
        default=option.default,
        help=option.help + default,
        metavar=option.unit or None,
    )
