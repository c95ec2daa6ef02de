"""Bars of commands that take a while: on a terminal, on stderr, gone when the work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def show_bars(*more: str) -> Progress:
    """What is done, how much of it, `more` of the bar's fields, and the time left; nothing where nobody watches."""
    from rich.console import Console  # slow, and of no use to those who ask for help
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *map(TextColumn, more),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
