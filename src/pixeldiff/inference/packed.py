"""PackedNetwork: a network with 1-bit weights on the packed kernels.

Maps between layers are channels last: floats for shortcuts and differences, and their packed signs. Environment:
PIXELDIFF_ISA forces an instruction set (portable, avx2, ...), see `pixeldiff._native.instruction_sets()`.
"""

from __future__ import annotations

import os
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


class PackedNetwork:
    """The layers of a file, ready to run on so many threads. It may be called from several threads at once."""

    def __init__(self, file: PackedFile, threads: int) -> None:
        self.threads = threads
        self._network = _native.PackedNetwork()
        try:
            for index, layer in enumerate(file.layers):
                prefix = f"{index}."
                tensors = {name.removeprefix(prefix): t for name, t in file.tensors.items() if name.startswith(prefix)}
                _add_layer(self._network, layer, tensors)
        except ValueError as error:  # an unknown PIXELDIFF_ISA
            raise UserError(str(error)) from error

    def __call__(self, x: Floats) -> Floats:
        """Compute the outputs of the last layer for normalized images, float32 (N, H, W, 3)."""
        return self.maps(x)[:, 0, 0]

    def maps(self, x: Floats, first: int = 0, last: int = -1) -> Floats:
        """Compute what layers [first, last) make of maps, float32 (N, H, W, C); -1 stands for all."""
        return self._network(x, self.threads, first, last)


def open_packed(
    model: str | os.PathLike[str], task: str, threads: int | None, streams: int
) -> tuple[PackedFile, PackedNetwork]:
    """A pretrained model or a .pdn file for this task; so many streams share the cores unless `threads` are given."""
    if (threads is not None and threads < 1) or streams < 1:
        raise UserError(f"threads and streams are at least 1, got {threads} and {streams}")
    path, _ = weights.runnable(model, task)
    file = read_packed(path)
    return file, PackedNetwork(file, threads or max(1, cores() // streams))


def _add_layer(network: _native.PackedNetwork, layer: Layer, tensors: dict[str, Any]) -> None:
    if isinstance(layer, Conv):
        network.add_float(_native.FloatConv(tensors["weight"], layer.stride, tensors["norm"], tensors.get("rprelu")))
    elif isinstance(layer, MaxPool):
        network.add_max_pool()
    elif isinstance(layer, Linear):
        network.add_mean(_linear(tensors["weight"], tensors["bias"]))
    elif isinstance(layer, FlattenLinear):
        by_pixel = np.ascontiguousarray(tensors["weight"].transpose(0, 2, 3, 1))  # maps are channels last
        network.add_flatten(_linear(by_pixel.reshape(layer.outputs, -1), tensors["bias"]))
    else:
        _add_binary(network, layer, tensors)


def _linear(weight: Floats, bias: Floats) -> _native.FloatConv:
    return _native.FloatConv(weight[:, :, None, None], 1, np.stack([np.ones(len(bias), np.float32), bias]))


def _add_binary(network: _native.PackedNetwork, layer: Binary, tensors: dict[str, Any]) -> None:
    plain = layer.outputs * (layer.inputs - layer.differing) * layer.kernel_size**2
    difference = layer.outputs * layer.differing * len(layer.pairs)
    conv = _native.BinaryConv(
        layer.inputs,
        layer.outputs,
        layer.kernel_size,
        layer.stride,
        layer.differing,
        list(layer.pairs),
        unpack_bits(tensors.get("plain"), plain),
        unpack_bits(tensors.get("difference"), difference),
        tensors.get("plain_norm"),
        tensors.get("difference_norm"),
        tensors["activations"],
    )
    shortcut = layer.shortcut
    if isinstance(shortcut, Replica):
        network.add_binary(conv, copies=shortcut.copies, parts=shortcut.parts, pool=shortcut.pool)
    elif shortcut == "projection":
        projection = _native.FloatConv(tensors["shortcut_weight"], 1, tensors["shortcut_norm"])
        network.add_binary(conv, projection)
    else:
        network.add_binary(conv)


def unpack_bits(packed: NDArray[np.uint8] | None, count: int) -> NDArray[np.uint8]:
    """`count` signs (1 for +1, 0 for -1) from bytes, lowest bit first."""
    if packed is None:
        return np.zeros(0, np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little")
