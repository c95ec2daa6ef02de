"""`pixeldiff export`: weights to a file that runs without torch."""

from __future__ import annotations

from pathlib import Path

import click

from pixeldiff.errors import UserError
from pixeldiff.files import refuse_existing


@click.command()
@click.argument("weights")
@click.option(
    "--to",
    "destination",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write: *.onnx for edges, *.pdn (1-bit weights) for binary networks.",
)
@click.option("--pattern", help="Layer kinds of an authors' .pth file, when it does not tell (e.g. carv).")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
def export(weights: str, destination: Path, pattern: str | None, overwrite: bool) -> None:
    """Write WEIGHTS (a .safetensors or .pth file, or a shipped network's name) as a file that runs without torch.

    The result is compared with the network before it gets its name.
    """
    try:
        from pixeldiff.export.onnx import export_weights
        from pixeldiff.export.packed import export_packed
    except ImportError as error:
        raise UserError(f"export needs {error.name}; install it with: pip install 'pixeldiff[train]'") from error
    refuse_existing(destination, overwrite)
    if pattern is not None and Path(weights).suffix not in (".pth", ".pt"):
        raise UserError(f"--pattern is for the authors' .pth files; {weights} says its own")
    packed = destination.suffix == ".pdn"
    deviation = export_packed(weights, destination) if packed else export_weights(weights, destination, pattern)
    click.echo(f"{destination}: {destination.stat().st_size / 1e6:.2f} MB, within {deviation:.1e} of the network")
