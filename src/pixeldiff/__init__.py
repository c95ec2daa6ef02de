"""pixeldiff: pixel difference networks as software. Public names load on first use, so importing stays light."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what a type checker sees; at run time __getattr__ asks the table, which a test compares with this
    from pixeldiff.detector import EdgeDetector
    from pixeldiff.errors import UserError
    from pixeldiff.evaluation.corruptions import corrupt
    from pixeldiff.evaluation.edges import BoundaryScore, EdgeScores, evaluate_edges
    from pixeldiff.inference.classes import Classifier
    from pixeldiff.inference.faces import FaceEmbedder
    from pixeldiff.inference.objects import ObjectDetector
    from pixeldiff.models import create_model, list_models
    from pixeldiff.models.edge_module import EdgeModule
    from pixeldiff.models.hub import from_pretrained, push_to_hub, save_pretrained
    from pixeldiff.models.saving import load_model, save_model
    from pixeldiff.nn.binary import BinaryPDCBlock, ReplicaPool
    from pixeldiff.nn.layers import PDConv2d, fuse, replace_convs
    from pixeldiff.nn.ops import PixelPairs, fold

    __all__ = [
        "BinaryPDCBlock",
        "BoundaryScore",
        "Classifier",
        "EdgeDetector",
        "EdgeModule",
        "EdgeScores",
        "FaceEmbedder",
        "ObjectDetector",
        "PDConv2d",
        "PixelPairs",
        "ReplicaPool",
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

__version__: str  # of the installed package: pyproject.toml is where it is written

_HOMES = {
    "UserError": "errors",
    "BoundaryScore": "evaluation.edges",
    "EdgeScores": "evaluation.edges",
    "evaluate_edges": "evaluation.edges",
    "corrupt": "evaluation.corruptions",
    "EdgeDetector": "detector",
    "Classifier": "inference.classes",
    "FaceEmbedder": "inference.faces",
    "ObjectDetector": "inference.objects",
    "PixelPairs": "nn.ops",
    "fold": "nn.ops",
    "PDConv2d": "nn.layers",
    "fuse": "nn.layers",
    "replace_convs": "nn.layers",
    "BinaryPDCBlock": "nn.binary",
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
# What of _HOMES needs more than the plain install: the extra, and a library of it.
_EXTRAS = {"nn": ("train", "torch"), "models": ("train", "torch"), "evaluation.corruptions": ("robustness", "scipy")}


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _installed_version()
    if name == "__all__":
        return __dir__()
    if name not in _HOMES:
        raise AttributeError(f"module 'pixeldiff' has no attribute {name!r}")
    from pixeldiff.errors import MissingExtra

    try:
        return _load(name)
    except MissingExtra as error:
        if _InstallHint not in sys.meta_path:
            sys.meta_path.append(_InstallHint)
        raise AttributeError(str(error)) from error  # so that hasattr answers, and inspect goes on


def __dir__() -> list[str]:
    """The names that can be imported as pixeldiff is installed here."""
    here = (name for name, home in _HOMES.items() if importlib.util.find_spec(_extra(home)[1] or "pixeldiff"))
    return sorted(["__version__", *here])


def _extra(home: str) -> tuple[str, str]:
    """Return the extra that a module needs and a library of it; empty for the plain install."""
    return _EXTRAS.get(home) or _EXTRAS.get(home.partition(".")[0], ("", ""))


def _load(name: str) -> object:
    home = _HOMES[name]
    try:
        return getattr(importlib.import_module(f"pixeldiff.{home}"), name)
    except ModuleNotFoundError as error:
        extra, _ = _extra(home)
        if not extra or (error.name or "").partition(".")[0] == "pixeldiff":
            raise
        from pixeldiff.errors import MissingExtra

        raise MissingExtra(extra, f"pixeldiff.{name}", error.name) from error


class _InstallHint:
    """Say what to install if `from pixeldiff import NAME` fails: Python then looks for a module of that name."""

    @staticmethod
    def find_spec(fullname: str, path: object = None, target: object = None) -> None:
        package, _, name = fullname.rpartition(".")
        if package == "pixeldiff" and name in _HOMES:
            _load(name)


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pixeldiff")
    except PackageNotFoundError:  # sources on the path, as hubconf.py takes them
        return "0+sources"
