"""`pixeldiff train RECIPE --out DIR`: train a network; started again, it goes on where it was."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("recipe", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
def train(recipe: Path, out: Path) -> None:
    """Train a network from a recipe; a run in --out is resumed."""
    from pixeldiff.recipe import read_recipe
    from pixeldiff.train import train as run

    run(read_recipe(recipe), out)
