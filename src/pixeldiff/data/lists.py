"""Which files are meant: the folder of a data set, the images in a folder, the names in a list."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pixeldiff.errors import UserError
from pixeldiff.image import SUFFIXES

LIST_BYTES = 2**25  # a longer list is none
LINE_LENGTH = 10_000


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


def find_within(root: str | Path | None, name: str, origin: str) -> Path:
    """As `find_root`, also where `root`, or PIXELDIFF_DATA if there is none, holds the data set as a folder `name`."""
    base = find_root(root or os.environ.get("PIXELDIFF_DATA") or ".", origin)
    return base / name if (base / name).is_dir() else base


def visible(folder: Path) -> list[Path]:
    """What a folder holds, in order, without hidden files: archives of macOS have a ._x.png beside each x.png."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def list_images(folder: Path) -> list[Path]:
    """The files that are named like images, in order."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    return [path for path in visible(folder) if path.suffix.lower() in SUFFIXES]


def find_classes(folder: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """The images of a folder that has one folder per class, each with its label, and the names of the classes."""
    classes = [f for f in visible(folder) if f.is_dir()] if folder.is_dir() else []
    files = [(file, label) for label, f in enumerate(classes) for file in list_images(f)]
    if not files:
        raise UserError(f"no images in {folder}; it should hold one folder of images per class")
    return files, tuple(f.name for f in classes)


def read_list(path: Path) -> str:
    """The text of a list; a byte order mark, which some editors write, is no part of it."""
    try:
        if path.stat().st_size > LIST_BYTES:
            raise UserError(f"{path} is larger than {LIST_BYTES >> 20} MB, which is no list; split it")
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise UserError(f"no list {path}") from error
    except OSError as error:
        raise UserError(f"{path} is no readable list ({error.strerror}); check the name") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no list of images and labels; lists are text") from error
    if "\0" in text:
        raise UserError(f"{path} is no list of images and labels; lists are text")
    return text


def list_columns(line: str) -> list[str]:
    """The columns of a line of a list, between tabs if it has any, else between spaces."""
    if len(line) > LINE_LENGTH:
        raise UserError(f"a line of {len(line)} characters is no line of a list: {line[:40]} ...")
    return [column.strip() for column in line.split("\t")] if "\t" in line else line.split()


def read_json_list(path: Path) -> list[tuple[str, str]]:
    """The rows of a JSON array of [image, label]."""
    text = read_list(path)
    try:
        rows = [(image, label) for image, label in json.loads(text)]
    except RecursionError as error:
        raise UserError(f"{path} is not a JSON array of [image, label] pairs: it is nested too deeply") from error
    except (ValueError, TypeError) as error:
        raise UserError(f"{path} is not a JSON array of [image, label] pairs ({error})") from error
    for name in (name for row in rows for name in row):
        if not isinstance(name, str) or len(name) > LINE_LENGTH or not all(letter >= " " for letter in name):
            raise UserError(f"{path} is not a JSON array of [image, label] pairs of names; it has {str(name)[:40]!r}")
    return rows


def check_files_exist(source: Path, files: Iterable[Path]) -> None:
    if missing := [str(path) for path in files if not os.path.isfile(path)]:  # also of names too long for a file
        raise UserError(f"{source} names {len(missing)} files that are not there: {shortened(missing)}")


def shortened(names: list[str], most: int = 10) -> str:
    """A list for a message, at most ten names."""
    return ", ".join(name[:300] for name in names[:most]) + (
        f" and {len(names) - most} more" if len(names) > most else ""
    )
