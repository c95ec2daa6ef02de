"""`pixeldiff classify`: the classes that images show, with a packed 1-bit network."""

from __future__ import annotations

from collections.abc import Iterator

import click

from pixeldiff import weights
from pixeldiff.cli._images import RunOptions, collect, run_images, run_options
from pixeldiff.cli._network import complete_model, find_network
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.jobs.classes import Classify
from pixeldiff.jobs.operation import ModelSpec, Result

TASK = "classes"


@click.command(cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@option(
    "Classification",
    "-m",
    "--model",
    metavar="NAME|FILE",
    shell_complete=complete_model(TASK),
    help="A pretrained model or a weights file. [default: the pretrained one with the best top-1 accuracy]",
)
@option(
    "Classification",
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    default=5,
    show_default=True,
    help="Number of classes per image.",
)
@run_options
def classify(inputs: tuple[str, ...], model: str | None, top: int, run: RunOptions) -> int:
    """Classify INPUTS: images, folders (recursively) or globs.

    Prints the likeliest classes of each image; --json FILE writes them. The exit code is 1 if some images failed.
    """
    images = collect(inputs, run)
    with find_network(model or weights.best(TASK), TASK) as named:
        operation = Classify(ModelSpec(TASK, named.runs), top)
        return run_images("classify", operation, images, run, show=_lines, model=named.name)


def _lines(result: Result) -> Iterator[str]:
    if not result.error:
        yield str(result.job.source)
        for prediction in result.record["classes"]:
            yield f"  {100 * prediction['probability']:5.1f} %  {prediction['label']}"
