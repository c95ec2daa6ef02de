"""Binary networks as .pdn files: one bit per binary weight, batch norms folded to scale and shift.

A file runs on the packed kernels and is compared with the network before it gets its name (docs/guide/format.md).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.files import atomic_path
from pixeldiff.inference.packed import PackedNetwork
from pixeldiff.inference.packed_file import FORMAT, FlattenLinear, read_packed
from pixeldiff.machine import cores
from pixeldiff.models.bipidinet import BiPiDiNet
from pixeldiff.models.blocks import BinaryUnit
from pixeldiff.models.saving import describe_model, load_with_description, make_readable
from pixeldiff.models.sphereface import SphereFace
from pixeldiff.nn.binary import BinaryPDCBlock, ReplicaPool, RPReLU
from pixeldiff.training.tasks.images import normalize
from pixeldiff.weights.description import METADATA_KEY

PARITY = 1e-3  # largest difference of logits, or of unit vectors, between the network and its packed file

Table = dict[str, Any]
Arrays = dict[str, NDArray[Any]]
Packed = list[tuple[Table, Arrays]]  # layer by layer


def export_packed(source: str | Path, destination: str | Path, pattern: str | None = None) -> float:
    """Export a weights file or a pretrained model as a .pdn file; return its largest deviation."""
    model, described = load_with_description(source, pattern)
    return pack_model(model, destination, described)


def pack_model(model: nn.Module, destination: str | Path, metadata: Table | None = None) -> float:
    """Write `model` as a .pdn file and return its largest deviation; an error if that exceeds PARITY."""
    layers, arrays = pack_layers(model)
    described = _describe(describe_model(model, metadata), layers)
    with atomic_path(Path(destination), ".pdn", durable=True) as unfinished:
        save_file(arrays, unfinished, {METADATA_KEY: json.dumps(described)})
        deviation = _deviation(model, unfinished)
        if not deviation <= PARITY:
            raise UserError(f"the packed network deviates by {deviation:.1e} (at most {PARITY:.0e}); nothing written")
        make_readable(unfinished)
    return deviation


def pack_layers(model: nn.Module) -> tuple[list[Table], Arrays]:
    """Return the layer list of the format and the tensors, named "<layer>.<tensor>"."""
    if not isinstance(model, BiPiDiNet | SphereFace):
        raise UserError("a .pdn file holds a binary network, this one is for edges; export it to .onnx")
    if model.config.architecture in ("plain", "float"):
        raise UserError(
            "a .pdn file holds a binary network, this is a float one: it runs in torch (pixeldiff.load_model), "
            "and training has scored it (metrics.jsonl)"
        )
    packed = _classifier(model) if isinstance(model, BiPiDiNet) else _embedder(model)
    arrays = {f"{i}.{name}": array for i, (_, tensors) in enumerate(packed) for name, array in tensors.items()}
    return [table for table, _ in packed], arrays


def _classifier(model: BiPiDiNet) -> Packed:
    if not model.config.binary_weights:
        raise UserError("this network has real weights (the first stage of training); export that of the second stage")
    packed = [_stem(model.stem)]
    if isinstance(model.stem[-1], nn.MaxPool2d):
        channels = model.config.channels[0]
        packed.append(({"op": "max_pool", "inputs": channels, "outputs": channels}, {}))
    packed += [_unit(unit) for stage in model.stages for unit in stage]  # type: ignore[attr-defined]
    head = model.head
    linear = {"op": "linear", "inputs": head.in_features, "outputs": head.out_features}
    return [*packed, (linear, {"weight": _array(head.weight), "bias": _array(head.bias)})]


def _embedder(model: SphereFace) -> Packed:
    stem, *units = [layer for stage in model.stages for layer in _parts(stage)]
    channels, (height, width) = model.config.channels[-1], model.last_map
    linear = {
        "op": "flatten_linear",
        "inputs": channels,
        "outputs": model.config.embedding,
        "height": height,
        "width": width,
    }
    weight, bias = _array(model.embed.weight), _array(model.embed.bias)
    if isinstance(model.norm, nn.BatchNorm1d):
        scale, shift = _norm(model.norm)
        weight, bias = weight * scale[:, None], bias * scale + shift
    embed = (linear, {"weight": weight.reshape(-1, channels, height, width), "bias": bias})
    return [_stem(stem), *(_unit(unit) for unit in units), embed]


def _parts(stage: nn.Module) -> list[Any]:
    """Return the units of a stage; the float layers that open the first stage are one part."""
    assert isinstance(stage, nn.Sequential)
    units = [layer for layer in stage if isinstance(layer, BinaryUnit)]
    floats = [layer for layer in stage if not isinstance(layer, BinaryUnit)]
    return [nn.Sequential(*floats), *units] if floats else list(units)


def _describe(metadata: Table, layers: list[Table]) -> Table:
    """Return the metadata of the file, from that of the weights."""
    labels = list(metadata.get("labels", ()))
    if labels and len(labels) != layers[-1]["outputs"]:
        raise UserError(f"the weights name {len(labels)} classes, the network has {layers[-1]['outputs']}")
    return {
        "format": FORMAT,
        "version": 2 if layers[-1]["op"] == "flatten_linear" else 1,  # the first version with these layers
        "name": metadata.get("name", "network"),
        "task": metadata["task"],
        "license": metadata.get("license", "not stated"),
        "labels": labels,
        "preprocessing": metadata["preprocessing"],
        "layers": layers,
    }


def _array(tensor: Tensor | None) -> NDArray[np.float32]:
    assert tensor is not None
    return tensor.detach().float().cpu().contiguous().numpy()


def _norm(norm: nn.Module) -> NDArray[np.float32]:
    """Return scale and shift of a batch norm in eval mode, (2, channels), rounded as in torch."""
    assert isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d)
    mean, variance = _array(norm.running_mean), _array(norm.running_var)
    scale = _array(norm.weight) * (np.float32(1) / np.sqrt(variance + np.float32(norm.eps)))
    # Fused multiply-add: the product of two float32 is exact in float64.
    shift = (_array(norm.bias).astype(np.float64) - mean.astype(np.float64) * scale).astype(np.float32)
    return np.stack([scale, shift])


def _rprelu(act: nn.Module) -> NDArray[np.float32]:
    assert isinstance(act, RPReLU)
    return np.stack([_array(act.before), _array(act.slope), _array(act.after)])


def _stem(stem: nn.Sequential) -> tuple[Table, Arrays]:
    conv = stem[0]
    assert isinstance(conv, nn.Conv2d)
    table = {
        "op": "conv",
        "inputs": conv.in_channels,
        "outputs": conv.out_channels,
        "kernel_size": conv.kernel_size[0],
        "stride": conv.stride[0],
        "rprelu": True,
    }
    return table, {"weight": _array(conv.weight), "norm": _norm(stem[1]), "rprelu": _rprelu(stem[2])}


def _unit(unit: BinaryUnit) -> tuple[Table, Arrays]:
    conv = unit.conv
    pairs = [[*plus, *minus] for plus, minus in conv.pairs.differences] if conv.difference_channels else []
    table: Table = {
        "op": "binary",
        "inputs": conv.in_channels,
        "outputs": conv.out_channels,
        "kernel_size": conv.kernel_size,
        "stride": conv.stride,
        "differing": conv.difference_channels,
        "pairs": pairs,
        "activations": len(conv.activations),
    }
    arrays = _branches(conv) | {"activations": np.stack([_rprelu(act) for act in conv.activations])}
    shortcut = unit.shortcut
    if isinstance(shortcut, nn.Identity):
        table["shortcut"] = "identity"
    elif isinstance(shortcut, ReplicaPool):
        table["shortcut"] = {"copies": shortcut.copies, "parts": shortcut.parts, "pool": shortcut.pool}
    else:
        table["shortcut"] = "projection"
        assert isinstance(shortcut, nn.Sequential)
        arrays |= {"shortcut_weight": _array(shortcut[1].weight), "shortcut_norm": _norm(shortcut[2])}  # type: ignore[arg-type]
    return table, arrays


def _branches(conv: BinaryPDCBlock) -> Arrays:
    arrays: Arrays = {}
    branches = (
        ("plain", conv.weight, conv.norm),
        ("difference", conv.difference_weight, conv.difference_norm),
    )
    for name, weight, norm in branches:
        if weight is not None and norm is not None:
            arrays[name] = np.packbits(_array(weight).ravel() >= 0, bitorder="little")
            arrays[f"{name}_norm"] = _norm(norm)
    return arrays


def _deviation(model: nn.Module, path: Path) -> float:
    """Return the largest difference on seeded noise, smoothed so that differences of neighbors vary.

    Of eight images the worst two do not count: rounding in torch, which depends on its threads, flips a sign now and
    then, and that image deviates by 1e-2. A wrongly packed file deviates in all images.
    """
    file = read_packed(path)
    prepare = file.preprocessing
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand((8, 3, prepare.size[0] // 4, prepare.size[1] // 4), generator=generator)
    pixels = (nn.functional.interpolate(noise, size=prepare.size, mode="bilinear") * 255).byte()
    batch = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
    training = model.training
    model.eval()
    with torch.no_grad():
        expected = model(normalize(pixels, prepare.mean, prepare.std)).numpy()
    model.train(training)
    length = np.linalg.norm(expected, axis=1, keepdims=True) if isinstance(file.layers[-1], FlattenLinear) else 1.0
    difference = np.abs((PackedNetwork(file, cores())(prepare.normalize(batch)) - expected) / length).max(1)
    return float(np.sort(difference)[-3])
