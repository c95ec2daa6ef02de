"""`pixeldiff info`: model card, license, parameters, operations and memory of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff.cli import _json
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.metrics.complexity import as_json, layer_table, total
from pixeldiff.tasks import find_task
from pixeldiff.weights import canonical_name, cards

if TYPE_CHECKING:
    from torch import nn

SIDE = 224  # of networks for edges, which take any size


@click.command()
@click.argument("model")
@click.option("--layers", is_flag=True, help="List the layers, with operations and parameters of each.")
@click.option(
    "--input-size",
    "side",
    metavar="N",
    type=click.IntRange(min=1),
    help="Height and width of the image, in pixels. [default: the model's; 224 for edges]",
)
@click.option("--width", metavar="X", type=float, help="Another width: a factor for ResNets, channels for PiDiNets.")
@_json.option
@_json.overwrite
def info(
    model: str, layers: bool, side: int | None, width: float | None, json_target: str | None, overwrite: bool
) -> None:
    """Show the model card, license, parameters, operations and memory of MODEL (a name or a weights file).

    OPs = FLOPs + BOPs / 64, where BOPs are operations on single bits.
    """
    _json.check(json_target, overwrite)
    card = None if width is not None else cards().get(canonical_name(model))
    described: dict[str, Any] = {"name": model, **(card or {})}
    records = None
    try:
        from pixeldiff.models.counting import count_layers

        network, metadata = _network(model if card is None else card["name"], width)
        described = {"task": metadata["task"], "license": metadata.get("license"), **described}
        size = _input_size(metadata["preprocessing"].get("size"), side)
        records = count_layers(network, *size)
    except ImportError as error:
        missing = MissingExtra("train", "info", error.name)
        if card is None:
            raise missing from error
        click.echo(f"note: operations are not counted: {missing}", err=True)
    result = dict(described)
    if records is not None:
        counts = as_json(records)
        result |= {"input": size[0] if size[0] == size[1] else list(size), **counts}
        if not layers:
            del result["layers"]
    _json.write(json_target, "info", [result], overwrite=overwrite)
    if json_target == _json.STDOUT:
        return
    if layers and records is not None:
        click.echo(layer_table(records) + "\n")
    has_weights = card is not None or bool(Path(model).suffix)
    rows = [
        *_card_rows(described, card is not None, has_weights),
        *(_count_rows(records, size) if records is not None else ()),
    ]
    for label, text in rows:
        click.echo(click.wrap_text(f"{label:12}{text}", 100, subsequent_indent=" " * 12))


def _card_rows(described: dict[str, Any], pretrained: bool, has_weights: bool) -> list[tuple[str, str]]:
    task = find_task(described["task"])
    scores = (form.format(described[key]) for key, form in task.scores.items() if described.get(key) is not None)
    recipe = " ".join(described[key] for key in ("recipe", "variant", "stage") if isinstance(described.get(key), str))
    rows = {
        "model": f"{described['name']}{' (pretrained)' if pretrained else ''}",
        "task": task.name,
        "license": described.get("license") or ("not stated" if has_weights else ""),
        "scores": ", ".join(scores),
        "trained on": described.get("data", ""),
        "recipe": recipe,
        "note": described.get("note", ""),
    }
    return [(label, text) for label, text in rows.items() if text]


def _count_rows(records: Any, size: tuple[int, int]) -> list[tuple[str, str]]:
    sums = total(records)
    parameters = f"{sums.fp_params:,}"
    if sums.binary_params:
        parameters += f" of 32 bits, {sums.binary_params:,} of 1 bit"
    head = sum(record.fp_params for record in records if not record.counted)
    return [
        ("parameters", parameters + (f"; the last linear layer has {head:,} more" if head else "")),
        (
            "operations",
            f"{sums.ops / 1e8:.2f}e8 OPs at {size[0]}x{size[1]}: {sums.flops / 1e8:.2f}e8 FLOPs (multiply-adds)"
            + (f", {sums.bops / 1e8:.2f}e8 BOPs" if sums.bops else ""),
        ),
        ("memory", f"{sums.memory_mbit:.1f} Mbit of parameters"),
    ]


def _input_size(size: Any, side: int | None) -> tuple[int, int]:
    """Return height and width: `side` if given, else the model's input size, else a square as on ImageNet."""
    if side is None and isinstance(size, list):
        return size[0], size[1]
    square = side or size or SIDE
    return square, square


def _network(model: str, width: float | None) -> tuple[nn.Module, dict[str, Any]]:
    """Return a file's network, or the one of that name (without memory for its weights), and its metadata."""
    import torch

    from pixeldiff.models import create_model
    from pixeldiff.models.saving import describe_model, load_with_description

    if width is None and (Path(model).suffix or model in cards()):
        return load_with_description(model)
    options: dict[str, Any] = {} if width is None else {"width": int(width) if width.is_integer() else width}
    try:
        with torch.device("meta"):
            network = create_model(model, **options)
        return network, describe_model(network)
    except RuntimeError as error:
        raise UserError(f"{model} of width {width} has too many weights; give a smaller --width") from error
