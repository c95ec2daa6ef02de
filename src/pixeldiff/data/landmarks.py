"""Five points of faces from a file: left eye, right eye, nose, left and right mouth corner, x and y in pixels.

JSON, {"person/01": [[x, y], ... five]}, or text, `person/01.jpg x1 y1 ... x5 y5` a line (spaces, tabs or commas), as
the lists of CelebA and CASIA-WebFace; up to two lines of heading are skipped. Names are relative to the folder of
images; their suffixes are ignored.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import read_list
from pixeldiff.errors import InputError

Points = NDArray[np.float64]
_HEADING = 2  # lines


def read_landmarks(path: Path) -> dict[str, Points]:
    """Read five points (5 x 2) by the names of images, as `name_of` returns them."""
    text = read_list(path)
    rows = _from_json(text, path) if text.lstrip().startswith("{") else _from_lines(text, path)
    if not rows:
        raise InputError(f"{path} names no images; a line is: person/01.jpg x1 y1 x2 y2 x3 y3 x4 y4 x5 y5")
    return rows


def name_of(relative: str | Path) -> str:
    """Return the name of an image: its path below the folder, with / and without suffix."""
    return str(PurePosixPath(str(relative).replace("\\", "/")).with_suffix(""))


def _from_json(text: str, path: Path) -> dict[str, Points]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}); expected {{name: five points}}") from error
    return {_name(name, path): _points(value, f"{path}: {name[:99]}") for name, value in table.items()}


def _from_lines(text: str, path: Path) -> dict[str, Points]:
    rows: dict[str, Points] = {}
    for number, line in enumerate(text.splitlines(), 1):
        columns = (line.replace(",", " ") if "," in line else line).rsplit(maxsplit=10)
        try:
            values = [float(column) for column in columns[1:]]
        except ValueError:
            values = []
        if len(values) == 10:
            rows[_name(columns[0], path)] = _points(values, f"{path}, line {number}")
        elif columns and number > _HEADING:
            raise InputError(f"{path}, line {number}: a line is: person/01.jpg x1 y1 x2 y2 x3 y3 x4 y4 x5 y5")
    return rows


def _name(name: str, path: Path) -> str:
    if not name or "\0" in name or not PurePosixPath(name).name:
        raise InputError(f"{path} has {name[:99]!r} for the name of an image")
    return name_of(name)


def _points(value: Any, where: str) -> Points:
    try:
        points = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{where}: five points are x and y each; this is something else") from error
    if points.size != 10 or points.ndim > 2 or not (abs(points) < 1e6).all():  # nan fails, too
        raise InputError(
            f"{where}: {points.size / 2:g} points; give five of x and y in pixels: eyes, nose, mouth corners"
        )
    return points.reshape(5, 2)
