"""The .pth files of the paper's authors (research-only license): read if a user has them, never shipped.

Keys are renamed. The variant is inferred from shapes, its pattern from the weights that are zero.
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
    """Return the config of a file and its tensors, renamed and in our layout; `pattern` as in `infer_config`."""
    state = _read(path)
    config = infer_config(state, pattern)
    # The authors keep the 8 radial weights in use at indices 1..8; here they are at their pixels, around the center.
    for key, letter in zip(_pattern_keys(), config.pattern, strict=True):
        if letter == "r":
            flat = state[key].flatten(2)
            state[key] = flat[:, :, [1, 2, 3, 4, 0, 5, 6, 7, 8]].unflatten(2, (3, 3))
    return config, state


def _read(path: Path) -> dict[str, Tensor]:
    """Return the file's tensors, renamed."""
    try:
        if zipfile.is_zipfile(path) and any(part.compress_type for part in zipfile.ZipFile(path).infolist()):
            raise UserError(f"{path} is a compressed archive, not a file of torch.save; download it again")
        # From memory: for a file on disk, torch believes a damaged length and reads as many bytes.
        content = torch.load(io.BytesIO(path.read_bytes()), map_location="cpu", weights_only=True)
        if {"recipe", "average"} <= content.keys():
            raise UserError(
                f"{path} is the checkpoint of a run; its weights are in last.safetensors in the same folder"
            )
        state = {_rename(key): tensor for key, tensor in content["state_dict"].items()}
        # A tensor may repeat one number over any shape; it must not be larger than the file.
        if not all(
            t.dtype.is_floating_point and t.layout == torch.strided and t.device.type == "cpu" for t in state.values()
        ):
            raise UserError(f"{path} holds more than plain float tensors; download it again")
        if sum(tensor.nbytes for tensor in state.values()) > path.stat().st_size:
            raise UserError(f"{path} describes larger tensors than it holds; download it again")
        return state
    except UserError:
        raise
    except Exception as error:  # torch.load raises any exception for damaged files
        raise UserError(f"{path} is not a PiDiNet .pth file ({type(error).__name__}); download it again") from error


def _rename(key: str) -> str:
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
    """Return the names of the weights of the 16 pattern layers, in order."""
    blocks = [(stage, block) for stage in range(4) for block in range(4 - (stage == 0))]
    return ["stem.weight", *(f"stages.{s}.{b}.depthwise.weight" for s, b in blocks)]


def infer_config(state: dict[str, Tensor], pattern: str | None = None) -> PiDiNetConfig:
    """Infer the variant of an authors' file from its shapes, and the pattern from the weights that are zero.

    Adam with weight decay drives a weight without gradient to zero: the center for central and angular differences,
    index 0 for radial ones (authors' layout), none for vanilla. Central and angular look alike; if more than one
    published pattern fits, the caller has to name it.
    """
    try:
        stem, reduce, *kernels = (state[key] for key in ("stem.weight", "sides.0.reduce.weight", *_pattern_keys()))
    except KeyError as error:
        raise UserError(f"these are not PiDiNet weights: {error.args[0]} is missing") from error
    if reduce.dim() != 4 or any(kernel.shape[2:] != (3, 3) or not kernel.numel() for kernel in kernels):
        raise UserError("these are not PiDiNet weights: their layers are not 3x3 convolutions")
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
        raise UserError("the file's pattern is not a published one; give its 16 letters as pattern=")
    raise UserError(
        f"the file's pattern could be {' or '.join(fits)} (the file does not tell them apart); give pattern="
    )


def _could_be(letter: str, kernel: Tensor) -> bool:
    size = kernel.flatten(2).abs().mean((0, 1))
    # Exactly zero in depthwise layers; in the stem rounding noise keeps the center at 0.15 of the largest.
    dead = [i for i in range(9) if size[i] < 0.25 * size.max()]
    return dead == {"c": [4], "a": [4], "r": [0], "v": []}[letter]
