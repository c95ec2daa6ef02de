"""`pixeldiff train RECIPE -o DIR`: train a network; the same command resumes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pixeldiff.errors import DiskFullError, MissingExtra

if TYPE_CHECKING:
    from pixeldiff.training.stages import Plan


@click.command()
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Output folder.",
)
@click.option("--variant", default="", metavar="NAME", help="Variant of a recipe that has several.")
@click.option("--stage", default="", metavar="NAME", help="Single stage, in DIR/NAME. [default: all, in order]")
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change of a recipe key, such as seed=1. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Check recipe and data, and show what would be trained.")
@click.option("--resume/--no-resume", default=True, show_default=True, help="Resume the run in DIR, if there is one.")
def train(
    recipe: str, output: Path, variant: str, stage: str, changes: tuple[str, ...], dry_run: bool, resume: bool
) -> int:
    """Train a network by RECIPE, a name that `pixeldiff recipes` lists or a TOML file.

    \b
    pixeldiff train edges/tiny -o runs/tiny
    pixeldiff train edges/patterns --variant c16 --set seed=1 -o runs/c16

    Ctrl-C or SIGTERM writes a checkpoint and stops with exit code 130. To resume, run the same command again.
    Several processes: torchrun --nproc-per-node 2 -m pixeldiff train RECIPE -o DIR
    """
    try:
        from pixeldiff.training import loop, needs, stages
        from pixeldiff.training.processes import Processes
        from pixeldiff.training.recipe_file import read_file
        from pixeldiff.training.run import CHECKPOINT, LAST
    except ImportError as error:
        raise MissingExtra("train", "training", error.name) from error

    is_first = int(os.environ.get("RANK", "0")) == 0
    plan = stages.plan(read_file(recipe), output, variant, stage, changes)
    if len(plan) > 1 or dry_run:
        stages.check_data(plan)
    if dry_run:
        if is_first:
            print(_described(plan))
        return 0
    with Processes() as processes:
        for folder, settings in plan:
            if is_first and folder != output:
                click.echo(f"stage {folder.name} in {folder}", err=True)
            if is_first:
                needs.make_maps(settings)
            processes.broadcast(None)  # the others wait for the maps
            finished = loop.train(settings, folder, resume, processes)
            if not finished:
                break
    if is_first:
        if not finished and not (folder / CHECKPOINT).exists():
            raise DiskFullError(f"no checkpoint could be written into {folder}: nothing to resume; free some space")
        print(f"done: {folder / LAST}" if finished else "stopped; to resume, run the same command again")
    return 0 if finished else 130


def _described(plan: Plan) -> str:
    """Describe each run of a plan in a line."""
    return "\n".join(
        f"{folder}: {recipe.model['name']}, {recipe.schedule.samples:,} samples in {recipe.steps:,} steps, "
        f"from {recipe.init_from or 'scratch'}"
        for folder, recipe in plan
    )
