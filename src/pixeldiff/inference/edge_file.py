"""Trained edge networks, read strictly and folded for the C++ engine: the .safetensors file runs as it is.

Under "engine" the description lists the tensors in the order of native/float/pidinet.hpp, each with the kind of its
kernels ("" without one), and gives the folding matrix of every kind:

    "engine": {"tensors": [["stem.weight", "central"], ["stages.0.0.pointwise.weight", ""], ...],
               "folding": {"central": [[1, 0, ...], ...], ...}}

A kernel w of 3x3 weights becomes `matrix @ w`, computed in float64: 9 rows give a 3x3 kernel, 25 rows the 5x5 kernel of
radial differences. web/network.js reads files by the same rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native
from pixeldiff.errors import InputError, UserError
from pixeldiff.weights.description import JsonReader, check_integer, check_number
from pixeldiff.weights.tensor_file import FLOATS, Shapes, Tensors, read_tensors, split

ENGINE_KEY = "engine"
MAX_CHANNELS = 4096
MAX_BYTES = 2**30
MAX_TENSORS = 1000
MAX_KINDS = 16

_TAPS = 9  # weights of a 3x3 kernel
# Where a radial 5x5 kernel is not zero: the weights of the outer pixels and, negated, of the inner ones.
_OUTER = (0, 2, 4, 10, 14, 20, 22, 24)
_INNER = (6, 7, 8, 11, 13, 16, 17, 18)

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class EdgeConfig:
    """What the engine needs besides the weights; `kernel_sizes` are 3 or 5, of the stem and the 15 blocks."""

    width: int
    side_channels: int
    kernel_sizes: tuple[int, ...]
    cdcm: bool
    csam: bool
    shortcuts: bool


@dataclass(frozen=True)
class EdgeFile:
    """A checked file: the network's config and all its weights, folded and concatenated."""

    config: EdgeConfig
    weights: NDArray[np.float32]


def read_edges(path: Path) -> EdgeFile:
    """Read the network in a .safetensors file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"it has more than {MAX_BYTES} bytes")
        return parse_edges(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the name") from error
    except UserError as error:
        raise InputError(f"{path} holds no usable edge network: {error}; save or download it again") from error


def parse_edges(content: bytes) -> EdgeFile:
    """Check and fold the content of a .safetensors file."""
    table, described, data = split(content, "edge network")
    if ENGINE_KEY not in described:
        raise InputError("it does not list its tensors for the C++ engine; save it again with this version")
    layout = JsonReader(described[ENGINE_KEY], "the engine's layout")
    folding = _parse_folding(layout)
    tensors = _parse_tensors(layout, folding)
    shapes = {name: _parse_shape(table, name) for name, _ in tensors}
    kernels = [name for name, kind in tensors if kind]
    if bad := [name for name in kernels if len(shapes[name]) < 2 or shapes[name][-2:] != (3, 3)]:
        raise InputError(f"tensor {bad[0]!r} has no 3x3 kernels")
    config = _parse_config(described, [math.isqrt(len(folding[kind])) for _, kind in tensors if kind])
    _check_sizes(config, [_folded_size(shapes[name], folding.get(kind)) for name, kind in tensors])
    wanted: Shapes = {name: (FLOATS, shape) for name, shape in shapes.items()}
    weights = _fold(read_tensors(table, data, wanted), tensors, folding)
    return EdgeFile(config, weights)


def _parse_folding(layout: JsonReader) -> dict[str, Matrix]:
    """Return the matrix of each kind, (9 or 25, 9)."""
    table = JsonReader(layout.value("folding"), "the folding matrices").table
    if len(table) > MAX_KINDS or not all(table):
        raise InputError(f"it has more than {MAX_KINDS} kinds of kernels, or a kind without a name")
    matrices = {}
    for kind, rows in table.items():
        what = f"the folding matrix of {kind!r}"
        if not isinstance(rows, list) or len(rows) not in (9, 25):
            raise InputError(f"{what} has neither 9 nor 25 rows")
        if not all(isinstance(row, list) and len(row) == _TAPS for row in rows):
            raise InputError(f"{what} has a row that is not {_TAPS} numbers")
        matrices[kind] = matrix = np.array([[check_number(value, what) for value in row] for row in rows])
        if len(rows) == 25 and not np.array_equal(matrix, _radial(matrix)):
            raise InputError(f"{what} is not radial; the engine runs 3x3 kernels and radial 5x5 kernels")
    return matrices


def _radial(matrix: Matrix) -> Matrix:
    """Return the radial matrix with the same outer rows."""
    result = np.zeros_like(matrix)
    result[list(_OUTER)] = matrix[list(_OUTER)]
    result[list(_INNER)] = -matrix[list(_OUTER)]
    return result


def _parse_tensors(layout: JsonReader, folding: dict[str, Matrix]) -> list[tuple[str, str]]:
    """Return name and kind of each tensor, in the engine's order."""
    listed = layout.value("tensors")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_TENSORS:
        raise InputError(f"'tensors' of the engine's layout is not a list of 1 to {MAX_TENSORS}")
    tensors = []
    for entry in listed:
        if not isinstance(entry, list) or len(entry) != 2 or not all(isinstance(text, str) for text in entry):
            raise InputError("an entry of the engine's layout is not a tensor's name and its kind")
        name, kind = entry
        if kind and kind not in folding:
            raise InputError(f"tensor {name!r} has the kind {kind!r}, which has no folding matrix")
        tensors.append((name, kind))
    if len(dict(tensors)) != len(tensors):
        raise InputError("the engine's layout names a tensor twice")
    return tensors


