"""Folders and lists of data sets: the folder of a data set, the images in a folder, the rows of a list."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from pixeldiff.errors import InputError
from pixeldiff.image import SUFFIXES

LIST_BYTES = 2**25  # no list is longer
LINE_LENGTH = 10_000


def find_root(root: str | Path, origin: str) -> Path:
    """Find a data folder: as given, or under PIXELDIFF_DATA. `origin` says where to get it."""
    base = os.environ.get("PIXELDIFF_DATA")
    here = Path(os.path.expanduser(root))  # keeps ~name if there is no such user; Path.expanduser raises
    for path in (here, *([Path(os.path.expanduser(base)) / root] if base else [])):
        if path.is_dir():
            return path
    raise InputError(
        f"no data folder {str(root)!r}, neither here nor under PIXELDIFF_DATA ({base or 'not set'}); get it: {origin}"
    )


def find_within(root: str | Path | None, name: str, origin: str) -> Path:
    """Find a data folder that is `root` or lies in it (by default in PIXELDIFF_DATA) as the folder `name`."""
    base = find_root(root or os.environ.get("PIXELDIFF_DATA") or ".", origin)
    return base / name if (base / name).is_dir() else base


def visible(folder: Path) -> list[Path]:
    """List a folder in order, without hidden files: archives of macOS have a ._x.png beside each x.png."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def list_images(folder: Path) -> list[Path]:
    """List the files that are named like images, in order."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}")
    return [path for path in visible(folder) if path.suffix.lower() in SUFFIXES]


def find_classes(folder: Path) -> tuple[list[tuple[Path, int]], tuple[str, ...]]:
    """List the images of a folder that has one folder per class, each with its label, and the names of the classes."""
    classes = [path for path in visible(folder) if path.is_dir()] if folder.is_dir() else []
    files = [(file, label) for label, path in enumerate(classes) for file in list_images(path)]
    if not files:
        raise InputError(f"no images in {folder}; expected one folder of images per class")
    return files, tuple(path.name for path in classes)


def read_list(path: Path) -> str:
    """Read the text of a list, without the byte order mark that some editors write."""
    try:
        if path.stat().st_size > LIST_BYTES:
            raise InputError(f"{path} is larger than {LIST_BYTES >> 20} MB, too large for a list; split it")
        text = path.read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise InputError(f"no list {path}") from error
    except OSError as error:
        raise InputError(f"{path} is not a readable list ({error.strerror}); check the name") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a list; lists are text") from error
    if "\0" in text:
        raise InputError(f"{path} is not a list; lists are text")
    return text


def list_columns(line: str) -> list[str]:
    """Split a line of a list at tabs if it has any, else at spaces."""
    if len(line) > LINE_LENGTH:
        raise InputError(f"invalid line of a list, {len(line)} characters long: {line[:40]} ...")
    return [column.strip() for column in line.split("\t")] if "\t" in line else line.split()


def read_json_list(path: Path) -> list[tuple[str, str]]:
    """Read the rows of a JSON array of [image, label]."""
    text = read_list(path)
    try:
        rows = [(image, label) for image, label in json.loads(text)]
    except RecursionError as error:
        raise InputError(f"{path} is not a JSON array of [image, label] pairs: it is nested too deeply") from error
    except (ValueError, TypeError) as error:
        raise InputError(f"{path} is not a JSON array of [image, label] pairs ({error})") from error
    for name in (name for row in rows for name in row):
        if not isinstance(name, str) or len(name) > LINE_LENGTH or not all(letter >= " " for letter in name):
            raise InputError(f"{path} is not a JSON array of [image, label] pairs of names; it has {str(name)[:40]!r}")
    return rows


def check_files_exist(source: Path, files: Iterable[Path]) -> None:
    """Raise an error that names the missing files."""
    if missing := [str(path) for path in files if not os.path.isfile(path)]:  # also of names too long for a file
        raise InputError(f"{source} names {len(missing)} files that do not exist: {shortened(missing)}")


def shortened(names: list[str], max_names: int = 10) -> str:
    """Join names for a message, at most `max_names`."""
    shown = ", ".join(name[:300] for name in names[:max_names])
    return shown + (f" and {len(names) - max_names} more" if len(names) > max_names else "")
