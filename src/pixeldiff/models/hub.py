"""Networks as a folder in the layout of model hubs: config.json, model.safetensors and README.md, its card.

save_pretrained(model, "my-edges")
model = from_pretrained("my-edges")              # a folder here, or "owner/name" on the Hugging Face Hub
push_to_hub(model, "owner/name")

The hub needs the extra `hub`; nothing is fetched or sent but by these two calls.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import atomic_write
from pixeldiff.models.saving import describe_model, load_described, save_model

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "README.md"
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
# What hubs call our tasks.
PIPELINES = {
    "edges": "image-to-image",
    "classes": "image-classification",
    "faces": "image-feature-extraction",
    "objects": "object-detection",
}


def save_pretrained(model: nn.Module, folder: str | Path) -> None:
    """Write the folder; the config comes last, so that where it is, the weights are. A card that is there stays."""
    folder = Path(folder)
    described = {"library_name": "pixeldiff", **describe_model(model)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder} ({error.strerror}); choose another place") from error
    save_model(model, folder / WEIGHTS)
    if not (folder / CARD).exists():
        atomic_write(folder / CARD, card(described).encode())
    atomic_write(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())


def from_pretrained(source: str | Path) -> nn.Module:
    """The network of a folder, or of a name on the hub, with its weights, in eval mode."""
    folder = Path(source)
    if isinstance(source, str) and HUB_NAME.fullmatch(source) and not folder.exists():
        folder = _fetched(source)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise UserError(f"{source} is no folder with {CONFIG} and {WEIGHTS}; write one with save_pretrained")
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


def push_to_hub(model: nn.Module, name: str, *, private: bool = False) -> None:
    """Put a network on the Hugging Face Hub as "owner/name", as the user whom huggingface_hub knows."""
    if not HUB_NAME.fullmatch(name):
        raise UserError(f'{name!r} is no name on the hub; give it as "owner/name"')
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        try:
            hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=name, folder_path=folder)
        except Exception as error:  # of files, names, or the library that carries HTTP
            raise UserError(
                f"{name} was not put on the hub ({_first_line(error)}); is `hf auth login` done?"
            ) from error


def card(described: dict[str, Any]) -> str:
    """A model card in the hub's format; its author says the rest."""
    task, size = described["task"], {key: value for key, value in described["config"].items() if value is not None}
    return f"""\
---
library_name: pixeldiff
pipeline_tag: {PIPELINES[task]}
tags:
- pixel-difference-networks
- {task}
---

# A network for {task}, of the family {described["family"]}

```python
from pixeldiff import from_pretrained

model = from_pretrained("this folder, or its name on the hub")
```

Configuration: `{json.dumps(size)}`. Images are RGB, normalized with `{json.dumps(described["preprocessing"])}`.

To be said by its author: what it was trained on and under which license, its scores and how they were measured, and
what it must not be used for.
"""


def _fetched(name: str) -> Path:
    hub = _hub()
    try:
        return Path(hub.snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:  # of files, names, or the library that carries HTTP
        raise UserError(
            f"{name} is neither a folder here nor a network on the hub ({_first_line(error)}); check the name"
        ) from error


def _hub() -> ModuleType:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise MissingExtra("hub", "a network on the hub", error.name) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
