"""`pixeldiff detect`: edges of images, folders, globs and videos.

What is given is found and planned once (a job has a source and a target), run by kind (images many at a time,
videos one after the other), and told once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from pixeldiff import image
from pixeldiff.cli import _cluster, _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._edge_options import OptionText, edge_options
from pixeldiff.cli._images import RunOptions
from pixeldiff.cli._network import complete_model, find_network, one_of, open_network
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM, InputFiles, Job, check_targets, destination, find_files, make_folder, plan_jobs
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeNetwork, EdgeResult, Look
from pixeldiff.jobs import video
from pixeldiff.jobs.detect import DetectEdges
from pixeldiff.jobs.edges import EdgeFiles, detect_files, target_files
from pixeldiff.jobs.operation import ModelSpec, Result
from pixeldiff.jobs.video import is_clip
from pixeldiff.machine import cores
from pixeldiff.options import Number
from pixeldiff.parallel import split_threads
from pixeldiff.render.drawing import Drawing, render, resolve
from pixeldiff.render.formats import FORMATS, SUFFIXES

_WRITTEN = {False: tuple(f".{suffix}" for suffix in SUFFIXES), True: video.WRITTEN}  # whether of videos


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
@edge_options(Look, Drawing)
@click.option(
    "--temporal-smoothing",
    type=OptionText(Number(0, 0.99)),
    metavar="A",
    default=0.0,
    help="Videos: mix each map with the one before, A * before + (1 - A) * now, against flicker. [default: 0]",
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
    look: Look,
    drawing: Drawing,
    chosen: set[str],
    temporal_smoothing: float,
    threads: int | None,
    overwrite: bool,
    json_target: str | None,
    cluster: _cluster.Cluster | None,
) -> int:
    """Write the edges of INPUTS: images, folders (searched to the bottom), globs or videos; - is stdin.

    photo.jpg becomes photo.edges.png, white edges on black, of the photo's size; clip.mp4 becomes clip.edges.mp4 with
    the same frames, times and sound. The exit code is 1 if some images failed, 2 if nothing could be done or the
    disk is full.
    """
    _json.check(json_target, overwrite)
    word = _word(model, weights)
    if cluster:
        wanted = EdgeFiles(*resolve(look, drawing), overwrite)
        return _on_cluster(cluster, inputs, out, word, wanted, json_target)
    found = find_files(inputs, image.SUFFIXES, "images", out)
    _check_idle(inputs, found, bool(temporal_smoothing), chosen)
    target = destination(inputs, out, _written(inputs), (*image.SUFFIXES, *video.SUFFIXES))
    if target == STREAM and (json_target == "-" or look.sides):
        raise UserError("with -o - stdout holds one file; leave out --json - and --sides")
    drawing = replace(drawing, format=_format(drawing.format if "format" in chosen else None, target))
    wanted = EdgeFiles(*resolve(look, drawing), overwrite)
    jobs = _plan(found, target, None if target or out is None else Path(out), wanted)
    threads = threads or cores()
    start = time.perf_counter()
    with open_network(word, TASK, *_share(threads, jobs)) as opened:
        outcomes = _run(opened.network, jobs, wanted, temporal_smoothing)
    seconds = time.perf_counter() - start
    failed = report.failures(found, outcomes)
    if len(inputs) == len(jobs) == 1 and outcomes[0].error and not Path(inputs[0]).is_dir():
        raise UserError(outcomes[0].error)
    more = {"model": opened.network.name, "license": opened.network.metadata.get("license")}
    more |= report.totals(outcomes, threads, seconds)
    _json.write(json_target, "detect", report.records(outcomes), failed, overwrite, **more)
    if target != STREAM and json_target != "-":
        report.say(report.sentences(outcomes, jobs, seconds))
    report.remark(report.remarks(outcomes, found, len(jobs)))
    if "max_size" not in chosen:
        report.remark(report.downscaled(outcomes))
    return report.exit_code(outcomes, failed)


def _word(model: str | None, weights: Path | None) -> str | Path:
    return one_of(model or (None if weights else DEFAULT), weights)


def _on_cluster(
    cluster: _cluster.Cluster,
    inputs: tuple[str, ...],
    out: str | None,
    word: str | Path,
    wanted: EdgeFiles,
    json_target: str | None,
) -> int:
    """Images only; the names are those of a run here."""
    if any(is_clip(Path(source)) for source in inputs):
        raise UserError("--cluster is for images; run videos without it")
    _encode_nothing(wanted.drawing)
    with find_network(word, TASK) as named:
        operation = DetectEdges(ModelSpec(TASK, named.runs), wanted)
        run = RunOptions(out, None, None, wanted.overwrite, json_target, False, None, None, cluster)
        return _cluster.run("detect", operation, inputs, run)


def _check_idle(inputs: Sequence[str], found: InputFiles, smoothed: bool, chosen: set[str]) -> None:
    """Raise an error for options that would do nothing: no input is of their kind."""
    kinds = {is_clip(path) for path in (*map(Path, inputs), *(path for path, _ in found.files))}
    if smoothed and True not in kinds:
        raise UserError("--temporal-smoothing is for videos; leave it out for images")
    if chosen & {"format", "sides"} and False not in kinds:
        raise UserError("--format and --sides are for images; the name in -o decides a video's format")


def _written(inputs: Sequence[str]) -> list[str]:
    """The suffixes that results of such inputs may have."""
    return [suffix for clip in {is_clip(Path(one)) for one in inputs} for suffix in _WRITTEN[clip]]


def _format(given: str | None, target: Path | None) -> str:
    named = SUFFIXES.get(target.suffix[1:].lower()) if target else None
    if given and named and FORMATS[given].suffix != FORMATS[named].suffix:
        raise UserError(f"--format {given} does not fit the name {target}; leave one of them out")
    return given or named or "png"


def _plan(found: InputFiles, target: Path | None, folder: Path | None, wanted: EdgeFiles) -> list[Job]:
    """The jobs; what would only show after the work is told before."""
    if not found.files:
        raise UserError("; ".join([*found.missing.values(), *report.unused(found.others)]))
    if target == STREAM and is_clip(found.files[0][0]):
        raise UserError("-o '-' is no name for a video; give the name of a file or a folder")

    def ending(source: Path) -> str:
        return f"edges{video.written_as(source) if is_clip(source) else '.' + FORMATS[wanted.drawing.format].suffix}"

    jobs = plan_jobs(found, target, folder, ending)
    images = [job for job in jobs if not is_clip(job.source)]
    check_targets((one for job in images for one in target_files(job, wanted.look)), [job.source for job in jobs])
    if place := folder or (target.parent if target and target != STREAM else None):
        make_folder(place)
    _encode_nothing(wanted.drawing)
    return jobs


def _encode_nothing(drawing: Drawing) -> None:
    """Report before the work what Pillow cannot write here."""
    empty = EdgeResult(np.zeros((1, 1, 1), np.float32), Look(), (1, 1))
    render(empty, drawing, np.zeros((1, 1, 3), np.uint8))


def _share(threads: int, jobs: Sequence[Job]) -> tuple[int, int]:
    """(threads, streams) of the network; a video has images for all."""
    return split_threads(threads, threads if any(is_clip(job.source) for job in jobs) else len(jobs))


def _run(network: EdgeNetwork, jobs: Sequence[Job], wanted: EdgeFiles, smoothing: float) -> list[Result]:
    """What became of the jobs, in the order of their names; they come as they are ready."""
    clips = [job for job in jobs if is_clip(job.source)]
    images = [job for job in jobs if not is_clip(job.source)]
    outcomes = list(detect_files(network, images, wanted))
    if not report.count(outcomes, "full"):
        outcomes += video.detect_clips(
            network, clips, wanted.look, wanted.drawing, wanted.overwrite, smoothing, report.show_progress
        )
    return sorted(outcomes, key=lambda one: str(one.job.source))
