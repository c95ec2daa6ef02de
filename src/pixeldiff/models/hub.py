"""Networks as folders in the layout of model hubs: config.json, model.safetensors and README.md, the model card.

save_pretrained(model, "my-edges")
model = from_pretrained("my-edges")              # a local folder, or "owner/name" on the Hugging Face Hub
push_to_hub(model, "owner/name")

The Hub needs the extra `hub`. Nothing else in pixeldiff downloads or uploads.
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
# Task -> its name on the Hub.
PIPELINES = {
    "edges": "image-to-image",
    "classes": "image-classification",
    "faces": "image-feature-extraction",
    "objects": "object-detection",
}


def save_pretrained(model: nn.Module, folder: str | Path) -> None:
    """Write a network as a folder. An existing model card stays; the config is written last, after the weights."""
    folder = Path(folder)
    described = {"library_name": "pixeldiff", **describe_model(model)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot create the folder {folder} ({error.strerror}); choose another one") from error
    save_model(model, folder / WEIGHTS)
    if not (folder / CARD).exists():
        atomic_write(folder / CARD, card(described).encode())
    atomic_write(folder / CONFIG, (json.dumps(described, indent=2) + "\n").encode())


def from_pretrained(source: str | Path) -> nn.Module:
    """Load a network from a folder, or from the Hub by its name there; in eval mode."""
    folder = Path(source)
    if isinstance(source, str) and HUB_NAME.fullmatch(source) and not folder.exists():
        folder = _download(source)
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise UserError(f"{source} is not a folder with {CONFIG} and {WEIGHTS}; write one with save_pretrained")
    try:
        described = json.loads((folder / CONFIG).read_text())
        family, config = described["family"], described["config"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{folder / CONFIG} is not a config written by save_pretrained") from error
    try:
        return load_described(family, config, folder / WEIGHTS)
    except UserError as error:
        raise UserError(
            f"{folder / WEIGHTS} does not hold the weights of this config ({error}); save it again"
        ) from error


def push_to_hub(model: nn.Module, name: str, *, private: bool = False) -> None:
    """Upload a network to the Hugging Face Hub as "owner/name", as the user who is logged in."""
    if not HUB_NAME.fullmatch(name):
        raise UserError(f'invalid name on the Hub {name!r}; expected "owner/name"')
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(model, folder)
        try:
            hub.create_repo(name, private=private, exist_ok=True)
            hub.upload_folder(repo_id=name, folder_path=folder)
        except Exception as error:  # of files, names, or the library that carries HTTP
            raise UserError(
                f"cannot upload {name} to the Hub ({_first_line(error)}); run `hf auth login` first"
            ) from error


def card(described: dict[str, Any]) -> str:
    """Return a model card in the Hub's format, for its author to complete."""
    task, size = described["task"], {key: value for key, value in described["config"].items() if value is not None}
    return f"""\
---
library_name: pixeldiff
pipeline_tag: {PIPELINES[task]}
tags:
- pixel-difference-networks
- {task}
---

# A network for {task} of the family {described["family"]}

```python
from pixeldiff import from_pretrained

model = from_pretrained("this folder, or its name on the Hub")
```

Configuration: `{json.dumps(size)}`. Images are RGB, normalized with `{json.dumps(described["preprocessing"])}`.

Its author completes this card: training data and license, scores and how they were measured, intended use and
limitations.
"""


def _download(name: str) -> Path:
    hub = _hub()
    try:
        return Path(hub.snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS]))
    except Exception as error:  # of files, names, or the library that carries HTTP
        raise UserError(
            f"{name} is neither a local folder nor a network on the Hub ({_first_line(error)}); check the name"
        ) from error


def _hub() -> ModuleType:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise MissingExtra("hub", "a network on the Hub", error.name) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
