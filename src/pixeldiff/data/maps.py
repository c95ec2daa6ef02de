"""Edge maps to score: PNG, .npy or .mat files by the name of their image, arrays, and means of two maps.

Each has load() -> float32 height x width in [0, 1] and digest() -> text that changes with the map. What cannot be an
edge map (color, values outside [0, 1], white background) is an error that says what to do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import shortened, visible
from pixeldiff.data.mat import describe, read_mat
from pixeldiff.data.npy import read_npy
from pixeldiff.edgemap import to_float
from pixeldiff.errors import InputError
from pixeldiff.image import FloatMap, read_stored

SUFFIXES = (".png", ".npy", ".mat", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg")


class EdgeMap(Protocol):
    def load(self) -> FloatMap: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class FileMap:
    path: Path
    allow_inverted: bool = False

    def load(self) -> FloatMap:
        return read_map(self.path, self.allow_inverted)

    def digest(self) -> str:
        return "inverted allowed " * self.allow_inverted + hashlib.sha256(self.path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class ArrayMap:
    array: NDArray[Any]
    allow_inverted: bool = False

    def load(self) -> FloatMap:
        return to_map(self.array, "the map", self.allow_inverted)

    def digest(self) -> str:
        array = np.ascontiguousarray(self.array)
        return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


@dataclass(frozen=True)
class AverageMap:
    """The mean of two maps of one image (NYUD: RGB and HHA)."""

    first: EdgeMap
    second: EdgeMap

    def load(self) -> FloatMap:
        first, second = self.first.load(), self.second.load()
        if first.shape != second.shape:
            raise InputError(f"maps of different sizes cannot be averaged: {first.shape} and {second.shape}")
        result: FloatMap = (first + second) * np.float32(0.5)
        return result

    def digest(self) -> str:
        return f"average {self.first.digest()} {self.second.digest()}"


def find_maps(folder: Path, allow_inverted: bool = False) -> dict[str, EdgeMap]:
    """Find the maps in a folder by the image's name: <name>.png, .npy, .mat, or <name>.edges.png as `detect` writes."""
    if not folder.is_dir():
        raise InputError(f"no folder of maps {folder}; give a folder of .png, .npy or .mat files")
    maps: dict[str, EdgeMap] = {}
    for path in visible(folder):
        if path.suffix.lower() not in SUFFIXES:
            continue
        name = path.stem.removesuffix(".edges")
        if name in maps:
            raise InputError(f"{folder} has two maps of {name}; keep one of them")
        maps[name] = FileMap(path, allow_inverted)
    if not maps:
        raise InputError(f"{folder} has no maps; expected {', '.join(SUFFIXES[:3])} files")
    return maps


def average(first: Mapping[str, EdgeMap], second: Mapping[str, EdgeMap]) -> dict[str, EdgeMap]:
    """Average maps of the same names, pair by pair."""
    if unpaired := sorted(set(first) ^ set(second)):
        raise InputError(f"{len(unpaired)} maps are only in one of the two folders: {shortened(unpaired)}")
    return {name: AverageMap(first[name], second[name]) for name in sorted(first)}


def read_map(path: Path, allow_inverted: bool = False) -> FloatMap:
    """Read one map from a file."""
    suffix = path.suffix.lower()
    if suffix == ".mat":
        array = _only_matrix(path)
    elif suffix == ".npy":
        array = read_npy(path)
    else:
        array = read_stored(path)
    return to_map(array, str(path), allow_inverted)


def _only_matrix(path: Path) -> NDArray[Any]:
    variables = read_mat(path)
    matrices = [v for v in variables.values() if isinstance(v, np.ndarray) and v.ndim == 2 and v.dtype.kind in "fiub"]
    if len(matrices) != 1:
        raise InputError(f"{path} needs one 2-D numeric variable, the map; it holds {describe(variables)}")
    return matrices[0]


def to_map(array: NDArray[Any], name: str, allow_inverted: bool = False) -> FloatMap:
    """Convert an array to a map in [0, 1]; 8 and 16 bits are levels of their full range."""
    if array.ndim == 3:
        array = _gray(array, name)
    if array.ndim != 2 or not array.size:
        raise InputError(f"{name} has shape {array.shape}; a map is height x width")
    edge_map = to_float(array, name)
    if not allow_inverted and float(edge_map.mean()) > 0.5:
        raise InputError(
            f"{name} looks inverted (mean {edge_map.mean():.2f}): edges are bright on black; use 1 - map, or score it "
            "as it is with --allow-inverted"
        )
    return edge_map


def _gray(array: NDArray[Any], name: str) -> NDArray[Any]:
    colors = array[..., :3] if array.shape[2] in (3, 4) else array
    if array.shape[2] == 2:  # gray and alpha
        colors = array[..., :1]
    if (colors != colors[..., :1]).any():
        raise InputError(f"{name} is in color; a map is gray, and bright at edges")
    first: NDArray[Any] = colors[..., 0]
    return first
