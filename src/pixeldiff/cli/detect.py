"""`pixeldiff detect`: edges of images, folders, globs and videos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from pixeldiff import weights
from pixeldiff.cli import _report as report
from pixeldiff.cli._edge_options import OptionText, edge_options
from pixeldiff.cli._images import Images, RunOptions, collect, run_images, run_options
from pixeldiff.cli._network import complete_model, device_option, find_network
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeResult, Look
from pixeldiff.jobs.detect import DetectEdges
from pixeldiff.jobs.operation import ModelSpec, Result
from pixeldiff.jobs.video import is_clip
from pixeldiff.options import Number
from pixeldiff.render.drawing import Drawing, render, resolve
from pixeldiff.render.formats import FORMATS, SUFFIXES

DETECTION = "Detection"


@click.command(cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@option(
    DETECTION,
    "-m",
    "--model",
    metavar="NAME|FILE",
    shell_complete=complete_model(TASK),
    help="A pretrained model (see pixeldiff models) or a weights file. [default: tiny]",
)
@edge_options(Look, Drawing)
@option(
    "Drawing",
    "--temporal-smoothing",
    type=OptionText(Number(0, 0.99)),
    metavar="A",
    default=0.0,
    help="Videos: mix each map with the one before, A * before + (1 - A) * now, against flicker. [default: 0]",
)
@device_option
@run_options
def detect(
    inputs: tuple[str, ...],
    model: str | None,
    look: Look,
    drawing: Drawing,
    chosen: set[str],
    temporal_smoothing: float,
    device: str,
    run: RunOptions,
) -> int:
    """Detect edges in INPUTS: images, folders (recursively), globs or videos; - is stdin.

    photo.jpg becomes photo.edges.png, white edges on black, of the photo's size; clip.mp4 becomes clip.edges.mp4 with
    the same frames, times and sound. The exit code is 1 if some images failed, 2 if nothing could be done or the
    disk is full.
    """
    images = collect(inputs, run, formats=[f".{suffix}" for suffix in SUFFIXES], videos=True, streams=True)
    _check_unused(images, bool(temporal_smoothing), chosen)
    if images.target == STREAM and (run.json_target == "-" or look.sides):
        raise UserError("with -o - stdout holds one file; omit --json - and --sides")
    drawing = replace(drawing, format=_format(drawing.format if "format" in chosen else None, images.target))
    look, drawing = resolve(look, drawing)
    _encode_empty(drawing)

    def remarks(results: Sequence[Result]) -> Iterator[str]:
        return iter(()) if "max_size" in chosen else report.downscaled(results)

    with find_network(model or DEFAULT, TASK) as named:
        operation = DetectEdges(ModelSpec(TASK, named.runs, device), look, drawing, temporal_smoothing)
        license = weights.describe(named.runs).get("license")
        return run_images("detect", operation, images, run, remarks=remarks, model=named.name, license=license)


def _check_unused(images: Images, smoothed: bool, chosen: set[str]) -> None:
    """Raise an error for options that would do nothing, for no input is of their kind."""
    kinds = {is_clip(path) for path in (*map(Path, images.inputs), *(path for path, _ in images.files.files))}
    if smoothed and True not in kinds:
        raise UserError("--temporal-smoothing is for videos; omit it for images")
    if chosen & {"format", "sides"} and False not in kinds:
        raise UserError("--format and --sides are for images; the name in -o decides a video's format")


def _format(chosen: str | None, target: Path | None) -> str:
    """Return the format of the files: that of --format, or of the name in -o."""
    named = SUFFIXES.get(target.suffix[1:].lower()) if target else None
    if chosen and named and FORMATS[chosen].suffix != FORMATS[named].suffix:
        raise UserError(f"--format {chosen} does not fit the name {target}; omit one of them")
    return chosen or named or "png"


def _encode_empty(drawing: Drawing) -> None:
    """Raise an error before the work if Pillow cannot write the format."""
    empty = EdgeResult(np.zeros((1, 1, 1), np.float32), Look(), (1, 1))
    render(empty, drawing, np.zeros((1, 1, 3), np.uint8))
