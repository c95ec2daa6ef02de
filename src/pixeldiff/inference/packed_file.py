"""Read .pdn files: a packed network as safetensors with one bit per binary weight. See docs/guide/format.md.

Sizes, shapes, names, types and the chain of layers are checked before an array is created. Every fault is one
InputError that names it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError, UserError
from pixeldiff.weights.description import JsonReader, check_integer, normalization
from pixeldiff.weights.tensor_file import Shapes, Tensors, read_tensors, split

FORMAT = "pixeldiff-packed"
VERSIONS = (1, 2)  # 2 has flatten_linear, and images that are not square

MAX_LAYERS = 1000
MAX_VALUES = 2**26  # of a map between layers: a quarter of a gigabyte
MAX_PRODUCTS = 32767  # per output and branch, what 16-bit sums hold

Pair = tuple[int, int, int, int]  # plus row, plus column, minus row, minus column


@dataclass(frozen=True)
class Preprocessing:
    """An image of height and width `size`; then (x - mean) / std of x in [0, 1].

    With a `crop` it is a square: the center, `crop` of the short side, resized. Without one it is an aligned face.
    """

    size: tuple[int, int]
    crop: float | None
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def normalize(self, batch: NDArray[np.uint8]) -> NDArray[np.float32]:
        """uint8 (N, H, W, 3) by the same arithmetic as in training, to the last bit: a sign can hang on it."""
        mean, std = (np.array(v, np.float32) * 255 for v in (self.mean, self.std))
        return (batch - mean) / std


@dataclass(frozen=True)
class Conv:
    """A float convolution with scale, shift and, if `rprelu`, the activation."""

    inputs: int
    outputs: int
    kernel_size: int
    stride: int
    rprelu: bool

    def tensors(self) -> Shapes:
        kernel = (self.outputs, self.inputs, self.kernel_size, self.kernel_size)
        activation: Shapes = {"rprelu": ("F32", (3, self.outputs))} if self.rprelu else {}
        return {"weight": ("F32", kernel), "norm": ("F32", (2, self.outputs)), **activation}


@dataclass(frozen=True)
class MaxPool:
    """3x3 / 2, padding 1."""

    inputs: int
    outputs: int

    def tensors(self) -> Shapes:
        return {}


@dataclass(frozen=True)
class Replica:
    """ReplicaPool: `copies` copies of the channels and the mean of their `parts` parts, after 2x2 pooling if `pool`."""

    copies: int
    parts: int
    pool: bool


@dataclass(frozen=True)
class Binary:
    """The mixed binary layer. `shortcut` is "identity", "projection" (2x2 average pooling, 1x1, norm) or a Replica."""

    inputs: int
    outputs: int
    kernel_size: int
    stride: int
    differing: int
    pairs: tuple[Pair, ...]
    activations: int
    shortcut: str | Replica

    def tensors(self) -> Shapes:
        plain = self.outputs * (self.inputs - self.differing) * self.kernel_size**2
        difference = self.outputs * self.differing * len(self.pairs)
        shapes: Shapes = {"activations": ("F32", (self.activations, 3, self.outputs))}
        for name, bits in (("plain", plain), ("difference", difference)):
            if bits:
                shapes[name] = ("U8", (-(-bits // 8),))
                shapes[f"{name}_norm"] = ("F32", (2, self.outputs))
        if self.shortcut == "projection":
            shapes["shortcut_weight"] = ("F32", (self.outputs, self.inputs, 1, 1))
            shapes["shortcut_norm"] = ("F32", (2, self.outputs))
        return shapes


@dataclass(frozen=True)
class Linear:
    """The mean over all pixels, then a linear layer: the class logits."""

    inputs: int
    outputs: int

    def tensors(self) -> Shapes:
        return {"weight": ("F32", (self.outputs, self.inputs)), "bias": ("F32", (self.outputs,))}


@dataclass(frozen=True)
class FlattenLinear:
    """A linear layer over all pixels of a map of `height` x `width`: an embedding."""

    inputs: int
    outputs: int
    height: int
    width: int

    def tensors(self) -> Shapes:
        return {
            "weight": ("F32", (self.outputs, self.inputs, self.height, self.width)),
            "bias": ("F32", (self.outputs,)),
        }


Layer = Conv | MaxPool | Binary | Linear | FlattenLinear


@dataclass(frozen=True)
class PackedFile:
    """A checked file: what the network is, and its tensors by name ("3.plain" belongs to layer 3)."""

    name: str
    task: str
    license: str
    labels: tuple[str, ...]
    preprocessing: Preprocessing
    layers: tuple[Layer, ...]
    tensors: Tensors


def read_packed(path: str | Path) -> PackedFile:
    """Read the network in a .pdn file."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path} ({error.strerror}); check the name") from error
    try:
        return parse_packed(content)
    except UserError as error:
        raise InputError(f"{path} is not a usable .pdn file: {error}") from error


