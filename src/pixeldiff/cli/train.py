"""`pixeldiff train RECIPE --out DIR`: train a network; started again, it goes on where it was."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pixeldiff.errors import UserError


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--resume/--no-resume", default=True, show_default=True, help="Go on with the run in --out.")
def train(recipe: Path, out: Path, resume: bool) -> int:
    """Train a network from a recipe (a TOML file; see recipes/ and docs/training.md).

    Ctrl-C or SIGTERM writes a checkpoint and stops with exit code 130; the same command goes on from there.
    Several processes: torchrun --nproc-per-node 2 -m pixeldiff train RECIPE --out DIR
    """
    try:
        from pixeldiff.training.loop import train as run
        from pixeldiff.training.recipe import read_recipe
        from pixeldiff.training.run import CHECKPOINT
    except ImportError as error:
        raise UserError(f"training needs {error.name}; install it with: pip install 'pixeldiff[train]'") from error

    finished = run(read_recipe(recipe), out, resume)
    if int(os.environ.get("RANK", "0")) == 0:
        if not finished and not (out / CHECKPOINT).exists():
            raise UserError(f"no checkpoint could be written into {out}: nothing can be resumed; make room first")
        print(f"done: {out / 'last.safetensors'}" if finished else "stopped; the same command goes on from here")
    return 0 if finished else 130
