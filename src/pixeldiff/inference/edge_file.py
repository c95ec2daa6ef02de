"""Trained edge networks, read strictly and folded for our own engine: the .safetensors file runs as it is.

A PiDiNet is a width, a pattern and three switches; they say which tensors the file must have. See
`models/pidinet.py` for the network and `native/float/pidinet.hpp` for the order in which the engine takes its weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError
from pixeldiff.weights.description import JsonReader
from pixeldiff.weights.pairs import folded
from pixeldiff.weights.tensor_file import FLOATS, Shapes, Tensors, read_tensors, split

FAMILY = "pidinet"
KINDS = {"c": "central", "a": "angular", "r": "radial", "v": "vanilla"}
MOST_CHANNELS = 4096
MOST_BYTES = 2**30

Layer = tuple[str, tuple[int, ...], str]  # a tensor's name, its shape, and the kind of kernel it is


@dataclass(frozen=True)
class EdgeConfig:
    """What the engine's network is made from."""

    width: int
    side_channels: int
    pattern: str
    cdcm: bool
    csam: bool
    shortcuts: bool

    def layers(self) -> Iterator[Layer]:
        """Every tensor, in the engine's order."""
        kinds = [KINDS[letter] for letter in self.pattern]
        yield "stem.weight", (self.width, 3, 3, 3), kinds[0]
        before = self.width
        for stage, channels in enumerate((self.width, 2 * self.width, 4 * self.width, 4 * self.width)):
            for block, kind in enumerate(kinds[4 * stage + (stage == 0) : 4 * stage + 4]):
                name = f"stages.{stage}.{block}"
                yield f"{name}.depthwise.weight", (before, 1, 3, 3), kind
                yield f"{name}.pointwise.weight", (channels, before, 1, 1), ""
                if self.shortcuts and stage and not block:
                    yield f"{name}.shortcut.weight", (channels, before, 1, 1), ""
                    yield f"{name}.shortcut.bias", (channels,), ""
                before = channels
            yield from self._side(f"sides.{stage}", channels)
        yield "fusion.weight", (1, 4, 1, 1), ""
        yield "fusion.bias", (1,), ""

    def _side(self, name: str, channels: int) -> Iterator[Layer]:
        if self.cdcm:
            yield f"{name}.dilate.squeeze.weight", (self.side_channels, channels, 1, 1), ""
            channels = self.side_channels
            yield f"{name}.dilate.squeeze.bias", (channels,), ""
            for view in range(4):
                yield f"{name}.dilate.views.{view}.weight", (channels, channels, 3, 3), ""
        if self.csam:
            yield f"{name}.attend.squeeze.weight", (4, channels, 1, 1), ""
            yield f"{name}.attend.squeeze.bias", (4,), ""
            yield f"{name}.attend.attend.weight", (1, 4, 3, 3), ""
        yield f"{name}.reduce.weight", (1, channels, 1, 1), ""
        yield f"{name}.reduce.bias", (1,), ""


@dataclass(frozen=True)
class EdgeFile:
    """A checked file: what the network is, and all its weights, folded, one after the other."""

    config: EdgeConfig
    weights: NDArray[np.float32]


def read_edges(path: Path) -> EdgeFile:
    """The network in a .safetensors file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UserError(f"it has more than {MOST_BYTES} bytes")
        return parse_edges(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}); check the name") from error
    except UserError as error:
        raise UserError(f"{path} holds no usable edge network: {error}; save or download it again") from error


def parse_edges(content: bytes) -> EdgeFile:
    table, described, data = split(content, "edge network")
    if described.get("family") != FAMILY:
        raise UserError(f"it is a network of the family {described.get('family')!r}, not {FAMILY!r}")
    config = _parse_config(described)
    layers = list(config.layers())
    wanted: Shapes = {name: (FLOATS, shape) for name, shape, _ in layers}
    tensors = read_tensors(table, data, wanted)
    weights = np.concatenate([_flat(tensors, name, kind) for name, _, kind in layers])
    if not np.isfinite(weights).all():
        raise UserError("its kernels hold values that are too large to fold")
    return EdgeFile(config, weights)


def _flat(tensors: Tensors, name: str, kind: str) -> NDArray[np.float32]:
    weight = tensors[name]
    if not kind:
        return weight.reshape(-1)
    with np.errstate(over="ignore"):
        return folded(weight, kind).reshape(-1)


def _parse_config(described: dict[str, Any]) -> EdgeConfig:
    fields = JsonReader(JsonReader(described, "the description").value("config"), "the config")
    pattern = fields.text("pattern")
    if len(pattern) != 16 or set(pattern) - set(KINDS):
        raise UserError(f"the config's pattern is not 16 of the letters {', '.join(KINDS)}")
    width, side_channels = (fields.integer(key, 1, MOST_CHANNELS) for key in ("width", "side_channels"))
    cdcm, csam, shortcuts = (fields.boolean(key) for key in ("cdcm", "csam", "shortcuts"))
    return EdgeConfig(width, side_channels, pattern, cdcm, csam, shortcuts)