def parse_packed(content: bytes) -> PackedFile:
    table, described, data = split(content, "packed network")
    if described.get("format") != FORMAT:
        raise InputError(f"it is not a packed network of pixeldiff (format {described.get('format')!r})")
    version = described.get("version")
    if isinstance(version, bool) or version not in VERSIONS:
        raise InputError(
            f"its format version is {version!r}, this pixeldiff reads {' and '.join(map(str, VERSIONS))}; update it"
        )
    layers = _parse_layers(described)
    if version == 1 and isinstance(layers[-1], FlattenLinear):
        raise InputError("its format version is 1, which has no flatten_linear; export it again")
    labels = _parse_labels(described, layers[-1].outputs)
    wanted: Shapes = {f"{i}.{name}": kind for i, layer in enumerate(layers) for name, kind in layer.tensors().items()}
    tensors = read_tensors(table, data, wanted)
    fields = JsonReader(described, "the description")
    preprocessing = _parse_preprocessing(fields)
    _check_maps(preprocessing.size, layers)
    return PackedFile(
        fields.text("name"), fields.text("task"), fields.text("license"), labels, preprocessing, layers, tensors
    )


def _parse_preprocessing(described: JsonReader) -> Preprocessing:
    fields = JsonReader(described.value("preprocessing"), "the preprocessing")
    mean, std = normalization(described.table)
    size = fields.value("size")
    if described.table["version"] > 1 and isinstance(size, list):
        height, width = (
            check_integer(side, 1, 4096, "'size' of the preprocessing") for side in (size + [None] * 2)[:2]
        )
        return Preprocessing((height, width), None, mean, std)
    side, crop = fields.integer("size", 1, 4096), fields.number("crop")
    if not 0 < crop <= 1:
        raise InputError("the preprocessing needs a crop above 0 and up to 1")
    return Preprocessing((side, side), crop, mean, std)


