"""What `pixeldiff detect` tells: progress, a sentence per run, JSON, and remarks on what a user may not expect."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pixeldiff.runtime.edges import EdgeDetector
from pixeldiff.runtime.stream import KEPT, Options, Outcome
from pixeldiff.runtime.video import SUFFIXES as VIDEO_SUFFIXES

HEIC = (".heic", ".heif")  # what phones write and Pillow alone does not read


@contextlib.contextmanager
def show_progress() -> Iterator[Callable[[int, int | None], None]]:
    """A function that shows (done, total), the rate and the time left on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    start = time.perf_counter()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, rate="")
        yield lambda done, total: progress.update(
            task, completed=done, total=total, rate=f"{done / (time.perf_counter() - start):.1f}/s"
        )


def _count(outcomes: list[Outcome], status: str) -> int:
    return sum(one.status == status for one in outcomes)


def picture_sentence(outcomes: list[Outcome], total: int, seconds: float) -> str:
    done, kept = _count(outcomes, "done"), _count(outcomes, "kept")
    if len(outcomes) == 1 and done:
        return str(outcomes[0].job.target)
    if len(outcomes) == 1 and kept:
        return f"{outcomes[0].job.target} {KEPT}"
    parts = [f"{done} picture{'s' * (done != 1)} in {seconds:.1f} s ({done / seconds:.1f}/s)"] if done else []
    if kept:
        parts.append(f"{kept} kept as they were (--overwrite replaces them)")
    if failed := _count(outcomes, "failed"):
        parts.append(f"{failed} failed")
    if rest := total - done - kept - failed:
        parts.append(f"{rest} not written")
    return ", ".join(parts)


def picture_summary(
    detector: EdgeDetector, outcomes: list[Outcome], failures: list[str], seconds: float, threads: int
) -> dict[str, Any]:
    return {
        "model": detector.name,
        "licence": detector.metadata.get("licence"),
        "threads": threads,
        "seconds": round(seconds, 3),
        "network_seconds": round(sum(one.network_seconds for one in outcomes), 3),
        "done": _count(outcomes, "done"),
        "kept": _count(outcomes, "kept"),
        "failed": len(failures),
        "errors": failures,
        "results": [
            {
                "input": str(one.job.source),
                "status": one.status,
                "outputs": [str(file) for file in one.files],
                **({"height": one.size[0], "width": one.size[1], "seen": one.seen} if one.size else {}),
                **({"made_by": one.made_by} if one.made_by else {}),
                **({"error": one.error} if one.error else {}),
            }
            for one in outcomes
        ],
    }


def video_sentence(one: dict[str, Any]) -> str:
    if one["status"] == "kept":
        return f"{one['output']} {KEPT}"
    parts = [f"{one['output']}: {one['frames']} frames, {one['frames'] / one['seconds']:.1f}/s"]
    if one["damaged"]:
        parts.append(f"{one['damaged']} damaged")
    if one["audio"] == "left out":
        parts.append("without the sound, which this kind of file cannot hold")
    if one["status"] == "stopped":
        parts.append("stopped early")
    return ", ".join(parts)


def remarks(outcomes: list[Outcome], others: Mapping[str, int], options: Options) -> Iterator[str]:
    """What a user may not expect."""
    yield from left_out(others)
    yield from made_otherwise(outcomes)
    if options.size is None:
        yield from reduced([(one.size, one.seen) for one in outcomes if one.size and one.seen], "picture")


def left_out(others: Mapping[str, int]) -> Iterator[str]:
    """What lies in the folders and a user would have expected edges of."""
    heic = "reading them needs: pip install 'pixeldiff[heic]'"
    for suffixes, advice in ((VIDEO_SUFFIXES, "give videos by name"), (HEIC, heic)):
        if count := sum(others.get(suffix, 0) for suffix in suffixes):
            kinds = " ".join(suffix for suffix in suffixes if suffix in others)
            yield f"{count} left alone ({kinds}); {advice}"


def reduced(sizes: Iterable[tuple[tuple[int, int], tuple[int, int]]], what: str) -> Iterator[str]:
    """(size, seen by the network) of each picture: how many were made smaller for the network unasked."""
    smaller = [one for one in sizes if one[0] != one[1]]
    if smaller:
        (height, width), (rows, columns) = max(smaller)
        count = f"{len(smaller)} {what}{'s' * (len(smaller) != 1)}"
        most = "" if len(smaller) == 1 else "up to "
        yield f"the network saw {count} reduced, {most}{width}x{height} as {columns}x{rows}; --size full for all pixels"


def made_otherwise(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Results that were kept although another command has made them."""
    for command, count in Counter(one.made_by for one in outcomes if one.made_by).items():
        which = next(str(one.job.target) for one in outcomes if one.made_by == command)
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"{which}{more} kept, but made with other options ({command}); --overwrite replaces results"
