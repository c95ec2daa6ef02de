"""`pixeldiff detect`: edges of pictures, folders, globs and videos."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff.cli import _report as report
from pixeldiff.cli._network import complete_model, network_file
from pixeldiff.errors import UserError
from pixeldiff.files import NoRoomError
from pixeldiff.image import SUFFIXES
from pixeldiff.machine import cores
from pixeldiff.runtime.edges import DEFAULT_SIZE, PAPER_SCALES, TASK, EdgeDetector, seen_size
from pixeldiff.runtime.formats import FORMATS, GROUNDS, Options
from pixeldiff.runtime.formats import SUFFIXES as WRITTEN
from pixeldiff.runtime.stream import (
    STREAM,
    Found,
    Job,
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
from pixeldiff.runtime.vector import STROKE, TOLERANCE
from pixeldiff.runtime.video import SUFFIXES as VIDEO_SUFFIXES


class _Finite(click.FloatRange):
    """A range without nan, which is neither below its end nor above."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is no number", param, ctx)


class _Size(click.ParamType):
    """Pixels, or the word full."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        size = int(value) if str(value).isdecimal() else str(value)
        seen_size((1, 1), size)  # says what is accepted
        return size


@click.command()
@click.argument("inputs", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="Folder for the results, or the file for one picture; - is stdout. [default: beside the picture]",
)
@click.option(
    "--model", shell_complete=complete_model(TASK), help="A shipped network; see pixeldiff models. [default: tiny]"
)
@click.option("--weights", type=click.Path(path_type=Path), help="An .onnx file, or with torch a .safetensors or .pth.")
@click.option(
    "--size",
    type=_Size(),
    metavar="N|full",
    help=f"Longest side of what the network sees; the map has the picture's size. [default: {DEFAULT_SIZE}]",
)
@click.option(
    "--thin",
    is_flag=True,
    help="Thin lines (the benchmark's non-maximum suppression); one pixel wide with --threshold.",
)
@click.option("--threshold", type=_Finite(0, 1), metavar="T", help="Black and white: edge where the map is at least T.")
@click.option("--invert", is_flag=True, help="Dark edges on white.")
@click.option(
    "--ground",
    type=click.Choice(GROUNDS),
    help="Edges on nothing, or drawn over the photo in magenta (black with --invert). [default: black]",
)
@click.option(
    "--multi-scale", is_flag=True, help="Average the maps at half, full and one and a half size; 3.5 times the work."
)
@click.option(
    "--side-outputs", is_flag=True, help="Also the maps of the four stages, photo.edges.side_1.png and so on."
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    help="png16 has 16 bits, npy and mat hold floats, svg lines. [default: the suffix of OUT, or png]",
)
@click.option(
    "--tolerance",
    type=_Finite(min=0),
    metavar="PIXELS",
    default=TOLERANCE,
    show_default=True,
    help="SVG: how far a line may be from the pixels it stands for.",
)
@click.option(
    "--min-length",
    type=_Finite(min=0),
    metavar="PIXELS",
    default=0.0,
    help="SVG: leave out specks, lines that have fewer pixels together with all they touch. [default: off]",
)
@click.option(
    "--stroke",
    type=_Finite(min=0, min_open=True),
    metavar="PIXELS",
    default=STROKE,
    show_default=True,
    help="SVG: width of the lines.",
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
    size: int | str | None,
    thin: bool,
    threshold: float | None,
    invert: bool,
    ground: str | None,
    multi_scale: bool,
    side_outputs: bool,
    format_: str | None,
    tolerance: float,
    min_length: float,
    stroke: float,
    temporal: float,
    threads: int | None,
    overwrite: bool,
    as_json: bool,
) -> int:
    """Write the edges of INPUTS: pictures, folders (searched to the bottom), globs or videos; - is stdin.

    photo.jpg becomes photo.edges.png, white edges on black, of the photo's size; clip.mp4 becomes clip.edges.mp4 with
    the same frames, times and sound. The exit code is 1 if some pictures failed, 2 if nothing could be done or the
    disk is full.
    """
    network = (model or (None if weights else "tiny"), weights)
    scales = PAPER_SCALES if multi_scale else None
    threads = threads or cores()
    if any(Path(one).suffix.lower() in VIDEO_SUFFIXES for one in inputs):
        if format_ or side_outputs or ground:
            raise UserError(
                "--format, --ground and --side-outputs are for pictures; a video's kind follows from the name in -o"
            )
        options = Options("video", thin, threshold, invert, scales, overwrite=overwrite, size=size)
        return _detect_videos(_spread(inputs), out, network, options, temporal, threads, as_json)
    if temporal:
        raise UserError("--temporal is for videos; leave it out for pictures")
    target, folder = _destination(inputs, out)
    if target == STREAM and (as_json or side_outputs):
        raise UserError("with -o - stdout holds one file; leave out --json and --side-outputs")
    options = Options(
        _format(format_, target),
        thin,
        threshold,
        invert,
        scales,
        side_outputs,
        overwrite,
        tolerance,
        size,
        ground,
        min_length,
        stroke,
    )
    return _detect_pictures(inputs, target, folder, network, options, threads, as_json)


def _detect_pictures(
    inputs: tuple[str, ...],
    target: Path | None,
    folder: Path | None,
    network: tuple[str | None, Path | None],
    options: Options,
    threads: int,
    as_json: bool,
) -> int:
    found = find_pictures(inputs, folder)
    jobs = _plan(inputs, target, folder, found, options)
    start = time.perf_counter()
    with network_file(*network, ".onnx") as (_, file):
        detector, streams = open_streams(file, threads, len(jobs))
        outcomes = list(_with_progress(detect_files(detector, jobs, options, streams), len(jobs)))
    outcomes.sort(key=lambda one: str(one.job.source))  # they come as they are ready
    seconds = time.perf_counter() - start
    failures = found.missing + [one.error for one in outcomes if one.error and one.status == "failed"]
    stopped = [one.error for one in outcomes if one.error and one.status == "stopped"][:1]
    if (failures or stopped) and len(inputs) == len(jobs) == 1 and not Path(inputs[0]).is_dir():
        raise UserError((failures + stopped)[0])
    if as_json:
        summary = report.picture_summary(detector, outcomes, failures + stopped, seconds, threads)
        click.echo(json.dumps(summary, indent=2))
    elif target != STREAM:
        click.echo(report.picture_sentence(outcomes, len(jobs), seconds))
    for failure in failures:
        _remark(f"skipped: {failure}")
    for remark in report.remarks(outcomes, found.others, options):
        _remark(remark)
    for reason in stopped:
        done = sum(one.status == "done" for one in outcomes)
        _remark(f"{done} of {len(jobs)} written, then stopped: {reason}")
    return 2 if stopped else 1 if failures else 0


def _plan(
    inputs: tuple[str, ...], target: Path | None, folder: Path | None, found: Found, options: Options
) -> list[Job]:
    """The jobs; what would only show after the work is told before."""
    if target and len(found.files) > 1:
        raise UserError(f"-o {target} is one file, but {inputs[0]} are {len(found.files)} pictures; give a folder")
    if not found.files:
        raise UserError("; ".join([*found.missing, *report.left_out(found.others)]))
    if target:
        refuse_itself(found.files[0][0], target)
    if folder:
        _check_writable(folder)
    options.encode(np.zeros((1, 1), np.float32), np.zeros((1, 1, 3), np.uint8))  # what is not installed
    if target:
        return [Job(found.files[0][0], target)]
    return plan_jobs(found, folder, f"edges.{FORMATS[options.format].suffix}")


def _remark(text: str) -> None:
    click.echo("pixeldiff: " + " ".join(text.split()), err=True)


def _spread(inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The files behind names and globs, without our own results where a shell has spread a glob."""
    if len(inputs) > 1:
        inputs = tuple(one for one in inputs if not is_result(Path(one))) or inputs
    return tuple(
        hit
        for one in inputs
        for hit in ([one] if Path(one).exists() else [str(found) for found in matches(one)] or [one])
    )


