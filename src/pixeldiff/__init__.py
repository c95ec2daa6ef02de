"""pixeldiff: pixel difference networks as software. Public names load on first use, so importing stays light."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "UserError": "pixeldiff.errors",
    "PackedClassifier": "pixeldiff.runtime.classes",
    "EdgeDetector": "pixeldiff.runtime.edges",
    "evaluate_edges": "pixeldiff.evaluation.edges",
    "corrupt": "pixeldiff.robustness.corruptions",
    "create_model": "pixeldiff.models",
    "list_models": "pixeldiff.models",
    "load_model": "pixeldiff.models.saving",
    "save_pretrained": "pixeldiff.models.hub",
    "from_pretrained": "pixeldiff.models.hub",
    "PDConv2d": "pixeldiff.nn.layers",
    "replace_convs": "pixeldiff.nn.layers",
    "BinaryPDConv2d": "pixeldiff.nn.binary",
    "ReplicaPool": "pixeldiff.nn.binary",
    "PixelPairs": "pixeldiff.nn.ops",
    "fold": "pixeldiff.nn.ops",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'pixeldiff' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
