"""Edge maps to be scored: PNG, .npy or .mat files found by name, averages of two, or what a network gives.

Each has load() -> float32 height x width in [0, 1] and digest() -> text that changes with the result. What cannot be a
map of edges (color, values outside [0, 1], white background) is refused with a word on how to mend it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import shortened, visible
from pixeldiff.data.mat import describe, read_mat
from pixeldiff.data.npy import read_npy
from pixeldiff.edgemap import to_float
from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap, read_stored

SUFFIXES = (".png", ".npy", ".mat", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg")


class EdgeMap(Protocol):
    def load(self) -> FloatMap: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class FileMap:
    path: Path
    force: bool = False  # also if it looks inverted

    def load(self) -> FloatMap:
        return read_map(self.path, self.force)

    def digest(self) -> str:
        return "forced " * self.force + hashlib.sha256(self.path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class ArrayMap:
    array: NDArray[Any]

    def load(self) -> FloatMap:
        return checked(self.array, "the map")

    def digest(self) -> str:
        array = np.ascontiguousarray(self.array)
        return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


@dataclass(frozen=True)
class AverageMap:
    """The mean of two maps of one image (NYUD: RGB and HHA)."""

    first: EdgeMap
    second: EdgeMap

    def load(self) -> FloatMap:
        one, two = self.first.load(), self.second.load()
        if one.shape != two.shape:
            raise UserError(f"maps of different sizes cannot be averaged: {one.shape} and {two.shape}")
        result: FloatMap = (one + two) * np.float32(0.5)
        return result

    def digest(self) -> str:
        return f"average {self.first.digest()} {self.second.digest()}"


@dataclass(frozen=True)
class DetectedMap:
    """What a network sees in an image; `network` identifies its weights."""

    detect: Callable[[Path], FloatMap]
    image: Path
    network: str

    def load(self) -> FloatMap:
        return self.detect(self.image)

    def digest(self) -> str:
        return f"{self.network} {hashlib.sha256(self.image.read_bytes()).hexdigest()}"


def find_maps(folder: Path, force: bool = False) -> dict[str, EdgeMap]:
    """The maps in a folder by the image's name: <name>.png, .npy, .mat, or <name>.edges.png as `detect` writes.

    `force` takes maps that look inverted.
    """
    if not folder.is_dir():
        raise UserError(f"no folder of maps {folder}; give a folder of .png, .npy or .mat files")
    maps: dict[str, EdgeMap] = {}
    for path in visible(folder):
        if path.suffix.lower() not in SUFFIXES:
            continue
        name = path.stem.removesuffix(".edges")
        if name in maps:
            raise UserError(f"{folder} holds two maps of {name}; keep one kind of file")
        maps[name] = FileMap(path, force)
    if not maps:
        raise UserError(f"{folder} holds no maps; {', '.join(SUFFIXES[:3])} files are read")
    return maps


def average(first: Mapping[str, EdgeMap], second: Mapping[str, EdgeMap]) -> dict[str, EdgeMap]:
    """Maps of the same names, averaged pair by pair."""
    if lonely := sorted(set(first) ^ set(second)):
        raise UserError(f"{len(lonely)} maps are in one of the two folders only: {shortened(lonely)}")
    return {name: AverageMap(first[name], second[name]) for name in sorted(first)}


def read_map(path: Path, force: bool = False) -> FloatMap:
    """One map from a file."""
    suffix = path.suffix.lower()
    if suffix == ".mat":
        array = _only_matrix(path)
    elif suffix == ".npy":
        array = read_npy(path)
    else:
        array = read_stored(path)
    return checked(array, str(path), force)


def _only_matrix(path: Path) -> NDArray[Any]:
    variables = read_mat(path)
    found = [v for v in variables.values() if isinstance(v, np.ndarray) and v.ndim == 2 and v.dtype.kind in "fiub"]
    if len(found) != 1:
        raise UserError(f"{path} should hold one 2-D numeric variable, the map; it holds {describe(variables)}")
    return found[0]


def checked(array: NDArray[Any], name: str, force: bool = False) -> FloatMap:
    """An array as a map in [0, 1]; 8 and 16 bit are levels of their full range."""
    if array.ndim == 3:
        array = _gray(array, name)
    if array.ndim != 2 or not array.size:
        raise UserError(f"{name} has shape {array.shape}; a map is height x width")
    edge_map = to_float(array, name)
    if not force and float(edge_map.mean()) > 0.5:
        raise UserError(
            f"{name} looks inverted (mean {edge_map.mean():.2f}): edges are bright on black; use 1 - map, or --force "
            "if it is meant so"
        )
    return edge_map


def _gray(array: NDArray[Any], name: str) -> NDArray[Any]:
    colors = array[..., :3] if array.shape[2] in (3, 4) else array
    if array.shape[2] == 2:  # gray and alpha
        colors = array[..., :1]
    if (colors != colors[..., :1]).any():
        raise UserError(f"{name} is in color; a map is gray, bright where edges are")
    first: NDArray[Any] = colors[..., 0]
    return first
