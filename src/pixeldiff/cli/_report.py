"""Messages and JSON of commands over images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from pixeldiff.cli._progress import hide_progress as hide_progress
from pixeldiff.cli._progress import show_progress as show_progress
from pixeldiff.errors import MissingExtra
from pixeldiff.files import EXISTS, InputFiles, Job
from pixeldiff.image import FORMATS
from pixeldiff.jobs.operation import Result
from pixeldiff.jobs.video import SUFFIXES as VIDEO_SUFFIXES
from pixeldiff.jobs.video import is_clip


def say(sentences: Iterable[str]) -> None:
    """Print lines on stdout."""
    for sentence in sentences:
        click.echo(sentence)


def remark(sentences: Iterable[str], quiet: bool = False) -> None:
    """Print messages on stderr, each in one line; with `quiet` errors only."""
    for sentence in sentences:
        if not quiet or sentence.startswith("error:"):
            click.echo(" ".join(sentence.split()), err=True)


def count(results: Sequence[Result], status: str) -> int:
    """Count the results with a status."""
    return sum(result.status == status for result in results)


def totals(results: Sequence[Result], threads: int, seconds: float) -> dict[str, Any]:
    """Sum up a run for JSON."""
    return {
        "threads": threads,
        "seconds": round(seconds, 3),
        "done": count(results, "done"),
        "skipped": count(results, "skipped"),
    }


def records(results: Sequence[Result]) -> list[dict[str, Any]]:
    """List what exists now, for JSON."""
    return [_record(result) for result in results if not result.error]


def _record(result: Result) -> dict[str, Any]:
    record: dict[str, Any] = {"input": str(result.job.source), "status": result.status}
    if result.files:
        record["outputs"] = [str(file) for file in result.files]
    if result.made_by:
        record["made_by"] = result.made_by
    return record | dict(result.record)


def failures(found: InputFiles, results: Sequence[Result]) -> list[dict[str, str]]:
    """List what could not be done, and why. A full disk is named once."""
    full = [result for result in results if result.status == "full"]
    bad = [(str(result.job.source), result.error) for result in results if result.error and result not in full[1:]]
    return [{"input": name, "error": why} for name, why in (*found.missing.items(), *bad) if why]


def sentences(results: Sequence[Result], jobs: Sequence[Job], seconds: float) -> Iterator[str]:
    """Say in one line what became of all images, and in one line what became of each video."""
    if images := sum(job.target is not None and not is_clip(job.source) for job in jobs):
        yield _image_sentence([result for result in results if not is_clip(result.job.source)], images, seconds)
    for result in results:
        if is_clip(result.job.source) and result.files:
            yield _clip_sentence(result)


def _image_sentence(results: Sequence[Result], total: int, seconds: float) -> str:
    done, skipped = count(results, "done"), count(results, "skipped")
    if len(results) == 1 and done:
        return str(results[0].job.target)
    if len(results) == 1 and skipped:
        return f"{results[0].job.target} {EXISTS}"
    parts = [f"{done} image{'s' * (done != 1)} in {seconds:.1f} s ({done / seconds:.1f}/s)"] if done else []
    if skipped:
        parts.append(f"{skipped} already exist, skipped (--overwrite replaces them)")
    if failed := count(results, "failed"):
        parts.append(f"{failed} failed")
    if rest := total - done - skipped - failed:
        parts.append(f"{rest} not written")
    return ", ".join(parts)


def _clip_sentence(result: Result) -> str:
    record = result.record
    if result.status == "skipped":
        return f"{result.job.target} {EXISTS}"
    parts = [f"{result.job.target}: {record['frames']} frames, {record['frames'] / record['seconds']:.1f}/s"]
    if record["damaged"]:
        parts.append(f"{record['damaged']} damaged")
    if record["audio"] == "left out":
        parts.append("without the sound, which this kind of file cannot hold")
    if result.status == "stopped":
        parts.append("stopped early")
    return ", ".join(parts)


def remarks(results: Sequence[Result], found: InputFiles, jobs: int) -> Iterator[str]:
    """Say what failed, and what a user may not expect."""
    for why in (*found.missing.values(), *(result.error for result in results if result.status == "failed")):
        yield f"error: {why}"
    yield from (f"note: {line}" for line in unused(found.others))
    yield from _made_otherwise(results)
    yield from (f"note: {result.note}" for result in results if result.note)
    for full in [result for result in results if result.status == "full"][:1]:
        yield f"error: {count(results, 'done')} of {jobs} written, then stopped: {full.error}"


def unused(others: Mapping[str, int]) -> Iterator[str]:
    """Count the files in folders that a user may have expected results of."""
    heic = str(MissingExtra("heic", "reading them", "pillow_heif"))
    for suffixes, advice in ((VIDEO_SUFFIXES, "give videos by name"), (FORMATS["HEIF"], heic)):
        if total := sum(others.get(suffix, 0) for suffix in suffixes):
            kinds = " ".join(suffix for suffix in suffixes if suffix in others)
            yield f"{total} skipped ({kinds}); {advice}"


def downscaled(results: Sequence[Result]) -> Iterator[str]:
    """Say how many images and videos were downscaled for the network."""
    for what, clips in (("image", False), ("video", True)):
        smaller = []
        for result in results:
            if is_clip(result.job.source) is clips and "input_size" in result.record:
                size = (result.record["height"], result.record["width"])
                smaller += [(size, tuple(result.record["input_size"]))] * (size != tuple(result.record["input_size"]))
        if smaller:
            (height, width), (rows, columns) = max(smaller)
            which = f"{len(smaller)} {what}s, up to " if len(smaller) > 1 else ""
            yield (
                f"note: shrunk {which}{width}x{height} to {columns}x{rows} for detection; "
                "--max-size none uses all pixels"
            )


def _made_otherwise(results: Sequence[Result]) -> Iterator[str]:
    """Name existing results that another command made."""
    for command, number in Counter(result.made_by for result in results if result.made_by).items():
        which = next(str(result.job.target) for result in results if result.made_by == command)
        more = f" and {number - 1} more" if number > 1 else ""
        yield f"warning: {which}{more} made with other options ({command}), skipped; --overwrite replaces results"


def exit_code(results: Sequence[Result], failed: Sequence[Any]) -> int:
    """Return 130 for Ctrl-C, 2 for a full disk, 1 for failures, else 0."""
    statuses = {result.status for result in results}
    return 130 if "stopped" in statuses else 2 if "full" in statuses else 1 if failed else 0
