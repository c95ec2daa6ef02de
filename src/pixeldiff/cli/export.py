"""`pixeldiff export`: write a model as a file that runs without torch."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import click

from pixeldiff import tasks, weights
from pixeldiff.cli._outputs import check_outputs
from pixeldiff.errors import MissingExtra, OutputError, UserError
from pixeldiff.files import check_overwrite

# Functions (weights, destination, pattern=None) -> the largest difference between the file and the network.
EXPORTERS = {
    "edges": "pixeldiff.export.onnx:export_weights",
    "classes": "pixeldiff.export.packed:export_packed",
    "faces": "pixeldiff.export.packed:export_packed",
    "objects": "pixeldiff.export.objects:export_objects",
}

_SUFFIXES = "; ".join(f"{' or '.join(weights.suffixes(task))} for {task}" for task in tasks.TASKS)


@click.command()
@click.argument("model")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"File to write: {_SUFFIXES}. [default: the model's name in the current folder]",
)
@click.option("--pattern", metavar="LETTERS", help="Layer kinds of an authors' .pth file, if it fits several: carv.")
@click.option("--nms", is_flag=True, help="Objects: put non-maximum suppression into the graph.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export(model: str, output: Path | None, pattern: str | None, nms: bool, overwrite: bool) -> None:
    """Write MODEL (a pretrained model's name, a .safetensors or a .pth file) as a file that runs without torch.

    The file is compared with the network before it gets its name.
    """
    check_outputs()
    _check_installed("torch")
    source = weights.training_file(model)
    task = weights.describe(source)["task"]
    suffixes = weights.suffixes(task)
    if output is None:
        output = Path(source.stem + next(suffix for suffix in suffixes if suffix != source.suffix))
    if output.suffix not in suffixes:
        raise UserError(
            f"cannot export to {output.name!r}; the file of a network for {task} ends in {' or '.join(suffixes)}"
        )
    if output.suffix == ".onnx":
        _check_installed("onnx", "onnxruntime")
    if not output.parent.is_dir():
        raise OutputError(f"no folder {output.parent} to write {output.name} into; create it first")
    check_overwrite(output, overwrite)
    write = tasks.load(EXPORTERS[task])
    if nms and "nms" not in inspect.signature(write).parameters:
        raise UserError(f"--nms is for networks for objects, not for {task}; leave it out")
    deviation = write(model, output, pattern, **({"nms": True} if nms else {}))
    click.echo(f"{output}: {output.stat().st_size / 1e6:.2f} MB, within {deviation:.1e} of the network")


def _check_installed(*libraries: str) -> None:
    try:
        for library in libraries:
            importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra("train", "export", error.name) from error
