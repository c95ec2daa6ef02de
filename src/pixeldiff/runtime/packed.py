"""PackedClassifier: 1-bit networks on the packed kernels.

    PackedClassifier("model.pdn")(image)            # path, Pillow image or array in; the likeliest classes out

Maps between layers are channels last: floats for shortcuts and differences, and their packed signs. Environment:
PIXELDIFF_ISA forces an instruction set (portable, avx2, ...), see `pixeldiff._native.instruction_sets()`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pixeldiff import _native, weights
from pixeldiff import image as pictures
from pixeldiff.errors import UserError
from pixeldiff.machine import cores
from pixeldiff.runtime.packed_file import Binary, Conv, Layer, Linear, MaxPool, PackedFile, Replica, read_packed

Floats = NDArray[np.float32]
Bits = NDArray[np.uint64] | None  # packed signs, where the layer before has made them
Step = Callable[[Floats, Bits], tuple[Floats, Bits]]

_BATCH = 16  # pictures that go through together


@dataclass(frozen=True)
class Prediction:
    label: str
    index: int
    probability: float


class PackedClassifier:
    """A network ready to run. `model` is a shipped name or a .pdn file; `threads` defaults to all it may use."""

    def __init__(self, model: str | os.PathLike[str], threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise UserError(f"threads is at least 1, got {threads}")
        path = weights.runnable(model, ".pdn")
        self.file = read_packed(path)
        self.name = self.file.name
        self.labels = self.file.labels
        try:
            own = threads or cores()
            self._steps = [_step(self.file, index, layer, own) for index, layer in enumerate(self.file.layers)]
        except ValueError as error:  # an unknown PIXELDIFF_ISA
            raise UserError(str(error)) from error

    @overload
    def __call__(self, image: list[Any], top: int = ...) -> list[list[Prediction]]: ...

    @overload
    def __call__(self, image: Any, top: int = ...) -> list[Prediction]: ...

    def __call__(self, image: Any, top: int = 5) -> list[Prediction] | list[list[Prediction]]:
        """The `top` likeliest classes of a picture, likeliest first; for a list of pictures a list of such lists."""
        if top < 1:
            raise UserError(f"top is at least 1, got {top}")
        many = image if isinstance(image, list | tuple) else [image]
        results: list[list[Prediction]] = []
        for start in range(0, len(many), _BATCH):
            batch = np.stack([self.prepare(one) for one in many[start : start + _BATCH]])
            results += [self._best(row, top) for row in self.logits(batch)]
        return results if many is image else results[0]

    def prepare(self, image: Any) -> NDArray[np.uint8]:
        """A picture's centre square in the network's size."""
        loaded = pictures.as_8_bit(pictures.load(image))
        return pictures.centre_square(loaded, self.file.preprocessing.size, self.file.preprocessing.crop)

    def logits(self, batch: NDArray[np.uint8]) -> Floats:
        """Class logits of prepared pictures, uint8 (N, H, W, 3)."""
        if batch.ndim != 4 or batch.shape[-1] != 3 or batch.dtype != np.uint8 or 0 in batch.shape:
            raise UserError(f"a batch is uint8 (N, H, W, 3), got {batch.dtype} {batch.shape}")
        # The same arithmetic as in training, to the last bit: a sign can hang on it.
        mean, std = (np.array(v, np.float32) * 255 for v in (self.file.preprocessing.mean, self.file.preprocessing.std))
        return self.run((batch - mean) / std)

    def run(self, x: Floats) -> Floats:
        """Class logits of normalised pictures, float32 (N, H, W, 3)."""
        bits: Bits = None
        for step in self._steps:
            x, bits = step(x, bits)
        return x[:, 0, 0]

    def _best(self, logits: Floats, top: int) -> list[Prediction]:
        order = np.argsort(-logits, kind="stable")[:top]
        with np.errstate(invalid="ignore"):  # weights at the edge of float32 may overflow
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
        return [Prediction(self.labels[i] if self.labels else f"class {i}", int(i), float(shares[i])) for i in order]


def _step(file: PackedFile, index: int, layer: Layer, threads: int) -> Step:
    own = {name.split(".", 1)[1]: t for name, t in file.tensors.items() if name.startswith(f"{index}.")}
    if isinstance(layer, Conv):
        conv = _native.FloatConv(own["weight"], layer.stride, own["norm"], own.get("rprelu"))
        return lambda x, bits: (conv(x, threads), None)
    if isinstance(layer, MaxPool):
        return lambda x, bits: (_native.max_pool(x, threads), None)
    if isinstance(layer, Linear):
        return _linear(layer, own["weight"], own["bias"], threads)
    return _binary(layer, own, threads)


def _linear(layer: Linear, weight: Floats, bias: Floats, threads: int) -> Step:
    norm = np.stack([np.ones(layer.outputs, np.float32), bias])
    conv = _native.FloatConv(weight[:, :, None, None], 1, norm)
    return lambda x, bits: (conv(x.mean((1, 2), keepdims=True), threads), None)


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
