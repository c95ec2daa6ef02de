"""`pixeldiff complexity`: operations, parameters and memory, per layer and in total."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pixeldiff.errors import UserError
from pixeldiff.metrics.complexity import as_json, as_text
from pixeldiff.weights import cards


@click.command()
@click.argument("model")
@click.option(
    "--input", "side", type=click.IntRange(min=1), default=224, show_default=True, help="Side of the picture."
)
@click.option("--width", type=float, help="Another width: a factor for ResNets, channels for PiDiNets.")
@click.option("--json", "machine", is_flag=True, help="JSON instead of a table.")
def complexity(model: str, side: int, width: float | None, machine: bool) -> None:
    """FLOPs, BOPs, OPs = FLOPs + BOPs / 64, parameters and memory of MODEL (a network's name or a weights file)."""
    try:
        import torch

        from pixeldiff.models import create_model
        from pixeldiff.models.counting import count_layers
        from pixeldiff.models.saving import load_model
    except ImportError as error:
        raise UserError(f"complexity needs {error.name}; install it with: pip install 'pixeldiff[train]'") from error
    if width is None and (Path(model).suffix or model in cards()):
        network = load_model(model)
    else:
        options: dict[str, Any] = {} if width is None else {"width": int(width) if width.is_integer() else width}
        try:
            with torch.device("meta"):  # shapes alone need no memory
                network = create_model(model, **options)
        except RuntimeError as error:
            raise UserError(f"{model} of width {width} has too many weights; give a smaller --width") from error
    records = count_layers(network, side)
    click.echo(json.dumps({"model": model, "input": side, **as_json(records)}) if machine else as_text(records))
