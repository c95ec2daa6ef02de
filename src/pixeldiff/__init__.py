"""pixeldiff: pixel difference networks as software. Public names load on first use, so importing stays light."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a type checker sees; at run time __getattr__ asks the table, which a test compares with this
    from pixeldiff.errors import UserError
    from pixeldiff.evaluation.edges import Settings, evaluate_edges
    from pixeldiff.models import create_model, list_models
    from pixeldiff.models.edge_module import EdgeModule
    from pixeldiff.models.hub import from_pretrained, push_to_hub, save_pretrained
    from pixeldiff.models.saving import load_model, save_model
    from pixeldiff.nn.binary import BinaryPDConv2d, ReplicaPool
    from pixeldiff.nn.layers import PDConv2d, fuse, replace_convs
    from pixeldiff.nn.ops import PixelPairs, fold
    from pixeldiff.robustness.corruptions import corrupt
    from pixeldiff.runtime.boxes import ObjectDetector
    from pixeldiff.runtime.classes import PackedClassifier
    from pixeldiff.runtime.edges import EdgeDetector
    from pixeldiff.runtime.faces import FaceEmbedder

__version__: str  # of the installed package: pyproject.toml is where it is written

_HOMES = {
    "UserError": "errors",
    "Settings": "evaluation.edges",
    "evaluate_edges": "evaluation.edges",
    "corrupt": "robustness.corruptions",
    "EdgeDetector": "runtime.edges",
    "PackedClassifier": "runtime.classes",
    "FaceEmbedder": "runtime.faces",
    "ObjectDetector": "runtime.boxes",
    "PixelPairs": "nn.ops",
    "fold": "nn.ops",
    "PDConv2d": "nn.layers",
    "fuse": "nn.layers",
    "replace_convs": "nn.layers",
    "BinaryPDConv2d": "nn.binary",
    "ReplicaPool": "nn.binary",
    "create_model": "models",
    "list_models": "models",
    "EdgeModule": "models.edge_module",
    "from_pretrained": "models.hub",
    "push_to_hub": "models.hub",
    "save_pretrained": "models.hub",
    "load_model": "models.saving",
    "save_model": "models.saving",
}

__all__ = [
    "BinaryPDConv2d",
    "EdgeDetector",
    "EdgeModule",
    "FaceEmbedder",
    "ObjectDetector",
    "PDConv2d",
    "PackedClassifier",
    "PixelPairs",
    "ReplicaPool",
    "Settings",
    "UserError",
    "__version__",
    "corrupt",
    "create_model",
    "evaluate_edges",
    "fold",
    "from_pretrained",
    "fuse",
    "list_models",
    "load_model",
    "push_to_hub",
    "replace_convs",
    "save_model",
    "save_pretrained",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _installed_version()
    if name in _HOMES:
        return getattr(importlib.import_module(f"pixeldiff.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pixeldiff' has no attribute {name!r}")


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pixeldiff")
    except PackageNotFoundError:  # sources on the path, as hubconf.py takes them
        return "0+sources"


def __dir__() -> list[str]:
    return sorted(__all__)
