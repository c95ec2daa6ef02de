"""What a run over many files tells: progress, sentences, objects for JSON, remarks on what a user may not expect."""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.cli._progress import show_bars
from pixeldiff.errors import MissingExtra
from pixeldiff.files import KEPT, Found, Job
from pixeldiff.image import FORMATS
from pixeldiff.jobs.local import Outcome
from pixeldiff.jobs.video import SUFFIXES as VIDEO_SUFFIXES
from pixeldiff.jobs.video import Clip, is_clip

if TYPE_CHECKING:
    from pixeldiff.detector import EdgeDetector


@contextlib.contextmanager
def show_progress() -> Iterator[Callable[[int, int | None], None]]:
    """A function that shows (done, total), the rate and the time left on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    start = time.perf_counter()
    with show_bars("{task.fields[rate]}") as bars:
        bar = bars.add_task("", total=None, rate="")
        yield lambda done, total: bars.update(
            bar, completed=done, total=total, rate=f"{done / (time.perf_counter() - start):.1f}/s"
        )


def with_progress(outcomes: Iterable[Outcome], total: int) -> Iterator[Outcome]:
    """The outcomes as they come, with a bar on a terminal."""
    if total < 2:
        yield from outcomes
        return
    with show_progress() as progress:
        for count, outcome in enumerate(outcomes, 1):
            progress(count, total)
            yield outcome


def say(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo(sentence)


def remark(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        click.echo("pixeldiff: " + " ".join(sentence.split()), err=True)


def count(outcomes: Sequence[Outcome], status: str) -> int:
    return sum(one.status == status for one in outcomes)


def totals(detector: EdgeDetector, outcomes: Sequence[Outcome], threads: int, seconds: float) -> dict[str, Any]:
    """The run as a whole, for JSON."""
    return {
        "model": detector.name,
        "license": detector.metadata.get("license"),
        "threads": threads,
        "seconds": round(seconds, 3),
        "network_seconds": round(sum(one.network_seconds for one in outcomes), 3),
        "done": count(outcomes, "done"),
        "kept": count(outcomes, "kept"),
    }


def results(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """What there is now, for JSON."""
    return [_entry(one) for one in outcomes if not one.error]


def _entry(one: Outcome) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "input": str(one.job.source),
        "status": one.status,
        "outputs": [str(file) for file in one.files],
    }
    if one.size:
        entry |= {"height": one.size[0], "width": one.size[1], "seen": one.seen}
    if one.made_by:
        entry |= {"made_by": one.made_by}
    if clip := one.clip:
        entry |= {"frames": clip.frames, "damaged": clip.damaged, "audio": clip.audio, "seconds": clip.seconds}
    return entry


def failures(found: Found, outcomes: Sequence[Outcome]) -> list[dict[str, str]]:
    """What could not be done, and why. Of a full disk the first is enough."""
    full = [one for one in outcomes if one.status == "full"]
    bad = [(str(one.job.source), one.error) for one in outcomes if one.error and one not in full[1:]]
    return [{"input": given, "error": why} for given, why in (*found.missing.items(), *bad) if why]


def sentences(outcomes: Sequence[Outcome], jobs: Sequence[Job], seconds: float) -> Iterator[str]:
    """One for all images, one for each video."""
    if images := sum(not is_clip(job.source) for job in jobs):
        yield _image_sentence([one for one in outcomes if not is_clip(one.job.source)], images, seconds)
    for one in outcomes:
        if is_clip(one.job.source) and one.files:
            yield _clip_sentence(one, one.clip)


def _image_sentence(outcomes: Sequence[Outcome], total: int, seconds: float) -> str:
    done, kept = count(outcomes, "done"), count(outcomes, "kept")
    if len(outcomes) == 1 and done:
        return str(outcomes[0].job.target)
    if len(outcomes) == 1 and kept:
        return f"{outcomes[0].job.target} {KEPT}"
    parts = [f"{done} image{'s' * (done != 1)} in {seconds:.1f} s ({done / seconds:.1f}/s)"] if done else []
    if kept:
        parts.append(f"{kept} kept as they were (--overwrite replaces them)")
    if failed := count(outcomes, "failed"):
        parts.append(f"{failed} failed")
    if rest := total - done - kept - failed:
        parts.append(f"{rest} not written")
    return ", ".join(parts)


def _clip_sentence(one: Outcome, clip: Clip | None) -> str:
    if clip is None:
        return f"{one.job.target} {KEPT}"
    parts = [f"{one.job.target}: {clip.frames} frames, {clip.frames / clip.seconds:.1f}/s"]
    if clip.damaged:
        parts.append(f"{clip.damaged} damaged")
    if clip.audio == "left out":
        parts.append("without the sound, which this kind of file cannot hold")
    if clip.stopped:
        parts.append("stopped early")
    return ", ".join(parts)


def remarks(outcomes: Sequence[Outcome], found: Found, jobs: int, sized: bool) -> Iterator[str]:
    """What was skipped, and what a user may not expect; `sized`: they have chosen what the network sees."""
    for why in (*found.missing.values(), *(one.error for one in outcomes if one.status == "failed")):
        yield f"skipped: {why}"
    yield from left_out(found.others)
    yield from _made_otherwise(outcomes)
    yield from (one.note for one in outcomes if one.note)
    if not sized:
        yield from _reduced([one for one in outcomes if one.clip is None], "image")
        yield from _reduced([one for one in outcomes if one.clip], "video")
    for full in [one for one in outcomes if one.status == "full"][:1]:
        yield f"{count(outcomes, 'done')} of {jobs} written, then stopped: {full.error}"


def left_out(others: Mapping[str, int]) -> Iterator[str]:
    """What lies in the folders and a user would have expected edges of."""
    heic = str(MissingExtra("heic", "reading them", "pillow_heif"))
    for suffixes, advice in ((VIDEO_SUFFIXES, "give videos by name"), (FORMATS["HEIF"], heic)):
        if total := sum(others.get(suffix, 0) for suffix in suffixes):
            kinds = " ".join(suffix for suffix in suffixes if suffix in others)
            yield f"{total} left alone ({kinds}); {advice}"


def _reduced(outcomes: Sequence[Outcome], what: str) -> Iterator[str]:
    """How many were made smaller for the network unasked."""
    smaller = [(one.size, one.seen) for one in outcomes if one.size and one.seen and one.size != one.seen]
    if smaller:
        (height, width), (rows, columns) = max(smaller)
        number = f"{len(smaller)} {what}{'s' * (len(smaller) != 1)}"
        most = "" if len(smaller) == 1 else "up to "
        yield (
            f"the network saw {number} reduced, {most}{width}x{height} as {columns}x{rows}; --size full for all pixels"
        )


def _made_otherwise(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Results that were kept although another command has made them."""
    for command, number in Counter(one.made_by for one in outcomes if one.made_by).items():
        which = next(str(one.job.target) for one in outcomes if one.made_by == command)
        more = f" and {number - 1} more" if number > 1 else ""
        yield f"{which}{more} kept, but made with other options ({command}); --overwrite replaces results"


def exit_code(outcomes: Sequence[Outcome], failed: Sequence[Any]) -> int:
    statuses = {one.status for one in outcomes}
    return 130 if "stopped" in statuses else 2 if "full" in statuses else 1 if failed else 0
