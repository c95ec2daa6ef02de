"""The .pth files of the paper's authors (research-only license): read when a user has them, never shipped.

Their names become ours, their variant is inferred from shapes and its pattern from the weights that have died.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import torch
from torch import Tensor

from pixeldiff.errors import UserError
from pixeldiff.models.pidinet import PATTERNS, VARIANTS, PiDiNetConfig

_RENAMES = (
    (r"^module\.", ""),
    (r"^init_block\.", "stem."),
    (r"^classifier\.", "fusion."),
    (r"^conv_reduces\.(\d)\.conv\.", r"sides.\1.reduce."),
    (r"^attentions\.(\d)\.conv1\.", r"sides.\1.attend.squeeze."),
    (r"^attentions\.(\d)\.conv2\.", r"sides.\1.attend.attend."),
    (r"^dilations\.(\d)\.conv1\.", r"sides.\1.dilate.squeeze."),
)


def read_authors(path: Path, pattern: str | None = None) -> tuple[PiDiNetConfig, dict[str, Tensor]]:
    """The network in a file and its tensors under our names and in our layout; `pattern` as in `infer_config`."""
    state = _read(path)
    config = infer_config(state, pattern)
    # The authors keep the 8 live radial weights at indices 1..8; ours sit at their pixel, with the center resting.
    for key, letter in zip(_pattern_keys(), config.pattern, strict=True):
        if letter == "r":
            flat = state[key].flatten(2)
            state[key] = flat[:, :, [1, 2, 3, 4, 0, 5, 6, 7, 8]].unflatten(2, (3, 3))
    return config, state


def _read(path: Path) -> dict[str, Tensor]:
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

    Adam with weight decay drives a weight without gradient to zero: the center for central and angular differences,
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
    # Exactly zero in depthwise layers; in the stem rounding noise keeps the center at 0.15 of the largest.
    dead = [i for i in range(9) if size[i] < 0.25 * size.max()]
    return dead == {"c": [4], "a": [4], "r": [0], "v": []}[letter]
