"""Edge labels in every layout, for training and for scoring, and the data sets whose layout is known.

    labels = find_labels(Path("groundTruth/test"))       # image name -> EdgeLabels
    labels = by_name(read_dataset("bsds500", root, "test"))
    labels["100007"].masks()                             # scoring: a mask per annotator
    labels["100007"].fraction()                          # training: uint8, 255 where all annotators marked an edge

A gray value in a label image is the fraction of annotators who marked the pixel (255: all); channel 0 counts. For
scoring such an image is one annotator, who marked what at least half of them did. Layouts:

- a folder of BSDS .mat files: groundTruth{k}.Boundaries, one annotator per k;
- a folder of label images: one annotator;
- a folder of folders of label images: one folder per annotator;
- a list (.lst, .txt) of lines "image label" or "image label scale", with tabs between the columns if names have spaces;
- a JSON array of [image, label] pairs, as BIPED, BRIND and UDED come;
- one .mat file or label image.

What cannot be a label (a color photograph, more edge than not) is an error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
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
from pixeldiff.errors import InputError
from pixeldiff.image import read_stored

Mask = NDArray[np.bool_]
LABEL_SUFFIXES = (".png", ".bmp", ".tif", ".tiff", ".jpg", ".jpeg")
LARGEST_SCALE = 100  # of a list's third column; more is a mistake
_MIN_PIXELS = 32 * 32  # in smaller labels nothing is concluded from how much is marked


@dataclass(frozen=True)
class EdgeLabels:
    """The labels of one image: one .mat file, or one label image per annotator."""

    files: tuple[Path, ...]
    image: Path | None = None  # if the layout names it
    scale: float = 1.0  # training resizes image and label by it (NYUD's lists)
    allow_inverted: bool = False

    def masks(self) -> list[Mask]:
        """Read one mask per annotator."""
        if _is_mat(self.files[0]):
            return read_bsds(self.files[0], self.allow_inverted)
        return [read_mask(path, self.allow_inverted) for path in self.files]

    def fraction(self) -> NDArray[np.uint8]:
        """Read the fraction of annotators who marked each pixel; 255 is all of them."""
        if _is_mat(self.files[0]):
            result: NDArray[np.uint8] = np.rint(np.mean(self.masks(), axis=0) * 255).astype(np.uint8)
            return result
        fractions = [read_fraction(path, self.allow_inverted) for path in self.files]
        if len({one.shape for one in fractions}) != 1:
            raise InputError(f"{self.files[0]} and the other annotators' labels differ in size")
        return fractions[0] if len(fractions) == 1 else np.rint(np.mean(fractions, axis=0)).astype(np.uint8)

    def digest(self) -> str:
        """Return a hash that changes with the masks."""
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in self.files)).hexdigest()
        return f"inverted allowed {digest}" if self.allow_inverted else digest


# --- layouts --------------------------------------------------------------------------------------------------------


def find_labels(source: Path) -> dict[str, EdgeLabels]:
    """Find the labels in a folder, a list or a file, by the image's name without its suffix."""
    if source.is_dir():
        return _in_folder(source)
    if not os.path.exists(source):
        raise InputError(
            f"no ground truth {str(source)[:300]}; expected a folder of .mat or label images, a list of 'image label' "
            "lines, or a JSON list"
        )
    if source.suffix.lower() in (".mat", *LABEL_SUFFIXES):
        return {source.stem: EdgeLabels((source,))}
    labels = by_name(read_pairs(source), str(source))
    check_files_exist(source, [file for one in labels.values() for file in one.files])
    return labels


def pair_folders(images: Path, labels: Path) -> dict[str, EdgeLabels]:
    """Pair the images in a folder with the labels of the same names in another one."""
    paths = list_images(images)
    by_image = by_name([EdgeLabels((), path) for path in paths], str(images))
    in_folder = _in_folder(labels) if labels.is_dir() else find_labels(labels)
    if unpaired := sorted(by_image.keys() ^ in_folder.keys()):
        raise InputError(f"{len(unpaired)} names have only an image or only a label: {shortened(unpaired)}")
    return {name: replace(one, files=in_folder[name].files) for name, one in by_image.items()}


def by_name(labels: Iterable[EdgeLabels], source: str = "the data set") -> dict[str, EdgeLabels]:
    """Index labels by the name of their image, which scores need to be unique."""
    result: dict[str, EdgeLabels] = {}
    for one in labels:
        name = (one.image or one.files[0]).stem
        if name in result:
            raise InputError(f"{source} names two images {name}; scores need one image per name")
        result[name] = one
    return result


def read_pairs(source: Path, folders: Sequence[Path] = ()) -> list[EdgeLabels]:
    """Read a list or JSON list of images with their labels.

    Relative names are looked for in `folders` and then in the list's folder.
    """
    rows = [(*row, 1.0) for row in read_json_list(source)] if source.suffix == ".json" else _list_rows(source)
    places = [*folders, source.parent]
    return [EdgeLabels((_locate(label, places),), _locate(image, places), scale) for image, label, scale in rows]


