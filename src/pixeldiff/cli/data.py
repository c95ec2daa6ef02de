"""`pixeldiff data`: pseudo-labels for images that nobody has labeled."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import click

from pixeldiff import image
from pixeldiff.cli import _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._edge_options import OptionText
from pixeldiff.cli._images import RunOptions, collect, run_images, run_options
from pixeldiff.cli._network import complete_model, one_of, open_network
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.data.lists import read_list
from pixeldiff.edgemap import PAPER_SCALES
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import InputFiles, Job, find_files, make_folder, plan_jobs
from pixeldiff.inference.edges import SCALES, TASK, Look
from pixeldiff.jobs.edges import EdgeFiles, detect_files
from pixeldiff.machine import cores
from pixeldiff.parallel import split_threads
from pixeldiff.render.drawing import Drawing
from pixeldiff.render.formats import IMAGE_SUFFIXES


@click.group()
def data() -> None:
    """Write data sets for training and scoring: pseudo-labels and corrupted images."""


@data.command("corrupt", cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@option(
    "Corruption",
    "--corruption",
    required=True,
    metavar="NAME",
    help="A corruption such as fog, or all for a sheet of all corruptions at all severities.",
)
@option(
    "Corruption", "--severity", type=click.IntRange(1, 5), metavar="N", default=1, show_default=True, help="1 to 5."
)
@option(
    "Corruption",
    "--seed",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of the random numbers.",
)
@run_options
def corrupt(inputs: tuple[str, ...], corruption: str, severity: int, seed: int, run: RunOptions) -> int:
    """Write corrupted copies of INPUTS (images, folders or globs): photo.jpg becomes photo.fog-3.png.

    With --corruption all: a sheet of the 15 corruptions at the 5 severities, photo.corruptions.png. The exit code is 1
    if some images failed.
    """
    try:
        from pixeldiff.robustness.corrupt_images import CorruptImages, is_result
    except ImportError as error:
        raise MissingExtra("robustness", "data corrupt", error.name) from error
    operation = CorruptImages(corruption, severity, seed)
    images = collect(inputs, run, formats=tuple(IMAGE_SUFFIXES), skip=is_result)
    if images.target:
        operation = replace(operation, suffix=images.target.suffix)
    return run_images("data corrupt", operation, images, run)


@data.command("pseudo-labels")
@click.argument("photos", type=click.Path(path_type=Path, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--model", shell_complete=complete_model(TASK), help="The pretrained model that teaches. [default: basic]"
)
@click.option("--weights", type=click.Path(path_type=Path), help="The network in this file teaches, one of your own.")
@click.option(
    "--only", type=click.Path(path_type=Path), metavar="LIST", help="Label the images that this text file names."
)
@click.option("--no-flip", is_flag=True, help="Without the horizontal flips; half the work.")
@click.option(
    "--scales",
    type=OptionText(SCALES),
    default=PAPER_SCALES,
    metavar="S,S,...",
    help="Sizes of the image whose maps are averaged; work grows as their squares. [default: 0.5,1,1.5]",
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--overwrite", is_flag=True, help="Label again what has a label; by default it is kept.")
@_json.option
def pseudo_labels(
    photos: Path,
    out: Path,
    model: str | None,
    weights: Path | None,
    only: Path | None,
    no_flip: bool,
    scales: tuple[float, ...],
    threads: int | None,
    overwrite: bool,
    json_target: str | None,
) -> int:
    """Edges of all images below PHOTOS as pseudo-labels in OUT: maps of a network, averaged over scales and mirrored.

    A recipe learns them with the source "soft:PHOTOS:OUT". Given again, the command goes on where it was stopped.
    Images larger than the network sees them have smaller labels, and are reduced when they are learned. The exit
    code is 1 if some images failed.
    """
    _json.check(json_target, overwrite)
    if weights is not None and weights.suffix == ".pth":
        raise UserError(f"{weights} is a file of the paper's authors, whose networks are no teachers; train your own")
    found, jobs = _unlabeled(photos, out, only)
    make_folder(out)
    made_by = f"pixeldiff data pseudo-labels --scales {','.join(map('{:g}'.format, scales))}{' --no-flip' * no_flip}"
    wanted = EdgeFiles(Look(scales=scales, flip=not no_flip), Drawing(), overwrite, True, made_by)
    threads = threads or cores()
    start = time.perf_counter()
    teacher = one_of(model or (None if weights else "basic"), weights)
    with open_network(teacher, TASK, *split_threads(threads, len(jobs))) as opened:
        outcomes = list(detect_files(opened.network, jobs, wanted))
    seconds = time.perf_counter() - start
    outcomes.sort(key=lambda one: str(one.job.source))
    failed = report.failures(found, outcomes)
    more = {"model": opened.network.name, **report.totals(outcomes, threads, seconds)}
    _json.write(json_target, "data pseudo-labels", report.records(outcomes), failed, overwrite, **more)
    if json_target != _json.STDOUT:
        report.say(report.sentences(outcomes, jobs, seconds))
    report.remark(report.remarks(outcomes, found, len(jobs)))
    return report.exit_code(outcomes, failed)


def _unlabeled(photos: Path, out: Path, only: Path | None) -> tuple[InputFiles, list[Job]]:
    """The images to be labeled, and where their labels go: OUT/x/y.png for PHOTOS/x/y.jpg."""
    if not photos.is_dir():
        raise UserError(f"no folder of images {photos}; check the name")
    if os.path.realpath(out) == os.path.realpath(photos):
        raise UserError(f"the labels of {photos} would lie among its images; give another folder")
    found = find_files([str(photos)], image.SUFFIXES, "images", str(out))
    if only is not None:
        wanted = dict.fromkeys(line.strip() for line in read_list(only).splitlines() if line.strip())
        names = {name: one for one in found.files for name in _names(one[0], photos)}
        found.missing |= {
            name: f"no image {name} in {photos}, which {only} names" for name in wanted if name not in names
        }
        found.files = list(dict.fromkeys(names[name] for name in wanted if name in names))
    if not found.files:
        raise UserError(next(iter(found.missing.values())))
    return found, plan_jobs(found, None, out, lambda _: "png")


def _names(image: Path, root: Path) -> tuple[str, str]:
    """What a list may call an image: its place below the folder, with its suffix or without."""
    name = image.relative_to(root)
    return name.as_posix(), name.with_suffix("").as_posix()