def _parse_shape(table: dict[str, Any], name: str) -> tuple[int, ...]:
    if name not in table:
        raise InputError(f"tensor {name!r} is missing")
    shape = JsonReader(table[name], f"tensor {name!r}").value("shape")
    if not isinstance(shape, list) or not 1 <= len(shape) <= 4:
        raise InputError(f"the shape of tensor {name!r} is not a list of 1 to 4 numbers")
    return tuple(check_integer(side, 1, 4 * MAX_CHANNELS, f"the shape of tensor {name!r}") for side in shape)


def _parse_config(described: dict[str, Any], kernel_sizes: list[int]) -> EdgeConfig:
    fields = JsonReader(JsonReader(described, "the description").value("config"), "the config")
    width, side_channels = (fields.integer(key, 1, MAX_CHANNELS) for key in ("width", "side_channels"))
    cdcm, csam, shortcuts = (fields.boolean(key) for key in ("cdcm", "csam", "shortcuts"))
    return EdgeConfig(width, side_channels, tuple(kernel_sizes), cdcm, csam, shortcuts)


def engine_sizes(config: EdgeConfig) -> list[int]:
    """Return the number of floats of each folded tensor that the engine takes."""
    try:
        return _native.edge_weight_sizes(
            config.width, config.side_channels, config.kernel_sizes, config.cdcm, config.csam, config.shortcuts
        )
    except ValueError as error:
        raise InputError(f"the engine cannot run its network: {error}") from error


def _folded_size(shape: tuple[int, ...], matrix: Matrix | None) -> int:
    size = math.prod(shape)
    return size if matrix is None else size // _TAPS * len(matrix)


def _check_sizes(config: EdgeConfig, sizes: list[int]) -> None:
    expected = engine_sizes(config)
    if len(sizes) != len(expected):
        raise InputError(f"it lists {len(sizes)} tensors, its network has {len(expected)}")
    for index, (size, needed) in enumerate(zip(sizes, expected, strict=True)):
        if size != needed:
            raise InputError(f"tensor {index} of the engine's layout has {size} numbers after folding, not {needed}")


def _fold(tensors: Tensors, listed: list[tuple[str, str]], folding: dict[str, Matrix]) -> NDArray[np.float32]:
    """Return all weights in the engine's order."""
    parts = []
    for name, kind in listed:
        weight: NDArray[Any] = tensors[name]
        if kind:
            with np.errstate(over="ignore", invalid="ignore"):
                weight = (weight.reshape(-1, _TAPS).astype(np.float64) @ folding[kind].T).astype(np.float32)
        parts.append(weight.reshape(-1))
    weights = np.concatenate(parts)
    if not np.isfinite(weights).all():
        raise InputError("its kernels hold values that are too large to fold")
    return weights
