"""`pixeldiff detect`: edges of images, folders, globs and videos.

What is given is found and planned once (a job has a source and a target), run by kind (images many at a time,
videos one after the other), and told once.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff import image
from pixeldiff.cli import _cluster, _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._images import RunOptions
from pixeldiff.cli._network import complete_model, find_network, one_of, open_network
from pixeldiff.detector import DEFAULT, TASK, EdgeDetector
from pixeldiff.edgemap import PAPER_SCALES
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM, InputFiles, Job, check_targets, destination, find_files, make_folder, plan_jobs
from pixeldiff.inference.sizes import DEFAULT_SIZE, input_size
from pixeldiff.jobs import video
from pixeldiff.jobs.detect import DetectEdges
from pixeldiff.jobs.edges import detect_files, target_files
from pixeldiff.jobs.operation import ModelSpec, Result
from pixeldiff.jobs.video import is_clip
from pixeldiff.machine import cores
from pixeldiff.parallel import split_threads
from pixeldiff.render.drawing import Options
from pixeldiff.render.formats import FORMATS, GROUNDS, SUFFIXES
from pixeldiff.render.vector import STROKE, TOLERANCE

_WRITTEN = {False: tuple(f".{suffix}" for suffix in SUFFIXES), True: video.WRITTEN}  # whether of videos


class _Finite(click.FloatRange):
    """A range without nan, which is neither below its end nor above."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return number if math.isfinite(number) else self.fail(f"{value} is no number", param, ctx)


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Pixels, or the word full."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        size = int(value) if str(value).isdecimal() else str(value)
        input_size((1, 1), size)  # says what is accepted
        return size


