"""Images with edge labels: which files a recipe's sources name, and what a label says.

A label is uint8: the share of annotators who marked a pixel (255 = all), or, of a soft one, the strength of the edge
that a network saw there. IGNORED is a value between "nobody" and any eta: the loss skips it.

A network that was trained with the paper's loss (`edges`) says q where it believes that people mark an edge with
probability r,

    r = q alpha / (q alpha + (1 - q) beta)      alpha = balance (1 - beta)

and q of r is as easily found. A blended label is the q of (r + 1) / 2 where people say edge, of r / 2 where they say
none, and of r alone where they disagree (above 0, below eta): people err, and a teacher's doubt says where.

Of an outline of objects (a mask of PASCAL VOC: 0 is background, 1, 2, ... an object each, RING the band around them)
the middle of the band is an edge, and inside an object is none. The background says nothing, since most things are no
object of VOC's. Such a label is blended, too.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from pixeldiff import image as images
from pixeldiff.data.edges import EdgeLabels, split_folders
from pixeldiff.data.lists import list_columns, list_images, read_json_list, read_list, visible
from pixeldiff.edgemap import thin
from pixeldiff.errors import InputError, UserError
from pixeldiff.inference.sizes import SMALLEST as SMALLEST_SEEN
from pixeldiff.inference.sizes import input_size

IGNORED = 1
ETA, BALANCE = 0.3, 1.1  # of BSDS500: the share of annotators that makes an edge, the paper's lambda
NEGATIVES = 0.98  # beta, of the pixels that count in BSDS500
LARGEST_SCALE = 100  # more is a slip
RING = 255  # in a mask of objects
WIDEST_RING = 9  # pixels; what is wider is an area that nobody judged


@dataclass(frozen=True)
class Pair:
    image: Path
    label: Path
    scale: float = 1.0  # both are resized by it (the third column of NYUD's lists)
    kind: str = "shares"  # of annotators; or "soft", "objects" or "blended"
    judged: Path | None = None  # beside a mask of objects, or to be blended with: the map of a network

    @property
    def by_people(self) -> bool:
        return self.kind in ("shares", "blended")

    @property
    def is_soft(self) -> bool:
        return self.kind != "shares"


def list_pairs(root: Path, source: str) -> list[Pair]:
    """The pairs that one entry of `data.sources` names, all files checked to be there.

    - "train": a split of a raw BSDS500, images/train/<id>.jpg with groundTruth/train/<id>.mat
    - "train_pair.lst": a list, one "image label" or "image label scale" per line, with tabs if names have spaces
    - "train_rgb.json": a JSON array of [image, label]
    - "photos:edges": two folders, a label has the name of its image whatever the suffix
    - "soft:photos:maps": two folders, the second written by `pixeldiff data pseudo-labels`; labels decide what is taken
    - "objects:photos:masks:maps": three folders, of images, VOC's masks of some of them, and maps as above
    - "blend:train:maps": any of the first four, and maps as above of all its images
    Names in a list are relative to the root; where they are not, to the list's own folder.
    """
    root = root.absolute()  # so that what already stands under the root stays where it is when `_found` joins it
    if source.startswith(("soft:", "objects:", "blend:")) and source.count(":") > 1:
        return _pairs_with_maps(root, *source.split(":"))
    if ":" in source:
        pairs = _folder_pairs(root, *source.split(":", 1))
    elif source.endswith((".lst", ".txt")):
        lines = enumerate(read_list(root / source).splitlines(), 1)
        pairs = [_list_pair(line, f"{root / source}, line {n}") for n, line in lines if line.strip()]
    elif source.endswith(".json"):
        pairs = [Pair(Path(image), Path(label)) for image, label in read_json_list(root / source)]
    elif all(folder.is_dir() for folder in split_folders(root, source)):
        images, labels = split_folders(root, source)
        pairs = [Pair(path, labels / f"{path.stem}.mat") for path in list_images(images)]
    else:
        raise UserError(
            f"{root} has no split {source!r} (images/{source} with groundTruth/{source}); a source may also be a "
            'list (.lst, .txt), a JSON list, "folder of images:folder of labels", "soft:images:maps", '
            '"objects:images:masks:maps" or "blend:source:maps"'
        )
    if not pairs:
        raise UserError(f"{source!r} in {root} holds no images")
    if jpeg := [pair.label for pair in pairs if pair.label.suffix.lower() in (".jpg", ".jpeg")]:
        raise UserError(f"{jpeg[0]} is a JPEG, whose noise beside each edge the loss would skip; save labels as PNG")
    folders = (root, (root / source).parent)
    return [Pair(_found(pair.image, folders), _found(pair.label, folders), pair.scale) for pair in pairs]


def _found(path: Path, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if os.path.isfile(folder / path):  # Path.is_file raises where the name is too long for a file
            return folder / path
    raise UserError(f"no file {str(folders[0] / path)[:300]}; complete the data or take it out of the list")


def _folder_pairs(root: Path, images: str, labels: str) -> list[Pair]:
    by_name = {path.stem: path for path in list_images(root / labels)}
    by_name |= {path.stem: path for path in visible(root / labels) if path.suffix == ".mat"}
    pairs = []
    for image in list_images(root / images):
        if image.stem not in by_name:
            raise UserError(f"{image} has no label; put {image.stem}.png into {root / labels}")
        pairs.append(Pair(image, by_name[image.stem]))
    return pairs


def _pairs_with_maps(root: Path, kind: str, *parts: str) -> list[Pair]:
    if kind == "blend":  # a source may have colons of its own
        return _blended_pairs(root, ":".join(parts[:-1]), parts[-1])
    return _new_pairs(root, kind, *parts)


def _new_pairs(root: Path, kind: str, images: str, *labels: str) -> list[Pair]:
    """Pairs that no person has labeled. Images without a label were not ready, damaged, or are not meant."""
    wanted = {"soft": 1, "objects": 2}[kind]
    if len(labels) != wanted:
        shape = {1: '"soft:PHOTOS:MAPS"', 2: '"objects:PHOTOS:MASKS:MAPS"'}[wanted]
        raise UserError(f"the source {':'.join((kind, images, *labels))!r} is none; write {shape}")
    _check_maps(root / labels[-1], root / images)
    photos, (first, *others) = _by_name(root / images), [_by_name(root / folder) for folder in labels]
    pairs = []
    for name, label in sorted(first.items()):
        if name not in photos:
            raise UserError(f"{label} is the label of no image in {root / images}; is that the right folder?")
        judged = [one[name] for one in others if name in one]
        if len(judged) == len(others):  # what has a mask and no map is left out like what has no label
            pairs.append(Pair(photos[name], label, kind=kind, judged=judged[0] if judged else None))
    if not pairs:
        raise UserError(f"no image in {root / images} has its label in {' and '.join(labels)}")
    return pairs


def _blended_pairs(root: Path, people: str, folder: str) -> list[Pair]:
    """Pairs of another source, each with the map of a network that has its image's name."""
    pairs = list_pairs(root, people)
    if other := [pair for pair in pairs if pair.kind != "shares"]:
        raise UserError(f"blend: takes what people have labeled, and {other[0].label} is {other[0].kind}")
    count = Counter(pair.image.stem for pair in pairs)
    if twice := [pair.image for pair in pairs if count[pair.image.stem] > 1]:  # as in HED's folders of turned images
        raise UserError(f"{twice[0]} is not the only image of its name; blend: finds maps by names, so give others")
    _check_maps(root / folder, pairs[0].image.parent)
    maps = _by_name(root / folder)
    if missing := [pair.image for pair in pairs if pair.image.stem not in maps]:
        raise UserError(f"{missing[0]} has no map in {root / folder}; give the same pseudo-labels command again")
    return [replace(pair, kind="blended", judged=maps[pair.image.stem]) for pair in pairs]


