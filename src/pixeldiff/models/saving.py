"""Weight files of the torch world: our safetensors (config inside) and the authors' .pth files.

save_model(model, "runs/tiny/best.safetensors", {"licence": ...})
model = load_model("runs/tiny/best.safetensors")            # network and weights from one file
model = load_model("table5_pidinet.pth")                    # the authors' file, variant inferred
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.files import whole
from pixeldiff.models import build_from_config
from pixeldiff.models.pidinet import PATTERNS, VARIANTS, PiDiNet, PiDiNetConfig
from pixeldiff.weights import METADATA_KEY, read_description, resolve

DTYPES = ("F16", "BF16", "F32", "F64", "I64")  # of tensors in our files; the last counts batches


def save_model(model: nn.Module, path: str | Path, metadata: dict[str, Any] | None = None) -> None:
    """Write weights, config and metadata as one safetensors file, whole or not at all."""
    path = Path(path)
    described = {**(metadata or {}), **configuration(model)}
    state = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    with whole(path, durable=True) as unfinished:
        save_file(state, unfinished, {METADATA_KEY: json.dumps(described)})
        make_readable(unfinished)


def configuration(model: nn.Module) -> dict[str, Any]:
    """What builds a network again: its family and config. An error if they would build another one."""
    family = type(model).__module__.rpartition(".")[2]
    config = dataclasses.asdict(model.config)  # type: ignore[call-overload]
    with torch.device("meta"):
        again = build_from_config(family, config)
    if str(model) != str(again):
        raise UserError(
            "layers of this network were replaced, which its configuration does not tell, so the file would load as "
            "another network; keep model.state_dict() with torch.save, and replace the same layers before loading it"
        )
    return {"family": family, "config": config}


def make_readable(path: str | Path) -> None:
    """The mode of any new file; safetensors writes for the owner alone."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `save_model` wrote beside the weights."""
    with _open(Path(path)) as file:
        text = (file.metadata() or {}).get(METADATA_KEY)
    if text is None:
        raise UserError(f"{path} is a safetensors file, but not one of pixeldiff's (no {METADATA_KEY!r} metadata)")
    described = read_description(text, path)
    if not {"family", "config"} <= described.keys():
        raise UserError(f"{path} is a packed network, which only runs; give its .safetensors file")
    return described


def describe(source: str | Path) -> dict[str, Any]:
    """What a file says about its network, its name at least."""
    path = resolve(source, ".safetensors")
    return {"model": path.stem, **(read_metadata(path) if path.suffix == ".safetensors" else {})}


def load_model(source: str | Path, pattern: str | None = None) -> nn.Module:
    """A network with its weights from a file, or the shipped one of that name; in eval mode.

    `pattern` names the layer kinds of an authors' .pth file; by default what `infer_config` finds.
    """
    path = resolve(source, ".safetensors")
    if path.suffix in (".pth", ".pt"):
        return load_authors(path, pattern)
    described = read_metadata(path)
    return load_described(described["family"], described["config"], path)


def load_described(family: Any, config: Any, path: Path) -> nn.Module:
    """The network of that family and config with the weights of a safetensors file; in eval mode.

    The description is not believed: the network is laid out without memory and compared with the file first.
    """
    try:
        with torch.device("meta"):
            layout = build_from_config(family, config)
    except Exception as error:  # a false value breaks whichever constructor it reaches
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
    """An error unless a file's tensors have the names and shapes of the network's."""
    wanted = {key: tuple(tensor.shape) for key, tensor in layout.state_dict().items()}
    for key in (*wanted, *shapes):
        have, want = shapes.get(key), wanted.get(key)
        if have != want:
            fault = "missing tensor" if have is None else "unknown tensor" if want is None else "size mismatch for"
            sizes = f", {list(have)} instead of {list(want)}" if have is not None and want is not None else ""
            raise UserError(f"{path} holds weights of another network: {fault} {key}{sizes}")


# --- the authors' .pth files -------------------------------------------------------------------------------------

_RENAMES = (
    (r"^module\.", ""),
    (r"^init_block\.", "stem."),
    (r"^classifier\.", "fusion."),
    (r"^conv_reduces\.(\d)\.conv\.", r"sides.\1.reduce."),
    (r"^attentions\.(\d)\.conv1\.", r"sides.\1.attend.squeeze."),
    (r"^attentions\.(\d)\.conv2\.", r"sides.\1.attend.attend."),
    (r"^dilations\.(\d)\.conv1\.", r"sides.\1.dilate.squeeze."),
)


