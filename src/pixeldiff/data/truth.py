"""Human boundaries on disk, in the layouts that people have, found by the image's name.

- a folder of BSDS .mat files: groundTruth{k}.Boundaries, one annotator per k;
- a folder of PNGs: one annotator;
- a folder of folders of PNGs: one folder per annotator;
- a list (.lst, .txt) of lines "image label", relative to the list's folder; further columns are ignored, and names with
  spaces need tabs between the columns;
- a JSON array of [image, label] pairs, as BIPED, BRIND and UDED come;
- "images:labels", a folder of images and one of their labels in one of the first three layouts;
- one .mat file or label image.
In label images channel 0 counts, and a boundary is at least half of full strength (above 0 in 0/1 masks). What cannot
be a label (a color photograph, more boundary than not) is refused.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import (
    check_files_exist,
    list_columns,
    list_images,
    read_json_list,
    read_list,
    shortened,
    visible,
)
from pixeldiff.data.mat import describe, read_mat
from pixeldiff.edgemap import to_mask
from pixeldiff.errors import UserError
from pixeldiff.image import read_stored

Mask = NDArray[np.bool_]
TELLING = 32 * 32  # pixels; of fewer, nothing is said about how they look
LABEL_SUFFIXES = (".png", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg")


@dataclass(frozen=True)
class GroundTruth:
    """The annotators of one image: one .mat file, or one label image each. `image` if the list names it.

    `force` takes labels that look inverted.
    """

    files: tuple[Path, ...]
    image: Path | None = None
    force: bool = False

    def load(self) -> list[Mask]:
        if self.files[0].suffix.lower() == ".mat":
            return read_bsds(self.files[0], self.force)
        return [read_label(path, self.force) for path in self.files]

    def digest(self) -> str:
        return "forced " * self.force + hashlib.sha256(b"".join(path.read_bytes() for path in self.files)).hexdigest()


def find_ground_truth(source: Path) -> dict[str, GroundTruth]:
    """The truth of each image, by the image's name without its ending."""
    if source.is_dir():
        return _in_folder(source)
    if not os.path.exists(source):
        return _of_images(source)
    if source.suffix.lower() in (".mat", *LABEL_SUFFIXES):
        return {source.stem: GroundTruth((source,))}
    truths: dict[str, GroundTruth] = {}
    for row in read_json_list(source) if source.suffix == ".json" else _list_rows(source):
        image, label = (source.parent / name for name in row)
        if image.stem in truths:
            raise UserError(f"{source} names two images {image.stem}; scores need one label per name")
        truths[image.stem] = GroundTruth((label,), image)
    check_files_exist(source, [label for truth in truths.values() for label in truth.files])
    return truths


def _of_images(source: Path) -> dict[str, GroundTruth]:
    """The truth that "images:labels" names."""
    text = str(source)
    splits = [(Path(text[:k]), Path(text[k + 1 :])) for k, letter in enumerate(text) if letter == ":"]
    folders = next((pair for pair in splits if all(map(os.path.isdir, pair))), None)  # Windows has colons of its own
    if folders is None:
        raise UserError(
            f"no truth {source}; give a folder of .mat or .png files, a pair list, a JSON list, or "
            "IMAGES:LABELS, two folders"
        )
    labels, images = _in_folder(folders[1]), list_images(folders[0])
    by_name = {path.stem: path for path in images}
    if len(by_name) < len(images):
        raise UserError(f"{folders[0]} holds two images of one name; scores need one label per name")
    if lonely := sorted(by_name.keys() ^ labels.keys()):
        raise UserError(f"{source}: {len(lonely)} names have an image or a label only: {shortened(lonely)}")
    return {name: GroundTruth(labels[name].files, path) for name, path in by_name.items()}


def _in_folder(folder: Path) -> dict[str, GroundTruth]:
    if mats := [path for path in visible(folder) if path.suffix == ".mat"]:
        return {path.stem: GroundTruth((path,)) for path in mats}
    if labels := _labels(folder):
        return {path.stem: GroundTruth((path,)) for path in labels}
    annotators: dict[str, list[Path]] = {}
    for one in (path for path in visible(folder) if path.is_dir()):
        for path in _labels(one):
            annotators.setdefault(path.stem, []).append(path)
    if annotators:
        return {name: GroundTruth(tuple(annotators[name])) for name in sorted(annotators)}
    hint = ""
    if (folder / "groundTruth").is_dir():
        hint = f"; this looks like BSDS500 itself: use --dataset bsds500 --data {folder}"
    raise UserError(f"{folder} holds no .mat files, no label images and no folders of label images{hint}")