def _check_maps(maps: Path, images: Path) -> None:
    if not maps.is_dir():
        raise UserError(f"no folder {maps}; write it first: pixeldiff data pseudo-labels {images} {maps}")


def _by_name(folder: Path) -> dict[str, Path]:
    """All images below a folder by their place without the suffix, and with it where two would be one."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")

    def refuse(error: OSError) -> None:
        raise InputError(f"cannot look into {error.filename} ({error.strerror}); check its permissions")

    files = (Path(place) / name for place, _, names in os.walk(folder, onerror=refuse) for name in names)
    found = sorted(path for path in files if path.suffix.lower() in images.SUFFIXES)
    shown = [path for path in found if not path.name.startswith(".")]
    places = [path.relative_to(folder) for path in shown]
    count = Counter(place.with_suffix("") for place in places)
    names = [place if count[place.with_suffix("")] > 1 else place.with_suffix("") for place in places]
    return {name.as_posix(): path for name, path in zip(names, shown, strict=True)}


def _list_pair(line: str, where: str) -> Pair:
    columns = list_columns(line)
    try:
        scale = float(columns[2]) if len(columns) == 3 else 1.0
    except ValueError:
        scale = 0.0
    if len(columns) in (2, 3) and 0 < scale < LARGEST_SCALE:
        return Pair(Path(columns[0]), Path(columns[1]), scale)
    raise UserError(
        f'{where} is not "image label" or "image label scale": {line[:200]!r}; put tabs between them where names have '
        "spaces"
    )


def read_label_shares(path: Path) -> NDArray[np.uint8]:
    """The share of annotators as uint8 (H, W): from a BSDS500 .mat file, or channel 0 of an image."""
    return np.array(EdgeLabels((path,)).fraction())


def read_soft(path: Path) -> NDArray[np.uint8]:
    """A map that `pixeldiff data pseudo-labels` wrote; the faintest level gives way to IGNORED."""
    stored = images.read_stored(path)
    if stored.dtype != np.uint8 or stored.ndim != 2:
        raise UserError(f"{path} is no pseudo-label; `pixeldiff data pseudo-labels` writes them, gray and of 8 bits")
    soft: NDArray[np.uint8] = np.where(stored == IGNORED, np.uint8(0), stored)
    return soft


def read_outlines(mask: Path) -> NDArray[np.uint8]:
    """What a mask of objects says about edges, as shares of people who would mark them."""
    indices = images.read_indices(mask)
    if indices.dtype != np.uint8 or indices.ndim != 2 or not (indices == RING).any():
        raise UserError(f"{mask} is no mask of objects: 0 background, 1, 2, ... objects, {RING} the ring around each")
    return outlines(indices)


def outlines(mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """255 on the middle of the ring, 0 inside objects, IGNORED elsewhere."""
    ring = mask == RING
    area = torch.from_numpy(ring)[None].float()
    for sign in (-1, 1):  # eroded, then dilated: what is left holds a square of this side
        area = sign * F.max_pool2d(sign * area, WIDEST_RING, stride=1, padding=WIDEST_RING // 2)
    label: NDArray[np.uint8] = np.where(ring | (mask == 0), np.uint8(IGNORED), np.uint8(0))
    label[thin(ring & (area[0].numpy() == 0))] = 255
    return label


def blended(shares: NDArray[np.uint8], strengths: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The pseudo-label between people's and a teacher's, in levels, none of them IGNORED."""
    alpha, beta = BALANCE * (1 - NEGATIVES), NEGATIVES
    y, q = shares / 255, strengths / 255
    r = q * alpha / (q * alpha + (1 - q) * beta)
    r = np.where((y > 0) & (y < ETA), r, (r + (y >= ETA)) / 2)
    levels = np.rint(255 * r * beta / (r * beta + (1 - r) * alpha)).astype(np.uint8)
    return np.where(levels == IGNORED, np.uint8(0), levels)


def read_label(pair: Pair) -> NDArray[np.uint8]:
    """The label of a pair, uint8 (H, W)."""
    if pair.kind == "soft":
        return read_soft(pair.label)
    shares = read_outlines(pair.label) if pair.kind == "objects" else read_label_shares(pair.label)
    if pair.judged is None:
        return shares
    strengths = read_soft(pair.judged)
    if shares.shape != strengths.shape:
        raise UserError(f"{pair.label} and the map {pair.judged} are not of one size; label the images it belongs to")
    return blended(shares, strengths)


def read_pair(pair: Pair) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Image and label, checked to be of one size; an image that a network saw reduced is reduced so again."""
    image, label = images.read8(pair.image), read_label(pair)
    shape = (label.shape[0], label.shape[1])
    if pair.kind == "soft" and shape == input_size((image.shape[0], image.shape[1]), max(*shape, SMALLEST_SEEN)):
        image = np.array(images.reduce(image, shape))
    if image.shape[:2] != shape:
        raise UserError(
            f"{pair.image} is {image.shape[1]}x{image.shape[0]} but its label {pair.label} is "
            f"{shape[1]}x{shape[0]}; make them the same size"
        )
    return image, label