def load_authors(path: str | Path, pattern: str | None = None) -> PiDiNet:
    """PiDiNet from a .pth file of the paper's authors (research-only licence; read, never shipped)."""
    path = Path(path)
    state = _read_authors(path)
    config = infer_config(state, pattern)
    with torch.device("meta"):
        layout = PiDiNet(config)
    _compare({key: tuple(tensor.shape) for key, tensor in state.items()}, layout, path)
    # The authors keep the 8 live radial weights at indices 1..8; ours sit at their pixel, with the centre resting.
    for key, letter in zip(_pattern_keys(), config.pattern, strict=True):
        if letter == "r":
            flat = state[key].flatten(2)
            state[key] = flat[:, :, [1, 2, 3, 4, 0, 5, 6, 7, 8]].unflatten(2, (3, 3))
    model = PiDiNet(config)
    model.load_state_dict(state)
    return model.eval()


def _read_authors(path: Path) -> dict[str, Tensor]:
    """The file's tensors under our names."""
    try:
        if zipfile.is_zipfile(path) and any(part.compress_type for part in zipfile.ZipFile(path).infolist()):
            raise UserError(f"{path} is a compressed archive, which torch.save never writes; download it again")
        # From memory: a file on disk is asked for as many bytes as a damaged length says.
        content = torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True)
        if {"recipe", "average"} <= content.keys():
            raise UserError(f"{path} is what a run resumes from; its weights are in last.safetensors beside it")
        state = {_our_name(key): tensor for key, tensor in content["state_dict"].items()}
        # A tensor may repeat one number over any shape: no more than the file holds.
        if not all(
            t.dtype.is_floating_point and t.layout == torch.strided and t.device.type == "cpu" for t in state.values()
        ):
            raise UserError(f"{path} holds other things than plain float tensors; download it again")
        if sum(tensor.nbytes for tensor in state.values()) > path.stat().st_size:
            raise UserError(f"{path} describes larger tensors than it holds; download it again")
        return state
    except UserError:
        raise
    except Exception as error:  # torch.load raises whatever the damage happens to hit
        raise UserError(f"{path} is not a PiDiNet .pth file ({type(error).__name__}); download it again") from error


def _our_name(key: str) -> str:
    for old, new in _RENAMES:
        key = re.sub(old, new, key)
    if match := re.match(r"block(\d)_(\d)\.(conv1|conv2|shortcut)\.(\w+)", key):
        stage, block, part, leaf = match.groups()
        part = {"conv1": "depthwise", "conv2": "pointwise"}.get(part, part)
        return f"stages.{int(stage) - 1}.{int(block) - 1}.{part}.{leaf}"
    if match := re.match(r"dilations\.(\d)\.conv2_(\d)\.(\w+)", key):
        stage, view, leaf = match.groups()
        return f"sides.{stage}.dilate.views.{int(view) - 1}.{leaf}"
    return key


def _pattern_keys() -> list[str]:
    """The names of the 16 pattern layers' weights, in order."""
    blocks = [(stage, block) for stage in range(4) for block in range(4 - (stage == 0))]
    return ["stem.weight", *(f"stages.{s}.{b}.depthwise.weight" for s, b in blocks)]


def infer_config(state: dict[str, Tensor], pattern: str | None = None) -> PiDiNetConfig:
    """The variant of an authors' file from its shapes, and the pattern from its dead weights.

    Adam with weight decay drives a weight without gradient to zero: the centre for central and angular differences,
    index 0 for radial ones (authors' layout), none for vanilla. Central and angular look alike; if more than one
    published pattern fits, the caller has to name it.
    """
    try:
        stem, reduce, *kernels = (state[key] for key in ("stem.weight", "sides.0.reduce.weight", *_pattern_keys()))
    except KeyError as error:
        raise UserError(f"these are not PiDiNet weights: {error.args[0]} is missing") from error
    if reduce.dim() != 4 or any(kernel.shape[2:] != (3, 3) or not kernel.numel() for kernel in kernels):
        raise UserError("these are not PiDiNet weights: their layers are no 3x3 convolutions")
    width, side = stem.shape[0], reduce.shape[1]
    cdcm, csam = "sides.0.dilate.squeeze.weight" in state, "sides.0.attend.squeeze.weight" in state
    shortcuts = "stages.1.0.shortcut.weight" in state
    if pattern is None:
        pattern = _infer_pattern(kernels)
    published = next((c.side_channels for c in VARIANTS.values() if c.width == width), max(1, round(0.4 * width)))
    return PiDiNetConfig(width, side if cdcm else published, pattern, cdcm, csam, shortcuts)


def _infer_pattern(kernels: list[Tensor]) -> str:
    fits = [name for name, letters in PATTERNS.items() if all(map(_could_be, letters, kernels))]
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise UserError("the file's pattern is none of the published ones; name its 16 letters with pattern=")
    raise UserError(f"the file's pattern could be {' or '.join(fits)} (they look alike); name it with pattern=")


def _could_be(letter: str, kernel: Tensor) -> bool:
    size = kernel.flatten(2).abs().mean((0, 1))
    # Exactly zero in depthwise layers; in the stem rounding noise keeps the centre at 0.15 of the largest.
    dead = [i for i in range(9) if size[i] < 0.25 * size.max()]
    return dead == {"c": [4], "a": [4], "r": [0], "v": []}[letter]
