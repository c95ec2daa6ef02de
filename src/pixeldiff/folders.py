"""Folders of data: where one is, which pictures and which classes it holds. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from pixeldiff.errors import UserError
from pixeldiff.image import SUFFIXES

BSDS500 = "BSDS500: https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/; others: docs/training.md"


def find_root(root: str | Path, origin: str) -> Path:
    """A data folder: as given, or under PIXELDIFF_DATA. `origin` says where to get it."""
    base = os.environ.get("PIXELDIFF_DATA")
    for path in (Path(root).expanduser(), *([Path(base) / root] if base else [])):
        if path.is_dir():
            return path
    raise UserError(
        f"no data folder {str(root)!r}, neither here nor under PIXELDIFF_DATA ({base or 'not set'}); "
        f"get it first: {origin}"
    )


def list_pictures(folder: Path) -> list[Path]:
    """The files that are named like pictures, in order."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    names = (path for path in folder.iterdir() if not path.name.startswith("."))  # ._x.png comes out of macOS archives
    return sorted(path for path in names if path.suffix.lower() in SUFFIXES)


def find_classes(folder: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """The pictures of a folder that has one folder per class, each with its label, and the names of the classes."""
    classes = sorted(f for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []
    files = [(file, label) for label, f in enumerate(classes) for file in list_pictures(f)]
    if not files:
        raise UserError(f"no pictures in {folder}; it should hold one folder of pictures per class")
    return files, tuple(f.name for f in classes)
