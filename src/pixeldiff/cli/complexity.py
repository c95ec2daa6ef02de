"""`pixeldiff complexity`: operations, parameters and memory, per layer and in total."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.cli import _json
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.metrics.complexity import as_json, as_text
from pixeldiff.weights import cards

if TYPE_CHECKING:
    from torch import nn

SIDE = 224


@click.command()
@click.argument("model")
@click.option(
    "--input",
    "side",
    type=click.IntRange(min=1),
    help="Side of the picture. [default: 224; a network for faces takes 112x96 only]",
)
@click.option("--width", type=float, help="Another width: a factor for ResNets, channels for PiDiNets.")
@_json.option
@_json.overwrite
def complexity(model: str, side: int | None, width: float | None, json_target: str | None, overwrite: bool) -> None:
    """FLOPs, BOPs, OPs = FLOPs + BOPs / 64, parameters and memory of MODEL (a network's name or a weights file)."""
    _json.check(json_target, overwrite)
    try:
        from pixeldiff.models.counting import count_layers

        network = _network(model, width)
    except ImportError as error:
        raise MissingExtra("train", "complexity", error.name) from error
    size = _size(network, side)
    records = count_layers(network, *size)
    result = {"name": model, "input": size[0] if size[0] == size[1] else list(size), **as_json(records)}
    _json.write(json_target, "complexity", [result], overwrite=overwrite)
    if json_target != _json.STDOUT:
        click.echo(as_text(records))


def _size(network: nn.Module, side: int | None) -> tuple[int, int]:
    """Height and width of the picture: what is asked for, what the network takes, or a square as on ImageNet."""
    from pixeldiff.models.saving import describe_model

    own = describe_model(network)["preprocessing"].get("size")
    return (own[0], own[1]) if side is None and isinstance(own, list) else (side or SIDE, side or SIDE)


def _network(model: str, width: float | None) -> nn.Module:
    """A file's network, or the one of that name, perhaps of another width and without memory for its weights."""
    import torch

    from pixeldiff.models import create_model
    from pixeldiff.models.saving import load_model

    if width is None and (Path(model).suffix or model in cards()):
        return load_model(model)
    options: dict[str, Any] = {} if width is None else {"width": int(width) if width.is_integer() else width}
    try:
        with torch.device("meta"):
            return create_model(model, **options)
    except RuntimeError as error:
        raise UserError(f"{model} of width {width} has too many weights; give a smaller --width") from error