def _locate(name: str, folders: Sequence[Path]) -> Path:
    """Return the first existing file of that name, or where it should be."""
    paths = [folder / name for folder in folders]
    return next((path for path in paths if os.path.isfile(path)), paths[-1])


def _list_rows(source: Path) -> list[tuple[str, str, float]]:
    lines = enumerate(read_list(source).splitlines(), 1)
    return [_list_row(line, f"{source}, line {number}") for number, line in lines if line.strip()]


def _list_row(line: str, where: str) -> tuple[str, str, float]:
    columns = list_columns(line)
    if len(columns) == 1:
        raise InputError(f"{where} names only an image; expected 'image label' (a folder of labels also works)")
    try:
        scale = float(columns[2]) if len(columns) == 3 else 1.0
    except ValueError:
        scale = 0.0
    if len(columns) in (2, 3) and 0 < scale < LARGEST_SCALE:
        return columns[0], columns[1], scale
    raise InputError(
        f"{where} is not 'image label' or 'image label scale': {line[:200]!r}; put tabs between the columns if names "
        "have spaces"
    )


def _in_folder(folder: Path) -> dict[str, EdgeLabels]:
    if mats := [path for path in visible(folder) if _is_mat(path)]:
        return {path.stem: EdgeLabels((path,)) for path in mats}
    if labels := _label_images(folder):
        return {path.stem: EdgeLabels((path,)) for path in labels}
    annotators: dict[str, list[Path]] = {}
    for annotator in (path for path in visible(folder) if path.is_dir()):
        for path in _label_images(annotator):
            annotators.setdefault(path.stem, []).append(path)
    if annotators:
        return {name: EdgeLabels(tuple(annotators[name])) for name in sorted(annotators)}
    hint = ""
    if (folder / "groundTruth").is_dir():
        hint = f"; it looks like BSDS500: use --dataset bsds500 --data-dir {folder}"
    raise InputError(f"{folder} has no .mat files, no label images and no folders of label images{hint}")


def _label_images(folder: Path) -> list[Path]:
    return [path for path in visible(folder) if path.suffix.lower() in LABEL_SUFFIXES]


def _is_mat(path: Path) -> bool:
    return path.suffix.lower() == ".mat"


# --- data sets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EdgeDataset:
    """A published data set: how its folder is read, and how its papers score it."""

    read: Callable[[Path, str], list[EdgeLabels]]  # (folder, split) -> labels with their images
    folder: str  # its usual name, as looked for under PIXELDIFF_DATA
    origin: str  # where to get it
    splits: tuple[str, ...] = ("train", "test")
    max_dist: float = 0.0075  # tolerance, as a fraction of the image diagonal
    human: tuple[float, float] | None = None  # recall and precision of each annotator against the others


def split_folders(root: Path, split: str) -> tuple[Path, Path]:
    """Return the folders of a split of BSDS500: its images and its labels."""
    return root / "images" / split, root / "groundTruth" / split


def read_split(root: Path, split: str) -> list[EdgeLabels]:
    """Read the layout of BSDS500: images/<split>/<name>.jpg with groundTruth/<split>/<name>.mat.

    The images need not exist, so that maps can be scored without them.
    """
    images, folder = split_folders(root, split)
    if not folder.is_dir():
        raise InputError(f"{root} has no images/{split} with groundTruth/{split}")
    paths = {path.stem: path for path in list_images(images)} if images.is_dir() else {}
    return [
        replace(one, image=paths.get(name, images / f"{name}.jpg")) for name, one in sorted(_in_folder(folder).items())
    ]


def _read_lists(*names: str) -> Callable[[Path, str], list[EdgeLabels]]:
    """Return a reader of lists with these names, which fill in {split}; without one, it reads the layout of BSDS500."""

    def read(root: Path, split: str) -> list[EdgeLabels]:
        for name in names:
            path = root / name.format(split=split)
            if os.path.isfile(path):
                return read_pairs(path, [root])
        return read_split(root, split)

    return read


_AS_LISTS = "with its lists of 'image label' lines, or as images/<split> and groundTruth/<split>"
READERS: dict[str, EdgeDataset] = {
    "bsds500": EdgeDataset(
        read_split,
        "BSDS500",
        "BSDS500, https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds",
        splits=("train", "val", "test"),
        human=(0.7240, 0.9014),
    ),
    "nyud": EdgeDataset(
        _read_lists("image-{split}_da.lst", "image-{split}.lst"),
        "NYUD",
        f"NYUD-v2, https://cs.nyu.edu/~silberman/datasets/nyu_depth_v2.html, {_AS_LISTS}",
        max_dist=0.011,
    ),
    "multicue": EdgeDataset(
        _read_lists("{split}.lst", "{split}_pair.lst"),
        "multicue",
        f"Multicue, https://serre-lab.clps.brown.edu/resource/multicue, {_AS_LISTS}",
        splits=("train_pair_edge_set_1", "test_pair_edge_set_1", "train", "test"),
    ),
    "biped": EdgeDataset(
        _read_lists("{split}_rgb.json", "{split}.json", "{split}_pair.lst"),
        "BIPED",
        f"BIPED, https://github.com/xavysp/MBIPED, with its JSON lists, or {_AS_LISTS}",
    ),
}


