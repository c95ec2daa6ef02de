"""PackedNetwork: a network with 1-bit weights on the packed kernels.

Maps between layers are channels last: floats for shortcuts and differences, and their packed signs. Environment:
PIXELDIFF_ISA forces an instruction set (portable, avx2, ...), see `pixeldiff._native.instruction_sets()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native, weights
from pixeldiff.errors import UserError
from pixeldiff.inference.packed_file import (
    Binary,
    Conv,
    FlattenLinear,
    Layer,
    Linear,
    MaxPool,
    PackedFile,
    Replica,
    read_packed,
)
from pixeldiff.machine import cores

Floats = NDArray[np.float32]
Bits = NDArray[np.uint64] | None  # packed signs, where the layer before has made them
Step = Callable[[Floats, Bits], tuple[Floats, Bits]]


class PackedNetwork:
    """The layers of a file, ready to run on so many threads. It may be called from several threads at once."""

    def __init__(self, file: PackedFile, threads: int) -> None:
        try:
            self.steps = [_step(file, index, layer, threads) for index, layer in enumerate(file.layers)]
        except ValueError as error:  # an unknown PIXELDIFF_ISA
            raise UserError(str(error)) from error

    def __call__(self, x: Floats) -> Floats:
        """The outputs of the last layer for normalized images, float32 (N, H, W, 3)."""
        bits: Bits = None
        for step in self.steps:
            x, bits = step(x, bits)
        return x[:, 0, 0]


def open_packed(
    model: str | os.PathLike[str], task: str, threads: int | None, streams: int
) -> tuple[PackedFile, PackedNetwork]:
    """A pretrained model or a .pdn file for this task; so many streams share the cores unless `threads` are given."""
    if (threads is not None and threads < 1) or streams < 1:
        raise UserError(f"threads and streams are at least 1, got {threads} and {streams}")
    path, _ = weights.runnable(model, task)
    file = read_packed(path)
    return file, PackedNetwork(file, threads or max(1, cores() // streams))


def _step(file: PackedFile, index: int, layer: Layer, threads: int) -> Step:
    own = {name.split(".", 1)[1]: t for name, t in file.tensors.items() if name.startswith(f"{index}.")}
    if isinstance(layer, Conv):
        conv = _native.FloatConv(own["weight"], layer.stride, own["norm"], own.get("rprelu"))
        return lambda x, bits: (conv(x, threads), None)
    if isinstance(layer, MaxPool):
        return lambda x, bits: (_native.max_pool(x, threads), None)
    if isinstance(layer, Linear):
        return _linear(layer, own["weight"], own["bias"], threads)
    if isinstance(layer, FlattenLinear):
        return _flatten_linear(layer, own["weight"], own["bias"], threads)
    return _binary(layer, own, threads)


def _linear(layer: Linear, weight: Floats, bias: Floats, threads: int) -> Step:
    norm = np.stack([np.ones(layer.outputs, np.float32), bias])
    conv = _native.FloatConv(weight[:, :, None, None], 1, norm)
    return lambda x, bits: (conv(x.mean((1, 2), keepdims=True), threads), None)


def _flatten_linear(layer: FlattenLinear, weight: Floats, bias: Floats, threads: int) -> Step:
    norm = np.stack([np.ones(layer.outputs, np.float32), bias])
    flat = np.ascontiguousarray(weight.transpose(0, 2, 3, 1)).reshape(layer.outputs, -1)  # maps are channels last
    conv = _native.FloatConv(flat[:, :, None, None], 1, norm)
    return lambda x, bits: (conv(x.reshape(len(x), 1, 1, -1), threads), None)


def _binary(layer: Binary, own: dict[str, Any], threads: int) -> Step:
    plain = layer.outputs * (layer.inputs - layer.differing) * layer.kernel_size**2
    difference = layer.outputs * layer.differing * len(layer.pairs)
    conv = _native.BinaryConv(
        layer.inputs,
        layer.outputs,
        layer.kernel_size,
        layer.stride,
        layer.differing,
        list(layer.pairs),
        unpack_bits(own.get("plain"), plain),
        unpack_bits(own.get("difference"), difference),
        own.get("plain_norm"),
        own.get("difference_norm"),
        own["activations"],
    )
    shortcut = _shortcut(layer.shortcut, own, threads)
    return lambda x, bits: conv(x, bits, shortcut(x), threads)


def unpack_bits(packed: NDArray[np.uint8] | None, count: int) -> NDArray[np.uint8]:
    """`count` signs (1 for +1, 0 for -1) from bytes, lowest bit first."""
    if packed is None:
        return np.zeros(0, np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little")


def _shortcut(shortcut: str | Replica, own: dict[str, Any], threads: int) -> Callable[[Floats], Floats]:
    if isinstance(shortcut, Replica):
        replica = shortcut
        if replica.pool:
            return lambda x: _native.replicate(_native.average_pool(x, threads), replica.copies, replica.parts)
        return lambda x: _native.replicate(x, replica.copies, replica.parts)
    if shortcut == "projection":
        conv = _native.FloatConv(own["shortcut_weight"], 1, own["shortcut_norm"])
        return lambda x: conv(_native.average_pool(x, threads), threads)
    return lambda x: x