def _detect_videos(
    inputs: tuple[str, ...],
    out: str | None,
    network: tuple[str | None, Path | None],
    options: Options,
    temporal: float,
    threads: int,
    as_json: bool,
) -> int:
    targets = _video_targets(inputs, out)
    with network_file(*network, ".onnx") as (_, file):
        detector = EdgeDetector(file, threads=1, streams=threads)
        summary = list(_video_results(detector, targets, options, temporal, threads))
    if len(inputs) == 1 and "error" in summary[0]:
        raise UserError(summary[0]["error"])
    if as_json:
        click.echo(json.dumps({"model": detector.name, "threads": threads, "results": summary}, indent=2))
    for one in summary:
        if one["status"] == "failed":
            _remark(f"skipped: {one['error']}")
        elif one["status"] == "full":
            done = sum(one["status"] == "done" for one in summary)
            _remark(f"{done} of {len(targets)} written, then stopped: {one['error']}")
        elif not as_json:
            click.echo(report.video_sentence(one))
    sizes = [(one["size"], one["seen"]) for one in summary if one["status"] == "done" and options.size is None]
    for remark in report.reduced(sizes, "video"):
        _remark(remark)
    codes = {"stopped": 130, "full": 2, "failed": 1}
    return max(codes.get(one["status"], 0) for one in summary)


