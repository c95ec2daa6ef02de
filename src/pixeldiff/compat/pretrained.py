"""Networks as a folder of two files, the layout of model hubs: config.json and model.safetensors.

save_pretrained(model, "my-edges")
model = from_pretrained("my-edges")
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from pixeldiff.checkpoint import configuration, save_model
from pixeldiff.errors import UserError
from pixeldiff.image import write_whole
from pixeldiff.models import build_from_config

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def save_pretrained(model: nn.Module, folder: str | Path) -> None:
    """Write the folder; the config comes last, so that where it is, the weights are."""
    folder = Path(folder)
    described = {"library_name": "pixeldiff", **configuration(model)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose another place") from error
    save_model(model, folder / WEIGHTS)
    write_whole(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())


def from_pretrained(folder: str | Path) -> nn.Module:
    """The network of a folder, with its weights, in eval mode."""
    folder = Path(folder)
    try:
        described = json.loads((folder / CONFIG).read_text())
        model = build_from_config(described["family"], described["config"])
        model.load_state_dict(load_file(folder / WEIGHTS))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is no folder with {CONFIG} and {WEIGHTS}; write one with save_pretrained") from error
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{folder / CONFIG} is not a config of pixeldiff's: a family and its config") from error
    except (SafetensorError, RuntimeError, OSError) as error:
        raise UserError(f"{folder / WEIGHTS} does not hold the weights of this config; save it again") from error
    return model.eval()
