"""`pixeldiff export`: weights to a file that runs without torch."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import click

from pixeldiff import tasks, weights
from pixeldiff.cli._outputs import check_outputs
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import check_overwrite

# Functions (weights, destination, pattern=None) -> the largest difference between the file and the network.
EXPORTERS = {
    "edges": "pixeldiff.export.onnx:export_weights",
    "classes": "pixeldiff.export.packed:export_packed",
    "faces": "pixeldiff.export.packed:export_packed",
    "objects": "pixeldiff.export.objects:export_objects",
}

_ENDINGS = ", ".join(f"*{end} for {row.name}" for row in tasks.TASKS.values() for end in weights.suffixes(row.name))


@click.command()
@click.argument("given", metavar="WEIGHTS")
@click.option(
    "--to",
    "destination",
    type=click.Path(path_type=Path),
    required=True,
    help=f"The file to write: {_ENDINGS}.",
)
@click.option("--pattern", help="Layer kinds of an authors' .pth file, when it does not tell (e.g. carv).")
@click.option("--nms", is_flag=True, help="Boxes: with non-maximum suppression in the graph, for programs without.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export(given: str, destination: Path, pattern: str | None, nms: bool, overwrite: bool) -> None:
    """Write WEIGHTS (a .safetensors or .pth file, or a pretrained model's name) as a file that runs without torch.

    The result is compared with the network before it gets its name.
    """
    check_outputs()
    try:
        for library in ("torch", *(("onnx", "onnxruntime") if destination.suffix == ".onnx" else ())):
            importlib.import_module(library)
    except ImportError as error:
        raise MissingExtra("train", "export", error.name) from error
    row = tasks.find_task(weights.describe(weights.trained(given))["task"])
    suffixes = weights.suffixes(row.name)
    if destination.suffix not in suffixes:
        raise UserError(
            f"cannot export to {destination.name!r}; networks for {row.name} need a name that ends in "
            f"{' or '.join(suffixes)}"
        )
    if not destination.parent.is_dir():
        raise UserError(f"no folder {destination.parent} to write {destination.name} into; make it first")
    check_overwrite(destination, overwrite)
    write = tasks.load(EXPORTERS[row.name])
    if nms and "nms" not in inspect.signature(write).parameters:
        raise UserError(f"--nms is for networks that find boxes, not for {row.name}; leave it out")
    deviation = write(given, destination, pattern, **({"nms": True} if nms else {}))
    click.echo(f"{destination}: {destination.stat().st_size / 1e6:.2f} MB, within {deviation:.1e} of the network")