def _check_maps(size: tuple[int, int], layers: tuple[Layer, ...]) -> None:
    """Raise an error for a map beyond the memory of a small machine, or a flattened map of another size."""
    height, width = size
    for index, layer in enumerate(layers):
        stride = 2 if isinstance(layer, MaxPool) else getattr(layer, "stride", 1)
        height, width = -(-height // stride), -(-width // stride)
        if isinstance(layer, FlattenLinear) and (layer.height, layer.width) != (height, width):
            raise InputError(
                f"layer {index} takes a map of {layer.height}x{layer.width}, the one before gives {height}x{width}"
            )
        if height * width * layer.outputs > MAX_VALUES and not isinstance(layer, Linear | FlattenLinear):
            raise InputError(
                f"layer {index} makes a map of {height}x{width}x{layer.outputs}, more than {MAX_VALUES} values"
            )


def _parse_labels(described: dict[str, Any], classes: int) -> tuple[str, ...]:
    labels = described.get("labels")
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InputError("its labels are not a list of strings")
    if labels and len(labels) != classes:
        raise InputError(f"it has {len(labels)} labels for {classes} classes")
    return tuple(labels)


def _parse_layers(described: dict[str, Any]) -> tuple[Layer, ...]:
    listed = described.get("layers")
    if not isinstance(listed, list) or not 1 <= len(listed) <= MAX_LAYERS:
        raise InputError(f"its layers are not a list of 1 to {MAX_LAYERS}")
    layers: list[Layer] = []
    for index, table in enumerate(listed):
        layer = _parse_layer(JsonReader(table, f"layer {index}"))
        before = layers[-1].outputs if layers else 3
        if layer.inputs != before:
            raise InputError(f"layer {index} takes {layer.inputs} channels, the one before gives {before}")
        if isinstance(layer, Linear | FlattenLinear) != (index == len(listed) - 1):
            raise InputError("a network ends in its only linear layer")
        layers.append(layer)
    return tuple(layers)


def _parse_layer(fields: JsonReader) -> Layer:
    kind = fields.text("op")
    inputs, outputs = (fields.integer(key, 1, 65535) for key in ("inputs", "outputs"))
    if kind == "linear":
        return Linear(inputs, outputs)
    if kind == "flatten_linear":
        return FlattenLinear(inputs, outputs, fields.integer("height", 1, 4096), fields.integer("width", 1, 4096))
    if kind == "max_pool":
        if inputs != outputs:
            raise InputError(f"{fields.what} pools {inputs} channels into {outputs}")
        return MaxPool(inputs, outputs)
    if kind not in ("conv", "binary"):
        raise InputError(f"{fields.what} has the unknown op {kind!r}")
    size, stride = fields.integer("kernel_size", 1, 31), fields.integer("stride", 1, 16)
    if size % 2 == 0:
        raise InputError(f"{fields.what} has the even kernel size {size}")
    if kind == "conv":
        return Conv(inputs, outputs, size, stride, fields.boolean("rprelu"))
    differing = fields.integer("differing", 0, inputs)
    pairs = _parse_pairs(fields, differing)
    if inputs * max(size**2, len(pairs)) > MAX_PRODUCTS:
        raise InputError(f"{fields.what} sums more than {MAX_PRODUCTS} products")
    activations = fields.integer("activations", 1, 2)
    if activations == 2 and not 0 < differing < inputs:
        raise InputError(f"{fields.what} has two activations but one branch")
    return Binary(inputs, outputs, size, stride, differing, pairs, activations, _parse_shortcut(fields, stride))


def _parse_pairs(fields: JsonReader, differing: int) -> tuple[Pair, ...]:
    listed = fields.value("pairs")
    if not isinstance(listed, list) or len(listed) > 255 or bool(listed) != bool(differing):
        raise InputError(f"{fields.what} needs 1 to 255 pixel pairs where channels differ, and none elsewhere")
    pairs = []
    for pair in listed:
        if not isinstance(pair, list) or len(pair) != 4:
            raise InputError(f"{fields.what} has a pixel pair that is not four offsets")
        a, b, c, d = (check_integer(v, -31, 31, f"an offset of {fields.what}") for v in pair)
        pairs.append((a, b, c, d))
    return tuple(pairs)


def _parse_shortcut(fields: JsonReader, stride: int) -> str | Replica:
    inputs, outputs = fields.table["inputs"], fields.table["outputs"]
    shortcut = fields.value("shortcut")
    if isinstance(shortcut, dict):
        table = JsonReader(shortcut, f"the shortcut of {fields.what}")
        replica = Replica(table.integer("copies", 1, 64), table.integer("parts", 1, inputs), table.boolean("pool"))
        if inputs % replica.parts or replica.copies * inputs + inputs // replica.parts != outputs:
            raise InputError(f"the shortcut of {fields.what} does not lead from {inputs} to {outputs} channels")
        fits = stride == (2 if replica.pool else 1)
    elif shortcut == "projection":
        replica, fits = shortcut, stride == 2
    elif shortcut == "identity":
        replica, fits = shortcut, stride == 1 and inputs == outputs
    else:
        raise InputError(f"{fields.what} has an unknown shortcut")
    if not fits:
        raise InputError(f"the shortcut of {fields.what} does not give the layer's shape")
    return replica
