"""`pixeldiff data`: corrupted images, and pseudo-labels for images without labels."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import click

from pixeldiff.cli._edge_options import OptionText
from pixeldiff.cli._images import RunOptions, collect, run_images, run_options
from pixeldiff.cli._network import complete_model, device_option, find_network
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.edgemap import PAPER_SCALES
from pixeldiff.errors import MissingExtra, OutputError, UserError
from pixeldiff.inference.edges import SCALES, TASK, Look
from pixeldiff.jobs.detect import PseudoLabel
from pixeldiff.jobs.operation import ModelSpec
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
        from pixeldiff.evaluation.corrupt_images import CorruptImages, is_result
    except ImportError as error:
        raise MissingExtra("robustness", "data corrupt", error.name) from error
    operation = CorruptImages(corruption, severity, seed)
    images = collect(inputs, run, formats=tuple(IMAGE_SUFFIXES), skip=is_result)
    if images.target:
        operation = replace(operation, suffix=images.target.suffix)
    return run_images("data corrupt", operation, images, run)


@data.command("pseudo-label", cls=GroupedCommand)
@click.argument("inputs", nargs=-1, metavar="IMAGES", type=click.Path())
@option(
    "Labels",
    "--teacher",
    metavar="NAME|FILE",
    shell_complete=complete_model(TASK),
    default="basic",
    show_default=True,
    help="The model whose edges are the labels: a pretrained one, or a weights file.",
)
@option("Labels", "--no-flip", is_flag=True, help="Do not average with the map of the flipped image; half the work.")
@option(
    "Labels",
    "--scales",
    type=OptionText(SCALES),
    default=PAPER_SCALES,
    metavar="S,S,...",
    help="Scales of the image whose maps are averaged; work grows with their squares. [default: 0.5,1,1.5]",
)
@device_option
@run_options
def pseudo_label(
    inputs: tuple[str, ...], teacher: str, no_flip: bool, scales: tuple[float, ...], device: str, run: RunOptions
) -> int:
    """Write the edges of all IMAGES (a folder) as pseudo-labels into -o DIR: DIR/x/y.png for IMAGES/x/y.jpg.

    They are the maps of a teacher, averaged over scales and horizontal flips. Labels of large images have the size at
    which the teacher ran. To resume, run the same command again. The exit code is 1 if some images failed.
    """
    if run.output is None:
        raise UserError("missing the folder for the labels; give -o DIR")
    if Path(teacher).suffix == ".pth":
        raise UserError(f"{teacher} is a file of the paper's authors, whose networks are no teachers; train your own")
    if any(os.path.realpath(run.output) == os.path.realpath(folder) for folder in inputs):
        raise OutputError(f"the labels would lie among the images in {run.output}; give another folder with -o")
    images = collect(inputs, run)
    with find_network(teacher, TASK) as named:
        look = Look(scales=scales, flip=not no_flip)
        operation = PseudoLabel(ModelSpec(TASK, named.runs, device), look, Drawing())
        return run_images("data pseudo-label", operation, images, run, model=named.name)
