"""Weights files for torch: safetensors with the network's description inside.

save_model(model, "runs/tiny/best.safetensors", {"license": ...})
model = load_model("runs/tiny/best.safetensors")            # network and weights from one file
model = load_model("table5_pidinet.pth")                    # the authors' file, variant inferred
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.files import atomic_path
from pixeldiff.inference.edge_file import ENGINE_KEY
from pixeldiff.models import FAMILIES, build_from_config, family_of
from pixeldiff.models.authors import read_authors
from pixeldiff.models.pidinet import PiDiNet
from pixeldiff.nn.ops import kind_name, resolve_pairs
from pixeldiff.weights import training_file
from pixeldiff.weights.description import AUTHORS, METADATA_KEY, read_json
from pixeldiff.weights.metadata import migrate

DTYPES = ("F16", "BF16", "F32", "F64", "I64")  # of tensors in weights files; the last counts batches


def save_model(model: nn.Module, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
    """Write weights and their description as one safetensors file, whole or not at all."""
    described = {**describe_model(model, metadata), **layout_for_engine(model)}
    state = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    with atomic_path(Path(path), durable=True) as unfinished:
        save_file(state, unfinished, {METADATA_KEY: json.dumps(described)})
        make_readable(unfinished)


def describe_model(model: nn.Module, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """Describe a network for a file: task, preprocessing, `metadata`, and the family and config that build it.

    Raise an error if family and config would build another one.
    """
    family = family_of(model)
    config = dataclasses.asdict(model.config)  # type: ignore[call-overload]
    with torch.device("meta"):
        again = build_from_config(family, config)
    if str(model) != str(again):
        raise UserError(
            "layers of this network were replaced, which its configuration does not tell, so the file would load as "
            "another network; keep model.state_dict() with torch.save, and replace the same layers before loading it"
        )
    described = {**_of_family(family, model.config), **(metadata or {}), "family": family, "config": config}
    described.pop(ENGINE_KEY, None)  # of the file that the metadata comes from
    return described


def layout_for_engine(model: nn.Module) -> dict[str, Any]:
    """Return what the C++ engine needs to read the file (see inference/edge_file.py); nothing if it cannot run it."""
    layout_of = getattr(FAMILIES[family_of(model)], "engine_layout", None)
    layout = layout_of(model) if layout_of else None
    if layout is None:
        return {}
    pairs = {kind_name(kind): resolve_pairs(kind, 3) for _, kind in layout if kind}
    folding = {kind: pair.matrix().astype(int).tolist() for kind, pair in pairs.items()}
    return {ENGINE_KEY: {"tensors": layout, "folding": folding}}


def _of_family(family: str, config: Any) -> dict[str, Any]:
    module = FAMILIES[family]
    return {"task": module.TASK, "preprocessing": module.preprocessing(config)}


def make_readable(path: str | Path) -> None:
    """Give a file the mode of any new file; safetensors writes for its owner only."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """Read what `save_model` wrote beside the weights."""
    with _open(Path(path)) as file:
        text = (file.metadata() or {}).get(METADATA_KEY)
    if text is None:
        raise UserError(f"{path} is a safetensors file, but not one of pixeldiff's (no {METADATA_KEY!r} metadata)")
    described = migrate(read_json(text, path))
    if not {"family", "config"} <= described.keys():
        raise UserError(f"{path} is a packed network, which only runs; give its .safetensors file")
    return described


def load_model(source: str | Path, pattern: str | None = None) -> nn.Module:
    """Load a network with its weights, a file or a pretrained model by name, in eval mode.

    `pattern` names the layer kinds of an authors' .pth file; by default `infer_config` infers them.
    """
    return load_with_description(source, pattern)[0]


def load_with_description(source: str | Path, pattern: str | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """Load as `load_model`, with the file's description; what an older file lacks comes from its family."""
    path = training_file(source)
    if path.suffix in AUTHORS:
        model = _load_authors(path, pattern)
        return model, {"name": path.stem, **describe_model(model)}
    if pattern is not None:
        raise UserError(f"a pattern is for the authors' .pth files; {path} has one in its config")
    described = read_metadata(path)
    model = load_described(described["family"], described["config"], path)
    return model, {**_of_family(described["family"], model.config), **described, "name": path.stem}


def _load_authors(path: Path, pattern: str | None) -> nn.Module:
    config, state = read_authors(path, pattern)
    with torch.device("meta"):
        layout = PiDiNet(config)
    _compare({key: tuple(tensor.shape) for key, tensor in state.items()}, layout, path)
    model = PiDiNet(config)
    model.load_state_dict(state)
    return model.eval()


def load_described(family: Any, config: Any, path: Path) -> nn.Module:
    """Build the network of a family and config with the weights of a safetensors file, in eval mode.

    The network is laid out without memory and compared with the file first.
    """
    try:
        with torch.device("meta"):
            layout = build_from_config(family, config)
    except Exception as error:  # a wrong value breaks whichever constructor it reaches
        reason = str(error).split("\n")[0]
        raise UserError(f"{path} describes a network that cannot be built ({reason}); export it again") from error
    with _open(path) as file:
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        _compare({key: tuple(part.get_shape()) for key, part in slices.items()}, layout, path)
        if odd := next((key for key, part in slices.items() if part.get_dtype() not in DTYPES), None):
            raise UserError(f"{path} holds {odd} as {slices[odd].get_dtype()}, not one of {', '.join(DTYPES)}")
        state = {key: file.get_tensor(key) for key in slices}
    model = build_from_config(family, config)
    model.load_state_dict(state)
    return model.eval()


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable safetensors file ({error}); export or download it again") from error


def _compare(shapes: dict[str, tuple[int, ...]], layout: nn.Module, path: Path) -> None:
    """Raise an error unless a file's tensors have the names and shapes of the network's."""
    wanted = {key: tuple(tensor.shape) for key, tensor in layout.state_dict().items()}
    for key in (*wanted, *shapes):
        actual, expected = shapes.get(key), wanted.get(key)
        if actual != expected:
            fault = (
                "missing tensor" if actual is None else "unknown tensor" if expected is None else "size mismatch for"
            )
            sizes = (
                f", {list(actual)} instead of {list(expected)}" if actual is not None and expected is not None else ""
            )
            raise UserError(f"{path} holds weights of another network: {fault} {key}{sizes}")
