"""Faces on disk: a folder per person for training, and the published lists of pairs for scoring.

    people    <root>/<person>/**/*.jpg, as CASIA-WebFace, CFP and IMFDB are
    lfw       pairs.txt, and <name>/<name>_0001.jpg in any copy (originals, deep-funneled, crops)
    cfp-ff    Pair_list_F.txt, Pair_list_P.txt and Split/FF/<fold>/{same,diff}.txt, here or in Protocol/; images
    cfp-fp    <person>/{frontal,profile}/NN.jpg, here or in Data/Images/; FP compares frontal with profile
    ytf       splits.txt, and a folder of frames per video, <name>/<number>/, here or in aligned_images_DB/
    calfw     pairs_CALFW.txt, pairs_CPLFW.txt: two lines a pair, "file label"; images here, in images/ or in
    cplfw     "aligned images"/
    pairs     pairs.txt in LFW's manner, or lines "image image 1" (one person) and "... 0" (two)

An image may have any suffix, whatever the list says, since copies are often converted.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import find_root, list_columns, list_images, read_list, shortened, visible
from pixeldiff.errors import InputError
from pixeldiff.image import SUFFIXES

FOLDS = 10
ORIGINS = {
    "lfw": "LFW with its pairs.txt, http://vis-www.cs.umass.edu/lfw",
    "cfp-ff": "CFP, Celebrities in Frontal-Profile, http://www.cfpw.io",
    "cfp-fp": "CFP, Celebrities in Frontal-Profile, http://www.cfpw.io",
    "ytf": "YouTube Faces with its splits.txt, https://www.cs.tau.ac.il/~wolf/ytfaces",
    "calfw": "CALFW, http://whdeng.cn/CALFW",
    "cplfw": "CPLFW, http://whdeng.cn/CPLFW",
    "pairs": "a folder of your images with a pairs.txt",
}
_VIDEO_FOLDERS = ("aligned_images_DB", "frame_images_DB")

Item = tuple[Path, ...]  # one image, or the frames of a video


@dataclass(frozen=True)
class People:
    """Images to train on, each with the number of its person."""

    files: tuple[Path, ...]
    labels: NDArray[np.int64]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Pairs:
    """Pairs to score: indices of two items, whether they show one person, and the fold, counted from 1."""

    items: tuple[Item, ...]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    same: NDArray[np.bool_]
    folds: NDArray[np.int64]

    def only(self, folds: Sequence[int]) -> Pairs:
        """Return the pairs of some folds."""
        chosen = np.isin(self.folds, folds)
        if not chosen.any():
            raise InputError(f"no fold {', '.join(map(str, folds))}; expected {_numbers(self.folds)}")
        return self.take(np.flatnonzero(chosen))

    def take(self, rows: NDArray[np.int64]) -> Pairs:
        """Return some of the pairs, with the items that occur in them."""
        used, places = np.unique(np.stack([self.left[rows], self.right[rows]]), return_inverse=True)
        left, right = places.reshape(2, -1)
        return Pairs(tuple(self.items[i] for i in used), left, right, self.same[rows], self.folds[rows])

    def present(self) -> Pairs:
        """Return the pairs whose items both exist."""
        exists = np.array([bool(item) for item in self.items])
        return self.take(np.flatnonzero(exists[self.left] & exists[self.right]))


def _numbers(folds: NDArray[np.int64]) -> str:
    return ", ".join(map(str, np.unique(folds)))


# --- people ---------------------------------------------------------------------------------------------------------


def find_people(roots: Sequence[str | Path], leave_out: Iterable[str] = ()) -> People:
    """Find everybody who has a folder in one of the roots, except those in `leave_out`.

    `leave_out` holds names, patterns ("4[1-9]?") and files with a name per line (they end in .txt).
    """
    patterns = [name for entry in leave_out for name in _left_out(entry)]
    folders = [
        (folder, f"{root.name}/{folder.name}")
        for root in (find_root(root, "a folder of images per person, aligned: pixeldiff faces align") for root in roots)
        for folder in visible(root)
        if folder.is_dir() and not any(fnmatch.fnmatchcase(folder.name, pattern) for pattern in patterns)
    ]
    people = [(name, images) for folder, name in folders if (images := _images_below(folder))]
    if len(people) < 2:
        folders_named = " and ".join(map(str, roots))
        raise InputError(f"{folders_named} has images of {len(people)} people; training needs two, a folder each")
    labels = [label for label, (_, images) in enumerate(people) for _ in images]
    files = tuple(file for _, images in people for file in images)
    return People(files, np.array(labels, np.int64), tuple(name for name, _ in people))


def _left_out(entry: str) -> list[str]:
    if not entry.endswith(".txt"):
        return [entry]
    return [line.strip() for line in read_list(Path(entry)).splitlines() if line.strip()]


def _images_below(folder: Path) -> list[Path]:
    """List the images of a person, also in inner folders (CFP's frontal and profile)."""
    below = [image for inner in visible(folder) if inner.is_dir() for image in _images_below(inner)]
    return [*list_images(folder), *below]


# --- pairs ----------------------------------------------------------------------------------------------------------


class _Collector:
    """Pairs as they are read. An item gets a number when it is first named; missing files are reported at the end."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.numbers: dict[Path, int] = {}
        self.items: list[Item] = []
        self.rows: list[tuple[int, int, bool, int]] = []
        self.missing: list[str] = []

    def add(self, left: Path, right: Path, same: bool, fold: int, find: Callable[[Path], Item]) -> None:
        self.rows.append((self._number(left, find), self._number(right, find), same, fold))

    def _number(self, path: Path, find: Callable[[Path], Item]) -> int:
        if path not in self.numbers:
            self.numbers[path] = len(self.items)
            self.items.append(find(path))
            if not self.items[-1]:
                self.missing.append(str(path))
        return self.numbers[path]

    def pairs(self, origin: str) -> Pairs:
        if not self.rows:
            raise InputError(f"{self.source} lists no pairs; get it again: {origin}")
        left, right, same, folds = (np.array(column) for column in zip(*self.rows, strict=True))
        if same.all() or not same.any():
            raise InputError(
                f"{self.source} has pairs of {'one person' if same.all() else 'two people'} only; both count"
            )
        return Pairs(tuple(self.items), left, right, same, folds)


def read_pairs(dataset: str, data: str | Path, lists: str | Path | None = None, *, incomplete: bool = False) -> Pairs:
    """Read the pairs of a data set in the folder `data`; its lists are in that folder or in `lists`.

    A missing image is an error, or, if `incomplete` is true, an item without files.
    """
    origin = ORIGINS[dataset]
    root = find_root(data, origin)
    collector = READERS[dataset](root, root if lists is None else find_root(lists, origin), dataset)
    pairs = collector.pairs(origin)
    if collector.missing and (not incomplete or len(collector.missing) == len(collector.items)):
        raise InputError(
            f"{collector.source} names {len(collector.missing)} images that do not exist: "
            f"{shortened(collector.missing, 3)}; get them: {origin}"
        )
    return pairs


def _the_list(folder: Path, name: str, dataset: str) -> Path:
    """Find a list in the folder, in its Protocol folder, or beside it, as archives unpack."""
    for place in (folder, folder / "Protocol", folder.parent):
        if (place / name).is_file():
            return place / name
    raise InputError(
        f"no {name} in {folder}; it belongs to {ORIGINS[dataset]}; if it is elsewhere, give --lists FOLDER"
    )


def _image(path: Path) -> Item:
    """Find the image of that name with any suffix; empty if there is none."""
    for suffix in (path.suffix, *SUFFIXES):
        if os.path.isfile(file := path.with_suffix(suffix)):  # also of a name too long for a file
            return (file,)
    return ()


def _frames(path: Path) -> Item:
    return tuple(list_images(path)) if os.path.isdir(path) else ()


def _lines(path: Path) -> list[tuple[str, list[str]]]:
    """Return the lines of a list that are not empty: where each is, for messages, and its columns."""
    lines = enumerate(read_list(path).splitlines(), 1)
    return [(f"{path}, line {number}", list_columns(line)) for number, line in lines if line.strip()]


def _count(where: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(f"{where}: {text[:40]!r} is not a number")
    return int(text)


def _flag(where: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise InputError(f"{where}: a pair ends in 1 (one person) or 0 (two), not {text[:40]!r}")
    return text == "1"


def _lfw(root: Path, lists: Path, dataset: str) -> _Collector:
    source = _the_list(lists, "pairs.txt", dataset)
    (where, head), *rows = _lines(source) or [("", [])]
    if len(head) not in (1, 2):
        raise InputError(f"{source} does not begin with the number of folds and pairs, as in LFW's format")
    size = _count(where, head[-1])
    folds = _count(where, head[0]) if len(head) == 2 else 1
    if len(rows) != 2 * folds * size:
        raise InputError(f"{source} has {len(rows)} pairs, its first line says {2 * folds * size}; get it again")
    collector = _Collector(source)
    for k, (where, columns) in enumerate(rows):
        if len(columns) not in (3, 4):
            raise InputError(f"{where}: a pair is 'name number number' or 'name number name number'")
        first, second = columns[0], columns[-2] if len(columns) == 4 else columns[0]
        first_image, second_image = (
            root / name / f"{name}_{_count(where, number):04}.jpg"
            for name, number in ((first, columns[1]), (second, columns[-1]))
        )
        collector.add(first_image, second_image, len(columns) == 3, 1 + k // (2 * size), _image)
    return collector


def _cfp(root: Path, lists: Path, dataset: str) -> _Collector:
    kinds = dataset[-2:].upper()  # FF or FP
    images = root / "Data" / "Images" if (root / "Data" / "Images").is_dir() else root
    listed = {kind: _cfp_list(_the_list(lists, f"Pair_list_{kind}.txt", dataset), images) for kind in set(kinds)}
    split = _the_list(lists, f"Pair_list_{kinds[0]}.txt", dataset).parent / "Split" / kinds
    folders = [folder for folder in visible(split) if folder.is_dir()] if split.is_dir() else []
    collector = _Collector(split)
    for folder in folders:
        fold = _count(str(folder), folder.name)
        for name, same in (("same.txt", True), ("diff.txt", False)):
            for where, columns in _lines(folder / name):
                numbers = [_count(where, number) for number in "".join(columns).split(",")]
                if len(numbers) != 2 or not all(n in listed[kind] for n, kind in zip(numbers, kinds, strict=True)):
                    raise InputError(f"{where}: a pair is 'number,number' of Pair_list_{kinds[0]} and _{kinds[1]}.txt")
                first_image, second_image = (listed[kind][number] for number, kind in zip(numbers, kinds, strict=True))
                collector.add(first_image, second_image, same, fold, _image)
    return collector


def _cfp_list(source: Path, images: Path) -> dict[int, Path]:
    """Number -> image: the last three parts of the path, <person>/{frontal,profile}/NN.jpg."""
    rows = _lines(source)
    if wrong := next((where for where, columns in rows if len(columns) != 2), None):
        raise InputError(f"{wrong}: a line is 'number path'")
    return {_count(where, number): images.joinpath(*Path(path).parts[-3:]) for where, (number, path) in rows}


def _ytf(root: Path, lists: Path, dataset: str) -> _Collector:
    source = _the_list(lists, "splits.txt", dataset)
    videos = next((root / name for name in _VIDEO_FOLDERS if (root / name).is_dir()), root)
    collector = _Collector(source)
    for number, line in enumerate(read_list(source).splitlines(), 1):
        where, columns = f"{source}, line {number}", [column.strip() for column in line.split(",")]
        if not line.strip() or (number == 1 and not columns[0].isdigit()):
            continue  # the names of the columns
        if len(columns) != 5:
            raise InputError(f"{where}: a pair is 'split, first video, second video, svm label, is same'")
        first_image, second_image = (videos / name for name in columns[1:3])
        collector.add(first_image, second_image, _flag(where, columns[4]), _count(where, columns[0]), _frames)
    return collector


def _two_lines(root: Path, lists: Path, dataset: str) -> _Collector:
    source = _the_list(lists, f"pairs_{dataset.upper()}.txt", dataset)
    images = next((root / name for name in ("aligned images", "images") if (root / name).is_dir()), root)
    rows = _lines(source)
    if len(rows) % 2 or any(len(columns) != 2 for _, columns in rows):
        raise InputError(f"{source} does not have two lines 'image label' for each pair; get it again")
    names = [
        (where, first[0], second[0], first[1])
        for (where, first), (_, second) in zip(rows[::2], rows[1::2], strict=True)
    ]
    return _in_folds(source, images, names)


def _custom(root: Path, lists: Path, dataset: str) -> _Collector:
    source = _the_list(lists, "pairs.txt", dataset)
    rows = _lines(source)
    if rows and all(column.isdigit() for column in rows[0][1]):
        return _lfw(root, lists, dataset)
    if wrong := next((where for where, columns in rows if len(columns) != 3), None):
        raise InputError(f"{wrong}: a pair is 'image image 1' (one person) or 'image image 0' (two)")
    return _in_folds(source, root, [(where, *columns) for where, columns in rows])  # type: ignore[misc]


def _in_folds(source: Path, root: Path, rows: Sequence[tuple[str, str, str, str]]) -> _Collector:
    """Ten folds in the order of the list, each with a tenth of both kinds of pairs; fewer where there are few."""
    flags = [_flag(where, label) for where, _, _, label in rows]
    counts = {same: flags.count(same) for same in (True, False)}
    folds, counted, collector = max(1, min(FOLDS, *counts.values())), {True: 0, False: 0}, _Collector(source)
    for (_, first_image, second_image, _), same in zip(rows, flags, strict=True):
        collector.add(root / first_image, root / second_image, same, 1 + counted[same] * folds // counts[same], _image)
        counted[same] += 1
    return collector


READERS: dict[str, Callable[[Path, Path, str], _Collector]] = {
    "lfw": _lfw,
    "cfp-ff": _cfp,
    "cfp-fp": _cfp,
    "ytf": _ytf,
    "calfw": _two_lines,
    "cplfw": _two_lines,
    "pairs": _custom,
}
