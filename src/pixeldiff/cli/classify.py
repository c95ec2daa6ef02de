"""`pixeldiff classify`: what pictures show, with a packed 1-bit network."""

from __future__ import annotations

import dataclasses
import json
import sys

import click

from pixeldiff.cli._network import complete_model
from pixeldiff.errors import UserError
from pixeldiff.files import find_files
from pixeldiff.image import SUFFIXES
from pixeldiff.runtime.packed import PackedClassifier, Prediction
from pixeldiff.weights import best_classifier


@click.command()
@click.argument("images", nargs=-1, required=True, type=click.Path())
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model,
    help="A shipped packed network or a .pdn file. [default: the shipped one with the best top-1 accuracy]",
)
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="How many classes to name.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
def classify(images: tuple[str, ...], model: str | None, top: int, threads: int | None, as_json: bool) -> int:
    """Name the likeliest classes of IMAGES (pictures, folders or globs); exit code 1 if some are not readable."""
    network = PackedClassifier(model or best_classifier(), threads)
    results: dict[str, list[Prediction]] = {}
    failed: dict[str, str] = {}
    for given in images:
        found = find_files([given], SUFFIXES, "pictures")
        failed |= found.missing
        for path, _ in found.files:
            try:
                results[str(path)] = network(path, top)
            except UserError as error:
                failed[str(path)] = str(error)
    if len(failed) == 1 and not results:
        raise UserError(*failed.values())
    if as_json:
        table = {name: [dataclasses.asdict(p) for p in best] for name, best in results.items()}
        click.echo(json.dumps({"model": network.name, "images": table, "failed": failed}, indent=2))
    else:
        for name, likeliest in results.items():
            click.echo(name)
            for p in likeliest:
                click.echo(f"  {100 * p.probability:5.1f} %  {p.label}")
    for message in failed.values():
        print(f"pixeldiff: skipped: {message}", file=sys.stderr)
    return 1 if failed else 0
