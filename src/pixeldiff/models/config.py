"""Checks that the configs of several network families share, and weights taken over between equal configs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Sequence
from typing import Any

from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.nn.layers import check_ratio
from pixeldiff.weights.pairs import KINDS, PixelPairs


def check_choice(field: str, value: object, choices: Collection[object]) -> None:
    """Raise an error unless the value of a config's field is one of the choices."""
    if value not in list(choices):
        raise UserError(f"unknown {field} {value!r}; use one of {', '.join(map(str, choices))}")


def check_differences(kind: object, ratio: float) -> None:
    """Raise an error unless `kind` has a name, `ratio` is a fraction, and both or neither ask for differences."""
    if isinstance(kind, PixelPairs):  # a config is written into weights files
        raise UserError(
            f"the kind of a network is a name, {', '.join(KINDS)}, because weights files hold it; give a PixelPairs to "
            "layers: PDConv2d, BinaryPDCBlock, or replace_convs(model, pairs) on a network without differences"
        )
    check_choice("kind", kind, KINDS)
    check_ratio(ratio)
    if kind != "vanilla" and not ratio:
        raise UserError(f"kind {kind!r} has no effect with ratio 0; give a ratio above 0, or kind 'vanilla'")
    if kind == "vanilla" and ratio:
        raise UserError(f"ratio {ratio:g} has no effect with kind 'vanilla'; give ratio 0, or a kind of differences")


def scale_channels(channels: Sequence[int], width: float) -> tuple[int, ...]:
    """Multiply channel counts by `width`; an error unless all results are whole numbers above 0."""
    scaled = [count * width for count in channels]
    if not (math.isfinite(width) and width > 0) or any(count != int(count) for count in scaled):
        raise UserError(
            f"width {width} gives channel counts that are not whole ({', '.join(f'{count:g}' for count in scaled)}); "
            f"use a multiple of 1/{channels[0]}"
        )
    return tuple(int(count) for count in scaled)


def copy_weights(model: nn.Module, other: nn.Module, ignore: Collection[str] = ()) -> None:
    """Give `model` the weights of `other`, whose config may differ in the fields of `ignore` only."""
    if type(model) is not type(other):
        raise UserError(f"they are the weights of a {type(other).__name__}, this is a {type(model).__name__}")
    mine, theirs = _fields(model), _fields(other)
    different = [key for key in mine if mine[key] != theirs[key] and key not in ignore]
    if different:
        changes = ", ".join(f"{key} {theirs[key]!r} instead of {mine[key]!r}" for key in different)
        raise UserError(f"they are the weights of another {type(model).__name__}: {changes}")
    model.load_state_dict(other.state_dict())


def _fields(model: nn.Module) -> dict[str, Any]:
    return dataclasses.asdict(model.config)  # type: ignore[call-overload, no-any-return]