def read_dataset(name: str, root: Path, split: str) -> list[EdgeLabels]:
    """Read a split of a data set in READERS."""
    dataset = READERS[name]
    try:
        labels = dataset.read(root, split)
    except InputError as error:
        known = "" if split in dataset.splits else f" (its splits are {', '.join(dataset.splits)})"
        raise InputError(f"cannot read split {split!r} of {name}{known}: {error}; get it: {dataset.origin}") from error
    if not labels:
        raise InputError(f"split {split!r} of {name} in {root} names no images; get it again: {dataset.origin}")
    check_files_exist(root, [file for one in labels for file in one.files])
    return labels


# --- files ----------------------------------------------------------------------------------------------------------


def read_bsds(path: Path, allow_inverted: bool = False) -> list[Mask]:
    """Read one mask per annotator of a BSDS .mat file."""
    variables = read_mat(path)
    value = variables.get("groundTruth")
    cells = value.ravel() if isinstance(value, np.ndarray) and value.dtype == object else [value]
    masks = [mask for cell in cells if (mask := _boundaries(cell, path)) is not None]
    if len(masks) < len(cells):
        raise InputError(f"{path} is not a BSDS label: expected groundTruth{{k}}.Boundaries, got {describe(variables)}")
    if len({mask.shape for mask in masks}) != 1:
        sizes = " and ".join(sorted({"x".join(map(str, mask.shape[::-1])) for mask in masks})) or "no"
        raise InputError(f"{path} has {sizes} masks; expected at least one annotator and one size for all")
    _check_inverted(path, masks, allow_inverted)
    return masks


def _boundaries(cell: Any, path: Path) -> Mask | None:
    """Return the mask in the struct that a cell of groundTruth holds."""
    if not isinstance(cell, np.ndarray) or cell.size != 1 or "Boundaries" not in (cell.dtype.names or ()):
        return None
    mask = cell["Boundaries"].item()
    if not isinstance(mask, np.ndarray) or mask.ndim != 2 or mask.dtype.kind not in "biuf":
        return None
    return np.ascontiguousarray(to_mask(mask, str(path)))


def read_mask(path: Path, allow_inverted: bool = False) -> Mask:
    """Read the mask of a label image: where at least half of the annotators marked an edge."""
    mask: Mask = read_fraction(path, allow_inverted) >= 128
    return mask


def read_fraction(path: Path, allow_inverted: bool = False) -> NDArray[np.uint8]:
    """Read a label image as fractions of annotators, 255 for all.

    Floats lie in [0, 1]; of 16 bits the upper 8 count; a mask of 0 and 1 becomes 0 and 255. Alpha is ignored.
    """
    label = read_stored(path)
    if label.ndim == 3:
        _check_photo(path, label)
        label = label[..., 0]
    fraction = _to_fraction(path, label)
    _check_inverted(path, [fraction >= 128], allow_inverted)
    return fraction


def _to_fraction(path: Path, label: NDArray[Any]) -> NDArray[np.uint8]:
    low, high = label.min(initial=0), label.max(initial=0)
    if label.dtype.kind == "f":
        if not (low >= 0 and high <= 1):  # also catches NaN
            raise InputError(f"{path} has values from {low:.4g} to {high:.4g}; floats in a label lie in [0, 1]")
        label = np.rint(label * 255).astype(np.uint8)
    elif label.dtype == bool or high <= 1:
        label = (label > 0).astype(np.uint8) * np.uint8(255)
    if label.dtype == np.uint8:
        return label
    if not 256 <= high <= 65535 or low < 0:
        raise InputError(f"{path} has {label.dtype} values up to {high}, of an unknown full scale; save it with 8 bits")
    return (label // 256).astype(np.uint8)


def _check_photo(path: Path, label: NDArray[Any]) -> None:
    """Raise an error for a color photo: most of a label is black or at full strength, and little of a photo is."""
    first, colors = label[..., 0], label[..., :3] if label.shape[2] >= 3 else label[..., :1]
    if first.size < _MIN_PIXELS:
        return
    full = label.max()
    if (colors != colors[..., :1]).any() and float(((first <= full / 32) | (first >= full * (31 / 32))).mean()) < 0.5:
        raise InputError(f"{path} looks like a color photo; a label is black, and bright at edges")


def _check_inverted(path: Path, masks: list[Mask], allow_inverted: bool) -> None:
    if not allow_inverted and masks[0].size >= _MIN_PIXELS and (marked := float(np.mean(masks))) > 0.5:
        raise InputError(
            f"{path} looks inverted ({marked:.0%} of it is edge): a label is black, and bright at edges; invert it, "
            "or score it as it is with --allow-inverted"
        )
