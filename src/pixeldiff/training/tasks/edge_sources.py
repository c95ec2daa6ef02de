"""Images with edge labels: which files a recipe's sources name, and what a label means.

A label is uint8: the fraction of annotators who marked a pixel (255 = all), or, in a pseudo-label, the strength of the
edge in the map of a network. IGNORED is a value between "nobody" and any eta, which the loss skips.

A network that was trained with the paper's loss (`edges`) outputs q for a pixel that people mark with probability r,

    r = q alpha / (q alpha + (1 - q) beta)      alpha = balance (1 - beta)

and q follows from r. A blended label is the q of (r + 1) / 2 for an annotated edge, of r / 2 for an annotated
non-edge, and of r alone where annotators disagree (above 0, below eta).

Of an outline of objects (a mask of PASCAL VOC: 0 is background, 1, 2, ... an object each, RING the band around them)
the middle of the band is an edge, and the inside of an object is not. The background is IGNORED, since most things are
not objects of VOC's classes. Such a label is blended, too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from pixeldiff import image as images
from pixeldiff.data.edges import READERS, EdgeLabels, split_folders
from pixeldiff.data.lists import list_columns, list_images, read_json_list, read_list, visible
from pixeldiff.edgemap import thin
from pixeldiff.errors import InputError
from pixeldiff.inference.sizes import SMALLEST as SMALLEST_SEEN
from pixeldiff.inference.sizes import input_size

IGNORED = 1
ETA, BALANCE = 0.3, 1.1  # of BSDS500: the fraction of annotators that makes an edge, the paper's lambda
NEGATIVES = 0.98  # beta, of the pixels that count in BSDS500
MAX_SCALE = 100  # more is a mistake
RING = 255  # in a mask of objects
MAX_RING = 9  # pixels; what is wider is an area that nobody annotated


@dataclass(frozen=True)
class Pair:
    image: Path
    label: Path
    scale: float = 1.0  # both are resized by it (the third column of NYUD's lists)
    kind: str = "annotations"  # or "pseudo", "outlines", "blended"
    teacher: Path | None = None  # map of a network, blended with annotations or outlines

    @property
    def is_soft(self) -> bool:
        """Whether the label is the strength of an edge, not a fraction of annotators."""
        return self.kind != "annotations"


@dataclass(frozen=True)
class Source:
    """One table of `data.sources`. Its files are below data.root; absolute paths are allowed."""

    type: str  # a name in SOURCE_TYPES, or a data set of READERS
    split: str = ""  # of a data set
    file: str = ""  # list: .lst or .txt with "image label" or "image label scale" per line, or JSON of [image, label]
    images: str = ""  # folder of images
    labels: str = ""  # folder of labels with the names of the images; of outlines: VOC's masks
    maps: str = ""  # folder written by `pixeldiff data pseudo-label`; beside annotations, the two are blended
    teacher: str = ""  # weights, or a recipe, that make the maps (`training.needs`); empty if they exist
    fraction: float = 0.0  # of an epoch; 0 is every image once

    def __post_init__(self) -> None:
        if self.type not in SOURCE_TYPES and self.type not in READERS:
            known = ", ".join(dict.fromkeys([*SOURCE_TYPES, *READERS]))
            raise InputError(f"unknown type {self.type!r} of a data source; expected {known}")
        if not 0 <= self.fraction <= 1:
            raise InputError(f"fraction of a data source must be 0 to 1, got {self.fraction}")
        if self.teacher and not self.maps:
            raise InputError(f"a data source with teacher = {self.teacher!r} needs maps, the folder to write them into")
        if self.teacher and not (self.images or self.split):
            raise InputError("a data source with a teacher needs a split or a folder of images, not a list")
        required, _ = _source_type(self.type)
        filled = {key for key in ("split", "file", "images", "labels", "maps") if getattr(self, key)}
        if missing := [key for key in required if key not in filled]:
            raise InputError(f"missing key {missing[0]} of a data source of type {self.type}")
        if extra := sorted(filled - {*required, "maps"}):
            raise InputError(f"a data source of type {self.type} takes {', '.join(required)}, not {extra[0]}")


def list_pairs(root: Path, source: Source) -> list[Pair]:
    """List the pairs of a source, with all files checked to exist.

    Names in a list are relative to the root, or else to the folder of the list.
    """
    required, read = _source_type(source.type)
    root = root.absolute()  # so that joining it again changes nothing
    pairs = read(root, source)
    if not pairs:
        raise InputError(f"no images in the {source.type} source {' '.join(getattr(source, k) for k in required)}")
    if source.maps and "maps" not in required:
        return _blended_pairs(root, pairs, source.maps)
    return pairs


def _split_pairs(root: Path, source: Source) -> list[Pair]:
    images, labels = split_folders(root, source.split)
    if not (images.is_dir() and labels.is_dir()):
        raise InputError(f"{root} has no split {source.split!r}, images/{source.split} with groundTruth/{source.split}")
    return _checked([Pair(path, labels / f"{path.stem}.mat") for path in list_images(images)], (root,))


def _dataset_pairs(root: Path, source: Source) -> list[Pair]:
    """Read the split of a published data set, as `pixeldiff eval edges` does."""
    pairs = []
    for labels in READERS[source.type].read(root, source.split):
        if labels.image is None or len(labels.files) != 1:
            raise InputError(f"{labels.files[0]} has no image or several annotators; give a list of image and label")
        pairs.append(Pair(labels.image, labels.files[0], labels.scale))
    return pairs


def _list_pairs(root: Path, source: Source) -> list[Pair]:
    path = root / source.file
    if path.suffix == ".json":
        pairs = [Pair(Path(image), Path(label)) for image, label in read_json_list(path)]
    else:
        lines = enumerate(read_list(path).splitlines(), 1)
        pairs = [_list_pair(line, f"{path}, line {n}") for n, line in lines if line.strip()]
    return _checked(pairs, (root, path.parent))


def _folder_pairs(root: Path, source: Source) -> list[Pair]:
    labels = root / source.labels
    by_name = {path.stem: path for path in list_images(labels)}
    by_name |= {path.stem: path for path in visible(labels) if path.suffix == ".mat"}
    pairs = []
    for image in list_images(root / source.images):
        if image.stem not in by_name:
            raise InputError(f"{image} has no label; put {image.stem}.png into {labels}")
        pairs.append(Pair(image, by_name[image.stem]))
    return _checked(pairs, (root,))


def _pseudo_pairs(root: Path, source: Source) -> list[Pair]:
    """Pair maps with their images. Images without a map were not ready, corrupt, or are not meant."""
    _check_maps(root / source.maps, root / source.images)
    photos, maps = _by_name(root / source.images), _by_name(root / source.maps)
    return [Pair(_of(path, name, photos), path, kind="pseudo") for name, path in sorted(maps.items())]


def _outline_pairs(root: Path, source: Source) -> list[Pair]:
    """Pair masks with their images and maps. What has a mask and no map is omitted like what has no mask."""
    _check_maps(root / source.maps, root / source.images)
    photos, masks, maps = (_by_name(root / folder) for folder in (source.images, source.labels, source.maps))
    return [
        Pair(_of(path, name, photos), path, kind="outlines", teacher=maps[name])
        for name, path in sorted(masks.items())
        if name in maps or name not in photos
    ]


SOURCE_TYPES: dict[str, tuple[tuple[str, ...], Callable[[Path, Source], list[Pair]]]] = {
    "bsds500": (("split",), _split_pairs),
    "list": (("file",), _list_pairs),
    "folders": (("images", "labels"), _folder_pairs),
    "pseudo-labels": (("images", "maps"), _pseudo_pairs),
    "outlines": (("images", "labels", "maps"), _outline_pairs),
}  # keys that a source of this type needs, and its reader


def _source_type(name: str) -> tuple[tuple[str, ...], Callable[[Path, Source], list[Pair]]]:
    return SOURCE_TYPES.get(name, (("split",), _dataset_pairs))


def _of(label: Path, name: str, photos: dict[str, Path]) -> Path:
    """Return the image that a label belongs to."""
    if name not in photos:
        raise InputError(f"{label} is the label of no image in the folder of images; check the folders")
    return photos[name]


def _checked(pairs: list[Pair], folders: tuple[Path, ...]) -> list[Pair]:
    """Return the pairs with the place of each file, all checked to exist."""
    if jpeg := [pair.label for pair in pairs if pair.label.suffix.lower() in (".jpg", ".jpeg")]:
        raise InputError(f"{jpeg[0]} is a JPEG; the loss would skip its noise beside each edge, so save labels as PNG")
    return [Pair(_existing(pair.image, folders), _existing(pair.label, folders), pair.scale) for pair in pairs]


def _existing(path: Path, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if os.path.isfile(folder / path):  # Path.is_file raises if the name is too long for a file
            return folder / path
    raise InputError(f"no file {str(folders[0] / path)[:300]}; complete the data or remove it from the list")


def _blended_pairs(root: Path, pairs: list[Pair], folder: str) -> list[Pair]:
    """Add to each annotated pair the map with the name of its image."""
    count = Counter(pair.image.stem for pair in pairs)
    if twice := [pair.image for pair in pairs if count[pair.image.stem] > 1]:  # as in HED's folders of rotated images
        raise InputError(f"{twice[0]} is not the only image of its name; maps are found by names, so rename the images")
    _check_maps(root / folder, pairs[0].image.parent)
    maps = _by_name(root / folder)
    if missing := [pair.image for pair in pairs if pair.image.stem not in maps]:
        raise InputError(f"{missing[0]} has no map in {root / folder}; run the same pseudo-label command again")
    return [replace(pair, kind="blended", teacher=maps[pair.image.stem]) for pair in pairs]


def _check_maps(maps: Path, images: Path) -> None:
    if not maps.is_dir():
        raise InputError(f"no folder {maps}; write it first: pixeldiff data pseudo-label {images} -o {maps}")


def _by_name(folder: Path) -> dict[str, Path]:
    """List all images below a folder by path without suffix, or with it if two would be equal."""
    if not folder.is_dir():
        raise InputError(f"no folder {folder}")

    def stop(error: OSError) -> None:
        raise InputError(f"cannot look into {error.filename} ({error.strerror}); check its permissions")

    files = (Path(place) / name for place, _, names in os.walk(folder, onerror=stop) for name in names)
    paths = sorted(p for p in files if p.suffix.lower() in images.SUFFIXES and not p.name.startswith("."))
    places = [path.relative_to(folder) for path in paths]
    count = Counter(place.with_suffix("") for place in places)
    names = [place if count[place.with_suffix("")] > 1 else place.with_suffix("") for place in places]
    return {name.as_posix(): path for name, path in zip(names, paths, strict=True)}


def _list_pair(line: str, where: str) -> Pair:
    columns = list_columns(line)
    try:
        scale = float(columns[2]) if len(columns) == 3 else 1.0
    except ValueError:
        scale = 0.0
    if len(columns) in (2, 3) and 0 < scale < MAX_SCALE:
        return Pair(Path(columns[0]), Path(columns[1]), scale)
    raise InputError(
        f'{where} is not "image label" or "image label scale": {line[:200]!r}; put tabs between them where names have '
        "spaces"
    )


def read_fractions(path: Path) -> NDArray[np.uint8]:
    """Read the fraction of annotators as uint8 (H, W): from a BSDS500 .mat file, or channel 0 of an image."""
    return np.array(EdgeLabels((path,)).fraction())


def read_pseudo_label(path: Path) -> NDArray[np.uint8]:
    """Read a map that `pixeldiff data pseudo-label` wrote; the faintest level becomes 0, for it is IGNORED."""
    stored = images.read_stored(path)
    if stored.dtype != np.uint8 or stored.ndim != 2:
        raise InputError(f"{path} is not a pseudo-label; expected 8-bit gray, as `pixeldiff data pseudo-label` writes")
    soft: NDArray[np.uint8] = np.where(stored == IGNORED, np.uint8(0), stored)
    return soft


def read_outlines(mask: Path) -> NDArray[np.uint8]:
    """Read a mask of objects as a label."""
    indices = images.read_indices(mask)
    if indices.dtype != np.uint8 or indices.ndim != 2 or not (indices == RING).any():
        raise InputError(
            f"{mask} is not a mask of objects; expected 0 for background, 1, 2, ... for objects, {RING} for their rings"
        )
    return outlines(indices)


def outlines(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Label the middle of the ring 255, the inside of objects 0, everything else IGNORED."""
    ring = mask == RING
    area = torch.from_numpy(ring)[None].float()
    for sign in (-1, 1):  # eroded, then dilated: what is left holds a square of this side
        area = sign * F.max_pool2d(sign * area, MAX_RING, stride=1, padding=MAX_RING // 2)
    label: NDArray[np.uint8] = np.where(ring | (mask == 0), np.uint8(IGNORED), np.uint8(0))
    label[thin(ring & (area[0].numpy() == 0))] = 255
    return label


def blended(annotations: NDArray[np.uint8], strengths: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Blend annotations with the map of a teacher; no level is IGNORED."""
    alpha, beta = BALANCE * (1 - NEGATIVES), NEGATIVES
    y, q = annotations / 255, strengths / 255
    r = q * alpha / (q * alpha + (1 - q) * beta)
    r = np.where((y > 0) & (y < ETA), r, (r + (y >= ETA)) / 2)
    levels = np.rint(255 * r * beta / (r * beta + (1 - r) * alpha)).astype(np.uint8)
    return np.where(levels == IGNORED, np.uint8(0), levels)


def read_label(pair: Pair) -> NDArray[np.uint8]:
    """Read the label of a pair, uint8 (H, W)."""
    if pair.kind == "pseudo":
        return read_pseudo_label(pair.label)
    annotations = read_outlines(pair.label) if pair.kind == "outlines" else read_fractions(pair.label)
    if pair.teacher is None:
        return annotations
    strengths = read_pseudo_label(pair.teacher)
    if annotations.shape != strengths.shape:
        raise InputError(
            f"{pair.label} and the map {pair.teacher} differ in size; write the maps of these images again"
        )
    return blended(annotations, strengths)


def read_pair(pair: Pair) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Read image and label of the same size. An image that the teacher downscaled is downscaled alike."""
    image, label = images.read8(pair.image), read_label(pair)
    shape = (label.shape[0], label.shape[1])
    if pair.kind == "pseudo" and shape == input_size((image.shape[0], image.shape[1]), max(*shape, SMALLEST_SEEN)):
        image = np.array(images.reduce(image, shape))
    if image.shape[:2] != shape:
        raise InputError(
            f"{pair.image} is {image.shape[1]}x{image.shape[0]} but its label {pair.label} is "
            f"{shape[1]}x{shape[0]}; make them the same size"
        )
    return image, label
