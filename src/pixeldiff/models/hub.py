"""Networks as a folder of two files, the layout of model hubs: config.json and model.safetensors.

save_pretrained(model, "my-edges")
model = from_pretrained("my-edges")
"""

from __future__ import annotations

import json
from pathlib import Path

from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.files import write_whole
from pixeldiff.models.saving import describe_model, load_described, save_model

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def save_pretrained(model: nn.Module, folder: str | Path) -> None:
    """Write the folder; the config comes last, so that where it is, the weights are."""
    folder = Path(folder)
    described = {"library_name": "pixeldiff", **describe_model(model)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose another place") from error
    save_model(model, folder / WEIGHTS)
    write_whole(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())


def from_pretrained(folder: str | Path) -> nn.Module:
    """The network of a folder, with its weights, in eval mode."""
    folder = Path(folder)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise UserError(f"{folder} is no folder with {CONFIG} and {WEIGHTS}; write one with save_pretrained")
    try:
        described = json.loads((folder / CONFIG).read_text())
        family, config = described["family"], described["config"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{folder / CONFIG} is not a config of pixeldiff's: a family and its config") from error
    try:
        return load_described(family, config, folder / WEIGHTS)
    except UserError as error:
        raise UserError(
            f"{folder / WEIGHTS} does not hold the weights of this config ({error}); save it again"
        ) from error
