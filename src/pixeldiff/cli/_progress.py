"""Progress bars on stderr: shown on a terminal, gone when the work is done."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

Update = Callable[[int, int | None], None]  # takes how many are done and, if known, of how many


def show_bars(*more: str) -> Progress:
    """Show what is done, `more` fields and the time left on a terminal; nothing elsewhere."""
    from rich.console import Console  # slow, and not needed for help
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


@contextlib.contextmanager
def show_progress(what: str = "") -> Iterator[Update]:
    """Give a function that shows (done, total), the rate and the time left on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    start = time.perf_counter()
    with show_bars("{task.fields[rate]}") as bars:
        bar = bars.add_task(what, total=None, rate="")
        yield lambda done, total: bars.update(
            bar, completed=done, total=total, rate=f"{done / (time.perf_counter() - start):.1f}/s"
        )


@contextlib.contextmanager
def hide_progress(what: str = "") -> Iterator[Update]:
    """Give a function that shows nothing."""
    yield lambda done, total: None
