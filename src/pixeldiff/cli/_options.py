"""Options in groups: `--help` lists them under the title of their group, those of clusters last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

INPUT_OUTPUT, PERFORMANCE, CLUSTER = "Input and output", "Performance", "Cluster"
_ORDER = {INPUT_OUTPUT: 0, PERFORMANCE: 2, CLUSTER: 3, "Options": 4}  # 1: the groups of a command itself
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class GroupedOption(click.Option):
    """An option with the title of its group."""

    def __init__(self, *arguments: Any, group: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help lists options by group."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                groups.setdefault(getattr(parameter, "group", "Options"), []).append(record)
        for title in sorted(groups, key=lambda title: _ORDER.get(title, 1)):
            with formatter.section(title):
                formatter.write_dl(groups[title])


def option(group: str, *names: str, **more: Any) -> Decorator:
    """Declare an option of a group; otherwise as `click.option`."""
    return click.option(*names, cls=GroupedOption, group=group, **more)


def threads_option(command: Callable[..., Any]) -> Callable[..., Any]:
    kind = click.IntRange(1, 1024)
    return option(PERFORMANCE, "--threads", type=kind, metavar="N", help="Number of threads. [default: all cores]")(
        command
    )