def _labels(folder: Path) -> list[Path]:
    return [path for path in visible(folder) if path.suffix.lower() in LABEL_SUFFIXES]


def _list_rows(source: Path) -> Iterable[tuple[str, str]]:
    for columns in (list_columns(line) for line in read_list(source).splitlines() if line.strip()):
        if len(columns) < 2:
            raise UserError(
                f"{source} names images only ({columns[0]}); each line needs 'image label'; "
                "a folder of labels will do, too"
            )
        yield columns[0], columns[1]


def read_bsds(path: Path, force: bool = False) -> list[Mask]:
    """One mask per annotator of a BSDS .mat file."""
    variables = read_mat(path)
    found = variables.get("groundTruth")
    cells = found.ravel() if isinstance(found, np.ndarray) and found.dtype == object else [found]
    masks = [mask for cell in cells if (mask := _boundaries(cell, path)) is not None]
    if len(masks) < len(cells):
        raise UserError(f"{path} is not BSDS truth: expected groundTruth{{k}}.Boundaries, found {describe(variables)}")
    if len({mask.shape for mask in masks}) != 1:
        sizes = " and ".join(sorted({"x".join(map(str, mask.shape[::-1])) for mask in masks})) or "no"
        raise UserError(f"{path} has {sizes} masks; BSDS truth has at least one annotator, and one size for all")
    _check_inverted(path, masks, force)
    return masks


def _boundaries(cell: Any, path: Path) -> Mask | None:
    """The mask in the struct that a cell of groundTruth holds."""
    if not isinstance(cell, np.ndarray) or cell.size != 1 or "Boundaries" not in (cell.dtype.names or ()):
        return None
    mask = cell["Boundaries"].item()
    if not isinstance(mask, np.ndarray) or mask.ndim != 2 or mask.dtype.kind not in "biuf":
        return None
    return np.ascontiguousarray(to_mask(mask, str(path)))


def read_label(path: Path, force: bool = False) -> Mask:
    """The mask of a label image: where at least half the annotators saw an edge."""
    mask: Mask = read_shares(path, force) >= 128
    return mask


def read_shares(path: Path, force: bool = False) -> NDArray[np.uint8]:
    """A label image as shares of 255: channel 0; floats lie in 0 to 1, of 16 bits the upper 8 count, a mask of
    whole 0 and 1 is 0 and 255. Transparency says nothing."""
    label = read_stored(path)
    if label.ndim == 3:
        _check_photograph(path, label)
        label = label[..., 0]
    shares = _shares(path, label)
    _check_inverted(path, [shares >= 128], force)
    return shares


def _shares(path: Path, label: NDArray[Any]) -> NDArray[np.uint8]:
    low, high = label.min(initial=0), label.max(initial=0)
    if label.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # also catches NaN
            raise UserError(f"{path} has values from {low:.4g} to {high:.4g}; floats in a label lie in 0 to 1")
        label = np.rint(label * 255).astype(np.uint8)
    elif label.dtype == bool or high <= 1:
        label = (label > 0).astype(np.uint8) * np.uint8(255)
    if label.dtype == np.uint8:
        return label
    if not 256 <= high <= 65535 or low < 0:
        raise UserError(f"{path} has {label.dtype} values up to {high}, of an unknown full scale; save it with 8 bits")
    return (label // 256).astype(np.uint8)


def _check_photograph(path: Path, label: NDArray[Any]) -> None:
    """Colors are no harm in a label, but most of it is black or at full strength, and little of a photograph is."""
    first, colors = label[..., 0], label[..., :3] if label.shape[2] >= 3 else label[..., :1]
    if first.size < TELLING:
        return
    full = label.max()
    if (colors != colors[..., :1]).any() and float(((first <= full / 32) | (first >= full * (31 / 32))).mean()) < 0.5:
        raise UserError(f"{path} looks like a color photograph; a label is black, and bright where boundaries are")


def _check_inverted(path: Path, masks: list[Mask], force: bool) -> None:
    if not force and masks[0].size >= TELLING and (share := float(np.mean(masks))) > 0.5:
        raise UserError(
            f"{path} looks inverted ({share:.0%} of it is boundary): a label is black, bright where boundaries are; "
            "invert it (`pixeldiff eval` takes it as it is with --force)"
        )