def _video_targets(inputs: tuple[str, ...], out: str | None) -> dict[Path, Path]:
    """Result -> video."""
    from pixeldiff.runtime.video import WRITTEN, result_name

    if others := [one for one in inputs if Path(one).suffix.lower() not in VIDEO_SUFFIXES]:
        raise UserError(f"{others[0]} is not a video; give videos and pictures in separate runs")
    if out == "-":
        raise UserError("-o '-' is no name for a video; give the name of a file or a folder")
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
    return targets


def _video_results(
    detector: EdgeDetector, targets: dict[Path, Path], options: Options, temporal: float, threads: int
) -> Iterator[dict[str, Any]]:
    """What became of each video, until Ctrl-C or a full disk."""
    from pixeldiff.runtime.video import detect_video

    for target, source in targets.items():
        if target.exists() and not options.overwrite:
            yield {"input": str(source), "status": "kept", "output": str(target)}
            continue
        try:
            with report.show_progress() as progress:
                done = detect_video(detector, source, target, options, temporal, threads, progress)
        except NoRoomError as error:
            yield {"input": str(source), "status": "full", "error": str(error)}
            return
        except UserError as error:
            yield {"input": str(source), "status": "failed", "error": str(error)}
            continue
        status = "stopped" if done.stopped else "done"
        yield {"input": str(source), "status": status, "output": str(target), **asdict(done)}
        if done.stopped:
            return


def _destination(inputs: tuple[str, ...], out: str | None) -> tuple[Path | None, Path | None]:
    """(file, folder) that -o names: a file only for one picture and a name with a format's suffix."""
    several = len(inputs) > 1 or Path(inputs[0]).is_dir()
    suffix = Path(out or "").suffix.lower()
    as_folder = out is not None and names_folder(out)
    as_file = out == "-" or (suffix[1:] in WRITTEN and not as_folder)
    if out == "-" and sys.stdout.isatty():
        raise UserError("-o - writes a file to stdout, which is a terminal; send it on: -o - > edges.png")
    if "-" in inputs and (several or not as_file):
        raise UserError("- is stdin; give it alone, and with -o FILE, or with -o - for stdout")
    if as_file and several:
        raise UserError(f"-o {out} is one file, but there are several pictures; give a folder")
    if suffix and not as_file and not as_folder and (suffix in SUFFIXES or not several):
        kinds = ", ".join(WRITTEN)
        raise UserError(f"-o {out}: edges are not written as {suffix}; use one of {kinds}, or {out}/ for a folder")
    path = Path(out) if out else None
    return (path, None) if as_file else (None, path)


def _format(given: str | None, target: Path | None) -> str:
    named = WRITTEN.get(target.suffix[1:].lower()) if target else None
    if given and named and FORMATS[given].suffix != FORMATS[named].suffix:
        raise UserError(f"--format {given} does not fit the name {target}; leave one of them out")
    return given or named or "png"


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
    with report.show_progress() as progress:
        for count, outcome in enumerate(outcomes, 1):
            progress(count, total)
            yield outcome
