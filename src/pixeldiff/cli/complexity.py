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

SIDE = 224  # of networks for edges, which take any size


@click.command()
@click.argument("model")
@click.option(
    "--input",
    "side",
    type=click.IntRange(min=1),
    help="Side of the image. [default: the model's input size; 224 for edges; a network for faces takes 112x96 only]",
)
@click.option("--width", type=float, help="Another width: a factor for ResNets, channels for PiDiNets.")
@_json.option
@_json.overwrite
def complexity(model: str, side: int | None, width: float | None, json_target: str | None, overwrite: bool) -> None:
    """FLOPs, BOPs, OPs = FLOPs + BOPs / 64, parameters and memory of MODEL (a network's name or a weights file)."""
    _json.check(json_target, overwrite)
    try:
        from pixeldiff.models.counting import count_layers

        network, own = _network(model, width)
    except ImportError as error:
        raise MissingExtra("train", "complexity", error.name) from error
    size = _size(own, side)
    records = count_layers(network, *size)
    result = {"name": model, "input": size[0] if size[0] == size[1] else list(size), **as_json(records)}
    _json.write(json_target, "complexity", [result], overwrite=overwrite)
    if json_target != _json.STDOUT:
        click.echo(as_text(records))


def _size(own: Any, side: int | None) -> tuple[int, int]:
    """Height and width of the image: what is asked for, the network's own size, or a square as on ImageNet."""
    if side is None and isinstance(own, list):
        return own[0], own[1]
    square = side or own or SIDE
    return square, square


def _network(model: str, width: float | None) -> tuple[nn.Module, Any]:
    """A file's network, or the one of that name, perhaps of another width and without memory for its weights.

    Its input size, too: a side, height and width, or None for networks that take any size.
    """
    import torch

    from pixeldiff.models import create_model
    from pixeldiff.models.saving import describe_model, load_with_description

    if width is None and (Path(model).suffix or model in cards()):
        network, described = load_with_description(model)
        return network, described["preprocessing"].get("size")
    options: dict[str, Any] = {} if width is None else {"width": int(width) if width.is_integer() else width}
    try:
        with torch.device("meta"):
            network = create_model(model, **options)
        return network, describe_model(network)["preprocessing"].get("size")
    except RuntimeError as error:
        raise UserError(f"{model} of width {width} has too many weights; give a smaller --width") from error
