"""`pixeldiff data hed-bsds SRC DST`: data sets in the layouts that other programs read."""

from __future__ import annotations

from pathlib import Path

import click

from pixeldiff.cli._progress import show_bars
from pixeldiff.data.bsds import ORIGIN
from pixeldiff.data.lists import find_root
from pixeldiff.errors import needs
from pixeldiff.machine import cores


@click.group()
def data() -> None:
    """Write data sets in the layouts that other programs read."""


@data.command("hed-bsds")
@click.argument("source", metavar="SRC", type=click.Path(path_type=Path))
@click.argument("destination", metavar="DST", type=click.Path(path_type=Path))
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
def hed_bsds(source: Path, destination: Path, threads: int | None) -> None:
    """Raw BSDS500 in SRC, augmented as HED does, to the new folder DST.

    16 rotations, 2 flips, 3 scales: 28,800 pictures with their lists, about 1.5 GB. `pixeldiff train` makes the same
    pictures on the fly and does not need this.
    """
    try:
        from pixeldiff.training.hed_layout import write_hed_bsds
    except ImportError as error:
        raise needs("train", "writing this layout", error) from error

    root = find_root(str(source), ORIGIN)
    with show_bars() as bars:
        bar = bars.add_task("pictures", total=None)
        written = write_hed_bsds(
            root,
            destination,
            threads or cores(),
            lambda done, all_of_them: bars.update(bar, completed=done, total=all_of_them),
        )
    print(f"{written} pairs in {destination}")
