"""The layers of a network as records for metrics/complexity.py, from shapes on the meta device."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.metrics.complexity import LayerRecord
from pixeldiff.nn.binary import BinaryPDCBlock, RPReLU
from pixeldiff.nn.layers import PDConv2d
from pixeldiff.nn.ops import kind_name

BATCH_NORM_FLOPS = 1
SHORTCUT_NORM_FLOPS = 2
RPRELU_FLOPS = 2
PRELU_FLOPS = 1


def count_layers(model: nn.Module, height: int, width: int | None = None) -> list[LayerRecord]:
    """Return one record per layer with weights, in the order in which they run, for one RGB image."""
    width = height if width is None else width
    if min(height, width) < 1:
        raise UserError(f"the input size is at least 1, got {height}x{width}")
    records: list[LayerRecord] = []
    shapes = copy.deepcopy(model).to("meta").eval()
    for name, module in shapes.named_modules():
        count = next((count for kind, count in _COUNTERS.items() if isinstance(module, kind)), None)
        if count is None and next(module.parameters(recurse=False), None) is not None:
            count = _unknown
        if count and not _inside_binary(shapes, name):
            module.register_forward_hook(_hook(name, count, records))
    try:
        with torch.no_grad():
            shapes(torch.empty(1, 3, height, width, device="meta"))
    except RuntimeError as error:  # a pooling to size 0
        raise UserError(f"an image of {height}x{width} is too small for this network ({error})") from error
    return records


def _hook(name: str, count: Callable[..., LayerRecord], records: list[LayerRecord]) -> Callable[..., None]:
    def record(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        records.append(count(name, module, tuple(output.shape[1:]), output.numel()))

    return record


def _inside_binary(model: nn.Module, name: str) -> bool:
    """Return whether the module is a part of a binary block, which counts its norms and activations itself."""
    parents = [name.rsplit(".", n)[0] for n in range(1, name.count(".") + 1)]
    return any(isinstance(model.get_submodule(parent), BinaryPDCBlock) for parent in parents)


def _params(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def _conv(name: str, conv: nn.Conv2d, shape: tuple[int, ...], elements: int) -> LayerRecord:
    size = conv.pairs.support**2 if isinstance(conv, PDConv2d) else conv.kernel_size[0] * conv.kernel_size[1]
    kind = kind_name(conv.kind) if isinstance(conv, PDConv2d) else "conv"
    operation = f"{kind} {conv.kernel_size[0]}x{conv.kernel_size[1]}"
    macs = elements * size * (conv.in_channels // conv.groups)
    return LayerRecord(name, operation, shape, flops=macs, fp_params=_params(conv))


def _binary(name: str, layer: BinaryPDCBlock, shape: tuple[int, ...], elements: int) -> LayerRecord:
    weights = sum(w.numel() for w in (layer.weight, layer.difference_weight) if w is not None)
    products = elements * (weights // layer.out_channels)
    norms = sum(norm is not None for norm in (layer.norm, layer.difference_norm))
    elementwise = elements * (BATCH_NORM_FLOPS * norms + RPRELU_FLOPS * len(layer.activations))
    kind = kind_name(layer.kind) if layer.difference_channels else "vanilla"
    others = _params(layer) - weights
    if not layer.binary_weights:
        return LayerRecord(
            name, f"binary activations {kind}", shape, products + elementwise, fp_params=weights + others
        )
    return LayerRecord(name, f"binary {kind}", shape, elementwise, products, others, weights)


def _norm(name: str, norm: nn.BatchNorm2d, shape: tuple[int, ...], elements: int) -> LayerRecord:
    flops = SHORTCUT_NORM_FLOPS if "shortcut" in name.split(".") else BATCH_NORM_FLOPS
    return LayerRecord(name, "batch norm", shape, flops * elements, fp_params=_params(norm))


def _rprelu(name: str, layer: RPReLU, shape: tuple[int, ...], elements: int) -> LayerRecord:
    return LayerRecord(name, "RPReLU", shape, RPRELU_FLOPS * elements, fp_params=_params(layer))


def _prelu(name: str, layer: nn.PReLU, shape: tuple[int, ...], elements: int) -> LayerRecord:
    return LayerRecord(name, "PReLU", shape, PRELU_FLOPS * elements, fp_params=_params(layer))


def _norm_1d(name: str, norm: nn.BatchNorm1d, shape: tuple[int, ...], elements: int) -> LayerRecord:
    """Count the norm after the last linear layer; both are in no total."""
    return LayerRecord(name, "batch norm", shape, BATCH_NORM_FLOPS * elements, fp_params=_params(norm), counted=False)


def _unknown(name: str, layer: nn.Module, shape: tuple[int, ...], elements: int) -> LayerRecord:
    known = ", ".join(kind.__name__ for kind in _COUNTERS)
    raise UserError(f"no rule counts {name}, a {type(layer).__name__} with weights; layers that count are {known}")


def _linear(name: str, layer: nn.Linear, shape: tuple[int, ...], elements: int) -> LayerRecord:
    return LayerRecord(name, "linear", shape, elements * layer.in_features, fp_params=_params(layer), counted=False)


_COUNTERS: dict[type[nn.Module], Callable[..., LayerRecord]] = {
    nn.Conv2d: _conv,
    BinaryPDCBlock: _binary,
    nn.BatchNorm2d: _norm,
    nn.BatchNorm1d: _norm_1d,
    RPReLU: _rprelu,
    nn.PReLU: _prelu,
    nn.Linear: _linear,
}
