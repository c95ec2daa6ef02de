"""`pixeldiff detect`: edges of pictures, folders, globs and videos."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff.errors import UserError
from pixeldiff.image import SUFFIXES
from pixeldiff.runtime import cores
from pixeldiff.runtime.edges import PAPER_SCALES, EdgeDetector
from pixeldiff.runtime.folder import (
    KEPT,
    Job,
    Options,
    Outcome,
    detect_files,
    find_pictures,
    is_result,
    matches,
    names_folder,
    open_streams,
    plan_jobs,
    refuse_itself,
)
from pixeldiff.runtime.formats import FORMATS
from pixeldiff.runtime.vector import TOLERANCE
from pixeldiff.video import SUFFIXES as VIDEO_SUFFIXES

HEIC = (".heic", ".heif")  # what phones write and Pillow does not read


class _Finite(click.FloatRange):
    """A range without nan, which is neither below its end nor above."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is no number", param, ctx)


@click.command()
@click.argument("inputs", nargs=-1, required=True)
@click.option("-o", "--out", help="Folder for the results, or the file for one picture. [default: beside the picture]")
@click.option("--model", help="A shipped network; see pixeldiff models. [default: tiny]")
@click.option("--weights", type=click.Path(path_type=Path), help="An .onnx file written by pixeldiff export.")
@click.option(
    "--thin",
    is_flag=True,
    help="Thin lines (the benchmark's non-maximum suppression); one pixel wide with --threshold.",
)
@click.option("--threshold", type=_Finite(0, 1), metavar="T", help="Black and white: edge where the map is at least T.")
@click.option("--invert", is_flag=True, help="Dark edges on white.")
@click.option(
    "--multi-scale", is_flag=True, help="Average the maps at half, full and one and a half size; 3.5 times the work."
)
@click.option(
    "--side-outputs", is_flag=True, help="Also the maps of the four stages, photo.edges.side_1.png and so on."
)
@click.option("--format", "format_", type=click.Choice(list(FORMATS)), help="[default: the suffix of OUT, or png]")
@click.option(
    "--tolerance",
    type=_Finite(min=0),
    metavar="PIXELS",
    default=TOLERANCE,
    show_default=True,
    help="With --format svg: how far a line may be from the pixels it stands for.",
)
@click.option(
    "--temporal",
    type=_Finite(0, 1, max_open=True),
    metavar="A",
    default=0.0,
    help="Videos: mix each map with the one before, A * before + (1 - A) * now, against flicker. [default: off]",
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--overwrite", is_flag=True, help="Replace results that exist; by default they are kept.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON on stdout.")
def detect(
    inputs: tuple[str, ...],
    out: str | None,
    model: str | None,
    weights: Path | None,
    thin: bool,
    threshold: float | None,
    invert: bool,
    multi_scale: bool,
    side_outputs: bool,
    format_: str | None,
    tolerance: float,
    temporal: float,
    threads: int | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the edges of INPUTS: pictures, folders (searched to the bottom), globs or videos.

    photo.jpg becomes photo.edges.png, white edges on black, of the photo's size; clip.mp4 becomes clip.edges.mp4 with
    the same frames, times and sound. The exit code is 1 if some pictures failed.
    """
    if model and weights:
        raise UserError("--model and --weights exclude each other; give one of them")
    if out == "-":
        raise UserError("-o '-' is no name; give the name of a file or a folder")
    scales = PAPER_SCALES if multi_scale else None
    if any(Path(one).suffix.lower() in VIDEO_SUFFIXES for one in inputs):
        if len(inputs) > 1:  # a shell has spread a glob
            inputs = tuple(one for one in inputs if not is_result(Path(one))) or inputs
        inputs = tuple(hit for one in inputs for hit in _expanded(one))
        if format_ or side_outputs:
            raise UserError("--format and --side-outputs are for pictures; a video's kind follows from the name in -o")
        options = Options("video", thin, threshold, invert, scales, overwrite=overwrite)
        return _detect_videos(inputs, out, weights or model or "tiny", options, temporal, threads or cores(), as_json)
    if temporal:
        raise UserError("--temporal is for videos; leave it out for pictures")
    target, folder = _destination(inputs, out)
    format_ = _format(format_, target)
    found = find_pictures(inputs, folder)
    alone = len(inputs) == 1 and not Path(inputs[0]).is_dir()
    if target and len(found.files) > 1:
        raise UserError(f"-o {target} is one file, but {inputs[0]} are {len(found.files)} pictures; give a folder")
    if not found.files:
        raise UserError("; ".join([*found.missing, *_left_out(found.others)]))
    if target:
        refuse_itself(found.files[0][0], target)
    jobs = [Job(found.files[0][0], target)] if target else plan_jobs(found, folder, f"edges.{format_}")
    if folder:
        _check_writable(folder)
    options = Options(format_, thin, threshold, invert, scales, side_outputs, overwrite, tolerance)
    options.encode(np.zeros((1, 1), np.float32))  # if the format needs what is not installed: before the work
    threads = threads or cores()
    start = time.perf_counter()
    detector, streams = open_streams(weights or model or "tiny", threads, len(jobs))
    outcomes = list(_with_progress(detect_files(detector, jobs, options, streams), len(jobs)))
    seconds = time.perf_counter() - start
    failures = found.missing + [one.error for one in outcomes if one.error]
    if failures and alone and len(jobs) == 1:
        raise UserError(failures[0])
    if as_json:
        click.echo(json.dumps(_summary(detector, outcomes, failures, seconds, threads), indent=2))
    else:
        click.echo(_sentence(outcomes, seconds))
    for failure in failures:
        click.echo("pixeldiff: skipped: " + " ".join(failure.split()), err=True)
    for remark in _left_out(found.others):
        click.echo(f"pixeldiff: {remark}", err=True)
    return 1 if failures else 0


def _left_out(others: Mapping[str, int]) -> Iterator[str]:
    """What lies in the folders and a user would have expected edges of."""
    for suffixes, advice in ((VIDEO_SUFFIXES, "give videos by name"), (HEIC, "convert them to JPEG")):
        if count := sum(others.get(suffix, 0) for suffix in suffixes):
            kinds = " ".join(suffix for suffix in suffixes if suffix in others)
            yield f"{count} left alone ({kinds}); {advice}"


def _expanded(given: str) -> list[str]:
    return [given] if Path(given).exists() else [str(hit) for hit in matches(given)] or [given]


def _detect_videos(
    inputs: tuple[str, ...],
    out: str | None,
    model: str | Path,
    options: Options,
    temporal: float,
    threads: int,
    as_json: bool,
) -> int:
    from pixeldiff.video import WRITTEN, detect_video, result_name

    if others := [one for one in inputs if Path(one).suffix.lower() not in VIDEO_SUFFIXES]:
        raise UserError(f"{others[0]} is not a video; give videos and pictures in separate runs")
    as_file = out is not None and Path(out).suffix.lower() in WRITTEN and not names_folder(out)
    if as_file and len(inputs) > 1:
        raise UserError(f"-o {out} is one file, but there are {len(inputs)} videos; give a folder")
    if out is not None and not as_file and Path(out).suffix and not names_folder(out):
        raise UserError(f"-o {out} is no kind of video that is written; use {' '.join(WRITTEN)} or a folder")
    folder = None if out is None else Path(out).parent if as_file else Path(out)
    if folder:
        _check_writable(folder)
    targets: dict[Path, Path] = {}
    for source in map(Path, inputs):
        target = Path(out) if as_file and out else result_name(source, folder)
        refuse_itself(source, target)
        if targets.setdefault(target, source) != source:
            raise UserError(f"{targets[target]} and {source} would both become {target}; run them with different -o")
    detector = EdgeDetector(model, threads=1, streams=threads)
    summary = []
    for target, source in targets.items():
        if target.exists() and not options.overwrite:
            summary.append({"input": str(source), "status": "kept", "output": str(target)})
            continue
        try:
            with _bar() as progress:
                report = detect_video(detector, source, target, options, temporal, threads, progress)
        except UserError as error:
            if len(inputs) == 1:
                raise
            summary.append({"input": str(source), "status": "failed", "error": str(error)})
            continue
        status = "stopped" if report.stopped else "done"
        summary.append({"input": str(source), "status": status, "output": str(target), **asdict(report)})
        if report.stopped:
            break
    failures = [str(one["error"]) for one in summary if one["status"] == "failed"]
    for one in summary:
        if not as_json and one["status"] != "failed":
            click.echo(_video_sentence(one))
    if as_json:
        click.echo(json.dumps({"model": detector.name, "threads": threads, "results": summary}, indent=2))
    for failure in failures:
        click.echo(f"pixeldiff: skipped: {failure}", err=True)
    return 130 if summary[-1]["status"] == "stopped" else 1 if failures else 0


def _video_sentence(one: dict[str, Any]) -> str:
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


def _destination(inputs: tuple[str, ...], out: str | None) -> tuple[Path | None, Path | None]:
    """(file, folder) that -o names: a file only for one picture and a name with a format's suffix."""
    if out is None:
        return None, None
    path = Path(out)
    if names_folder(out):
        return None, path
    if path.suffix[1:].lower() not in FORMATS:
        one = len(inputs) == 1 and not Path(inputs[0]).is_dir()
        if path.suffix.lower() in SUFFIXES or (path.suffix and one):
            raise UserError(
                f"-o {out}: edges are not written as {path.suffix}; use one of {', '.join(FORMATS)}, or {out}/ "
                "for a folder"
            )
        return None, path
    if len(inputs) > 1 or Path(inputs[0]).is_dir():
        raise UserError(f"-o {out} is one file, but there are several pictures; give a folder")
    return path, None


def _format(given: str | None, target: Path | None) -> str:
    suffix = target.suffix[1:].lower() if target else None
    if given and suffix and given != suffix:
        raise UserError(f"--format {given} does not fit the name {target}; leave one of them out")
    return given or suffix or "png"


def _check_writable(folder: Path) -> None:
    """Say it before the work if results cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file, not a folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise UserError(f"cannot write to {folder} ({why}); choose another folder with -o") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"cannot write to {folder} (no permission); choose another folder with -o")


def _with_progress(outcomes: Iterable[Outcome], total: int) -> Iterator[Outcome]:
    """The outcomes as they come, with a bar on a terminal."""
    if total < 2:
        yield from outcomes
        return
    with _bar() as progress:
        for count, outcome in enumerate(outcomes, 1):
            progress(count, total)
            yield outcome


@contextlib.contextmanager
def _bar() -> Iterator[Callable[[int, int | None], None]]:
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


def _sentence(outcomes: list[Outcome], seconds: float) -> str:
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
    return ", ".join(parts)


def _summary(
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
                **({"height": one.size[0], "width": one.size[1]} if one.size else {}),
                **({"error": one.error} if one.error else {}),
            }
            for one in sorted(outcomes, key=lambda one: str(one.job.source))
        ],
    }