@click.command()
@click.argument("inputs", nargs=-1, required=True, type=click.Path())
@click.option(
    "-o",
    "--out",
    type=click.Path(),
    help="Folder for the results, or the file for one image; - is stdout. [default: beside the image]",
)
@click.option(
    "--model", shell_complete=complete_model(TASK), help="A pretrained model; see pixeldiff models. [default: tiny]"
)
@click.option("--weights", type=click.Path(path_type=Path), help="A .safetensors file, an .onnx, or with torch a .pth.")
@click.option(
    "--size",
    type=_Size(),
    metavar="N|full",
    help=f"Longest side of what the network sees; the map has the image's size. [default: {DEFAULT_SIZE}]",
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
@click.option("--flip", is_flag=True, help="Average with the map of the mirror image; twice the work.")
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
@_json.option
@_cluster.options
def detect(
    inputs: tuple[str, ...],
    out: str | None,
    model: str | None,
    weights: Path | None,
    format_: str | None,
    multi_scale: bool,
    temporal: float,
    threads: int | None,
    json_target: str | None,
    cluster: _cluster.Cluster | None,
    **given: Any,
) -> int:
    """Write the edges of INPUTS: images, folders (searched to the bottom), globs or videos; - is stdin.

    photo.jpg becomes photo.edges.png, white edges on black, of the photo's size; clip.mp4 becomes clip.edges.mp4 with
    the same frames, times and sound. The exit code is 1 if some images failed, 2 if nothing could be done or the
    disk is full.
    """
    _json.check(json_target, given["overwrite"])
    word = _word(model, weights)
    scales = PAPER_SCALES if multi_scale else None
    if cluster:
        return _on_cluster(cluster, inputs, out, word, Options(format_ or "png", scales=scales, **given), json_target)
    found = find_files(inputs, image.SUFFIXES, "images", out)
    _check_idle(inputs, found, bool(temporal), bool(format_ or given["ground"] or given["side_outputs"]))
    target = destination(inputs, out, _written(inputs), (*image.SUFFIXES, *video.SUFFIXES))
    if target == STREAM and (json_target == "-" or given["side_outputs"]):
        raise UserError("with -o - stdout holds one file; leave out --json - and --side-outputs")
    options = Options(_format(format_, target), scales=scales, **given)
    jobs = _plan(found, target, None if target or out is None else Path(out), options)
    threads = threads or cores()
    start = time.perf_counter()
    with open_network(word, TASK, *_share(threads, jobs)) as opened:
        outcomes = _run(opened.network, jobs, options, temporal)
    seconds = time.perf_counter() - start
    failed = report.failures(found, outcomes)
    if len(inputs) == len(jobs) == 1 and outcomes[0].error and not Path(inputs[0]).is_dir():
        raise UserError(outcomes[0].error)
    more = {"model": opened.network.name, "license": opened.network.metadata.get("license")}
    more |= report.totals(outcomes, threads, seconds)
    _json.write(json_target, "detect", report.records(outcomes), failed, given["overwrite"], **more)
    if target != STREAM and json_target != "-":
        report.say(report.sentences(outcomes, jobs, seconds))
    report.remark(report.remarks(outcomes, found, len(jobs)))
    if options.size is None:
        report.remark(report.downscaled(outcomes))
    return report.exit_code(outcomes, failed)


def _word(model: str | None, weights: Path | None) -> str | Path:
    return one_of(model or (None if weights else DEFAULT), weights)


def _on_cluster(
    cluster: _cluster.Cluster,
    inputs: tuple[str, ...],
    out: str | None,
    word: str | Path,
    options: Options,
    json_target: str | None,
) -> int:
    """Images only; the names are those of a run here."""
    source, target = _cluster.single(inputs, out)
    if is_clip(Path(source)):
        raise UserError("--cluster is for images; run videos without it")
    _encode_nothing(options)
    with find_network(word, TASK) as named:
        operation = DetectEdges(ModelSpec(TASK, named.runs), options)
        run = RunOptions(target, None, None, options.overwrite, json_target, False, None, None, cluster)
        return _cluster.run("detect", operation, (source,), run)


def _check_idle(inputs: Sequence[str], found: InputFiles, of_videos: bool, of_images: bool) -> None:
    """Options that would do nothing, for there is nothing of their kind."""
    kinds = {is_clip(path) for path in (*map(Path, inputs), *(path for path, _ in found.files))}
    if of_videos and True not in kinds:
        raise UserError("--temporal is for videos; leave it out for images")
    if of_images and False not in kinds:
        raise UserError(
            "--format, --ground and --side-outputs are for images; a video's kind follows from the name in -o"
        )


def _written(inputs: Sequence[str]) -> list[str]:
    """The suffixes that results of such inputs may have."""
    return [suffix for clip in {is_clip(Path(one)) for one in inputs} for suffix in _WRITTEN[clip]]


def _format(given: str | None, target: Path | None) -> str:
    named = SUFFIXES.get(target.suffix[1:].lower()) if target else None
    if given and named and FORMATS[given].suffix != FORMATS[named].suffix:
        raise UserError(f"--format {given} does not fit the name {target}; leave one of them out")
    return given or named or "png"


def _plan(found: InputFiles, target: Path | None, folder: Path | None, options: Options) -> list[Job]:
    """The jobs; what would only show after the work is told before."""
    if not found.files:
        raise UserError("; ".join([*found.missing.values(), *report.unused(found.others)]))
    if target == STREAM and is_clip(found.files[0][0]):
        raise UserError("-o '-' is no name for a video; give the name of a file or a folder")

    def ending(source: Path) -> str:
        return f"edges{video.written_as(source) if is_clip(source) else '.' + FORMATS[options.format].suffix}"

    jobs = plan_jobs(found, target, folder, ending)
    images = [job for job in jobs if not is_clip(job.source)]
    check_targets((one for job in images for one in target_files(job, options)), [job.source for job in jobs])
    if place := folder or (target.parent if target and target != STREAM else None):
        make_folder(place)
    _encode_nothing(options)
    return jobs


def _encode_nothing(options: Options) -> None:
    """What Pillow here cannot write is told before the work."""
    options.encode(np.zeros((1, 1), np.float32), np.zeros((1, 1, 3), np.uint8))


def _share(threads: int, jobs: Sequence[Job]) -> tuple[int, int]:
    """(threads, streams) of the network; a video has images for all."""
    return split_threads(threads, threads if any(is_clip(job.source) for job in jobs) else len(jobs))


def _run(detector: EdgeDetector, jobs: Sequence[Job], options: Options, temporal: float) -> list[Result]:
    """What became of the jobs, in the order of their names; they come as they are ready."""
    clips = [job for job in jobs if is_clip(job.source)]
    images = [job for job in jobs if not is_clip(job.source)]
    outcomes = list(detect_files(detector, images, options))
    if not report.count(outcomes, "full"):
        outcomes += video.detect_clips(detector, clips, options, temporal, report.show_progress)
    return sorted(outcomes, key=lambda one: str(one.job.source))
