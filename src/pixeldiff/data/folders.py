"""Folders of the user: where data are, what a folder holds. No torch."""

from __future__ import annotations

import os
from pathlib import Path

from pixeldiff.errors import UserError
from pixeldiff.image import SUFFIXES

BSDS500 = "BSDS500: https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/; others: docs/training.md"


def find_root(root: str | Path, origin: str) -> Path:
    """A data folder: as given, or under PIXELDIFF_DATA. `origin` says where to get it."""
    base = os.environ.get("PIXELDIFF_DATA")
    here = Path(os.path.expanduser(root))  # as it is where ~name is nobody's; Path.expanduser raises
    for path in (here, *([Path(os.path.expanduser(base)) / root] if base else [])):
        if path.is_dir():
            return path
    raise UserError(
        f"no data folder {str(root)!r}, neither here nor under PIXELDIFF_DATA ({base or 'not set'}); "
        f"get it first: {origin}"
    )


def visible(folder: Path) -> list[Path]:
    """What a folder holds, in order, without hidden files: archives of macOS have a ._x.png beside each x.png."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def list_pictures(folder: Path) -> list[Path]:
    """The files that are named like pictures, in order."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    return [path for path in visible(folder) if path.suffix.lower() in SUFFIXES]


def find_classes(folder: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """The pictures of a folder that has one folder per class, each with its label, and the names of the classes."""
    classes = [f for f in visible(folder) if f.is_dir()] if folder.is_dir() else []
    files = [(file, label) for label, f in enumerate(classes) for file in list_pictures(f)]
    if not files:
        raise UserError(f"no pictures in {folder}; it should hold one folder of pictures per class")
    return files, tuple(f.name for f in classes)
