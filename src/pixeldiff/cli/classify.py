"""`pixeldiff classify`: what images show, with a packed 1-bit network."""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _cluster, _json
from pixeldiff.cli._network import complete_model, open_network
from pixeldiff.errors import UserError
from pixeldiff.files import find_files
from pixeldiff.image import SUFFIXES
from pixeldiff.inference.classes import make_classes

TASK = "classes"


@click.command()
@click.argument("inputs", nargs=-1, required=True, type=click.Path())
@click.option(
    "--model",
    metavar="NAME",
    shell_complete=complete_model(TASK),
    help="A pretrained model or a weights file. [default: the shipped one with the best top-1 accuracy]",
)
@click.option("--top", type=click.IntRange(min=1), default=5, show_default=True, help="How many classes to name.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@_json.option
@_json.overwrite
@click.option("-o", "--out", type=click.Path(), help="Cluster: the folder or address for the manifest.")
@_cluster.options
def classify(
    inputs: tuple[str, ...],
    model: str | None,
    top: int,
    threads: int | None,
    json_target: str | None,
    overwrite: bool,
    out: str | None,
    cluster: _cluster.Cluster | None,
) -> int:
    """Name the likeliest classes of INPUTS (images, folders or globs); exit code 1 if some are not readable."""
    _json.check(json_target, overwrite)
    if cluster:
        network = _cluster.carry(model or weights.best(TASK), TASK, cluster)
        note = f"pixeldiff classify --model {Path(network.name).stem} --top {top}"
        source, target = _cluster.single(inputs, out)
        task = _cluster.Task("classify", source, target, network, partial(make_classes, top=top), None, note, overwrite)
        return _cluster.run(task, cluster, json_target)
    if out:
        raise UserError("-o is of --cluster; here the classes are printed, and --json FILE keeps them")
    with open_network(model or weights.best(TASK), TASK, threads) as opened:
        results, failed = _predict(opened.network, inputs, top)
    if len(failed) == 1 and not results:
        raise UserError(failed[0]["error"])
    _json.write(json_target, "classify", results, failed, overwrite, model=opened.name)
    if json_target != _json.STDOUT:
        for one in results:
            click.echo(one["input"])
            for p in one["classes"]:
                click.echo(f"  {100 * p['probability']:5.1f} %  {p['label']}")
    for fault in failed:
        print(f"pixeldiff: skipped: {fault['error']}", file=sys.stderr)
    return 1 if failed else 0


def _predict(network: Any, inputs: tuple[str, ...], top: int) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Each image with its likeliest classes, and what could not be read."""
    results, failed = [], []
    for given in inputs:
        found = find_files([given], SUFFIXES, "images")
        failed += [{"input": name, "error": why} for name, why in found.missing.items()]
        for path, _ in found.files:
            try:
                best = [dataclasses.asdict(p) for p in network(path, top)]
                results.append({"input": str(path), "classes": best})
            except UserError as error:
                failed.append({"input": str(path), "error": str(error)})
    return results, failed
