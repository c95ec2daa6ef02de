"""`pixeldiff train RECIPE --out DIR`: train a network; started again, it goes on where it was."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pixeldiff.errors import MissingExtra, UserError


@click.command()
@click.argument("recipe")
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--run", default="", metavar="NAME", help="Which run of a table.")
@click.option("--stage", default="", metavar="NAME", help="One stage of a network, in DIR/NAME; without, all in order.")
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key: --set seed=1. Repeatable.")
@click.option("--resume/--no-resume", default=True, show_default=True, help="Go on with the run in --out.")
def train(recipe: str, out: Path, run: str, stage: str, changes: tuple[str, ...], resume: bool) -> int:
    """Train a network from a recipe: a shipped one (`pixeldiff recipes` lists them) or a TOML file of your own.

    \b
    pixeldiff train edges/tiny --out runs/tiny
    pixeldiff train edges/patterns --run c16 --set seed=1 --out runs/c16

    Ctrl-C or SIGTERM writes a checkpoint and stops with exit code 130; the same command goes on from there.
    Several processes: torchrun --nproc-per-node 2 -m pixeldiff train RECIPE --out DIR
    """
    try:
        from pixeldiff.training import loop, stages
        from pixeldiff.training.processes import Processes
        from pixeldiff.training.recipe_file import read_file
        from pixeldiff.training.run import CHECKPOINT, LAST
    except ImportError as error:
        raise MissingExtra("train", "training", error.name) from error

    speaks = int(os.environ.get("RANK", "0")) == 0
    plan = stages.plan(read_file(recipe), out, run, stage, changes)
    if len(plan) > 1:
        stages.check_data(plan)
    with Processes() as processes:
        for folder, one in plan:
            if speaks and folder != out:
                click.echo(f"stage {folder.name} in {folder}", err=True)
            finished = loop.train(one, folder, resume, processes)
            if not finished:
                break
    if speaks:
        if not finished and not (folder / CHECKPOINT).exists():
            raise UserError(f"no checkpoint could be written into {folder}: nothing can be resumed; make room first")
        print(f"done: {folder / LAST}" if finished else "stopped; the same command goes on from here")
    return 0 if finished else 130
