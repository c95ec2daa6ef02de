"""Images with boxes around objects: PASCAL VOC as distributed, COCO JSON, YOLO's text files. No torch.

A box is left, top, right, bottom in pixels, the corners of the image being (0, 0) and (width, height). VOC counts
pixels from 1 and its right and bottom pixels still belong to the object, so its xmin, ymin lose one. A box without
area, outside its image or of an unknown class is an error that names its file. A box may reach beyond the border by up
to a pixel, since tools round, and is cut there.
"""

from __future__ import annotations

import json
import math
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import check_files_exist, list_images, read_list, shortened, visible
from pixeldiff.errors import InputError
from pixeldiff.image import SUFFIXES, stored_size

ORIGIN = "http://host.robots.ox.ac.uk/pascal/VOC (VOCdevkit), or your own images in the layout of VOC, COCO or YOLO"
CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
XML_BYTES = 2**20  # an annotation of VOC has some thousand
JSON_BYTES = 2**31
BEYOND = 1.0  # pixels


@dataclass(frozen=True)
class LabeledImage:
    """One image and its objects, if any."""

    image: Path
    boxes: NDArray[np.float32]  # N x 4
    labels: NDArray[np.int64]  # N, places in the names
    ignored: NDArray[np.bool_]  # N: VOC's difficult objects and COCO's crowds, which count neither way
    id: int | str = 0  # what COCO's results call the image


@dataclass(frozen=True)
class Objects:
    """Images with objects of named classes."""

    names: tuple[str, ...]
    images: tuple[LabeledImage, ...]


Box = tuple[float, float, float, float]
LabeledBox = tuple[Box, int, bool]  # box, label, ignored


def list_objects(root: Path, source: str, names: Sequence[str] = (), layout: str | None = None) -> Objects:
    """List the images of a source of a recipe, or of `--split`.

    - "VOC2012/trainval", or "trainval" of every year: ImageSets/Main/trainval.txt of a VOCdevkit or of one of its years
    - "train.json": a file of COCO's format; without the suffix, instances_train*.json or train/_annotations.coco.json
    - "train": YOLO's images/train with labels/train, or train/images with train/labels
    `names` are the classes if the data does not name them (VOC: its twenty by default). `layout` is voc, coco or yolo;
    by default all three are tried.
    """
    for read in _READERS.values() if layout is None else (_READERS[layout],):
        objects: Objects | None = read(root, source, tuple(names))
        if objects is not None:
            if not objects.images:
                raise InputError(f"{source!r} in {root} names no images")
            return objects
    raise InputError(
        f"{root} has no {source!r}: neither VOC's ImageSets/Main/{source}.txt, nor a COCO file {source}.json, nor "
        f"YOLO's images/{source}; get it: {ORIGIN}"
    )


def joined(parts: Sequence[Objects]) -> Objects:
    """Join several sets, such as VOC 2007 and 2012."""
    for part in parts[1:]:
        if part.names != parts[0].names:
            raise InputError(
                f"the sources have different classes: {shortened(list(parts[0].names))}; "
                f"and {shortened(list(part.names))}"
            )
    return Objects(parts[0].names, tuple(one for part in parts for one in part.images))


def check_same_names(objects: Objects, names: Sequence[str]) -> Objects:
    """Number the classes as a model with these labels does; raise an error for one that it does not know."""
    known = {name: place for place, name in enumerate(names)}
    used = sorted({int(label) for one in objects.images for label in one.labels})
    if unknown := [objects.names[label] for label in used if objects.names[label] not in known]:
        raise InputError(
            f"the images show {shortened(unknown)}, which the model does not know; it knows {shortened(list(names))}"
        )
    places = np.array([known.get(name, -1) for name in objects.names], np.int64)
    return Objects(tuple(names), tuple(replace(one, labels=places[one.labels]) for one in objects.images))


def _labeled(image: Path, boxes: Sequence[LabeledBox], id: int | str = 0) -> LabeledImage:
    return LabeledImage(
        image,
        np.array([box for box, _, _ in boxes], np.float32).reshape(-1, 4),
        np.array([label for _, label, _ in boxes], np.int64),
        np.array([ignored for _, _, ignored in boxes], np.bool_),
        id,
    )


def _checked(box: Box, size: tuple[float, float], where: str) -> Box:
    """Cut a box at the border of an image of (width, height)."""
    width, height = size
    left, top, right, bottom = box
    if not all(map(math.isfinite, box)) or right <= left or bottom <= top:
        raise InputError(
            f"{where} has a box of no area ({left:g}, {top:g}, {right:g}, {bottom:g}); remove or correct it"
        )
    if left < -BEYOND or top < -BEYOND or right > width + BEYOND or bottom > height + BEYOND:
        raise InputError(
            f"{where} has a box outside its image of {width:g}x{height:g} "
            f"({left:g}, {top:g}, {right:g}, {bottom:g}); correct it"
        )
    cut = max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)
    if cut[2] <= cut[0] or cut[3] <= cut[1]:
        raise InputError(f"{where} has a box outside its image of {width:g}x{height:g}; remove or correct it")
    return cut


# --- VOC ------------------------------------------------------------------------------------------------------------


def _voc(root: Path, source: str, names: tuple[str, ...]) -> Objects | None:
    year, _, split = source.rpartition("/")
    candidates = [root / year] if year else [root, *(f for f in visible(root) if f.is_dir())]
    lists = [(f, f / "ImageSets" / "Main" / f"{split}.txt") for f in candidates if (f / "ImageSets").is_dir()]
    lists = [(folder, path) for folder, path in lists if os.path.isfile(path)]
    if not lists:
        return None
    names = names or CLASSES
    images = []
    for folder, path in lists:
        ids = [line.split()[0] for line in read_list(path).splitlines() if line.strip()]
        annotations = [folder / "Annotations" / f"{id}.xml" for id in ids]
        check_files_exist(path, annotations)
        images += [read_xml(xml, folder / "JPEGImages", names) for xml in annotations]
        check_files_exist(path, (one.image for one in images[-len(ids) :]))
    return Objects(names, tuple(images))


def read_xml(path: Path, images: Path, names: tuple[str, ...]) -> LabeledImage:
    content = _content(path, XML_BYTES)
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise InputError(f"{path} defines entities, which no annotation needs; write it again")
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise InputError(f"{path} is not readable XML ({error}); write it again") from error
    if root.find("size") is None:
        raise InputError(f"{path} has no <size>; write width and height of its image into it")
    size = _number(root, "size/width", path), _number(root, "size/height", path)
    if not (0 < size[0] < 1e6 and 0 < size[1] < 1e6):
        raise InputError(f"{path} gives its image {size[0]:g}x{size[1]:g} pixels; correct its <size>")
    boxes = [_xml_object(node, size, path, names) for node in root.iter("object")]
    return _labeled(_image_of(root, path, images), boxes, path.stem)


def _image_of(root: ElementTree.Element, path: Path, images: Path) -> Path:
    name = Path(root.findtext("filename") or f"{path.stem}.jpg").name
    return images / name if (images / name).suffix.lower() in SUFFIXES else images / f"{path.stem}.jpg"


def _xml_object(node: ElementTree.Element, size: tuple[float, float], path: Path, names: tuple[str, ...]) -> LabeledBox:
    name = (node.findtext("name") or "").strip()
    if name not in names:
        raise InputError(
            f"{path} has an object of the unknown class {name[:60]!r}; the classes are {shortened(list(names), 20)} "
            "(others: data.classes of a recipe)"
        )
    left, top, right, bottom = (_number(node, f"bndbox/{side}", path) for side in ("xmin", "ymin", "xmax", "ymax"))
    box = _checked((left - 1, top - 1, right, bottom), size, f"{path}, {name},")
    return box, names.index(name), (node.findtext("difficult") or "0").strip() == "1"


def _number(node: ElementTree.Element, place: str, path: Path) -> float:
    text = node.findtext(place)
    try:
        return float(text or "")
    except ValueError as error:
        raise InputError(f"{path} has no number in <{place.replace('/', '><')}>; correct it") from error


def _content(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(f"{path} is not readable ({error.strerror}); check the name") from error
    if len(content) > max_bytes:
        raise InputError(f"{path} is larger than {max_bytes >> 20} MB, too large for an annotation")
    return content


# --- COCO -----------------------------------------------------------------------------------------------------------


def _coco(root: Path, source: str, names: tuple[str, ...]) -> Objects | None:
    path = _coco_file(root, source)
    if path is None:
        return None
    try:
        content = json.loads(_content(path, JSON_BYTES))
        categories = {one["id"]: str(one["name"]) for one in sorted(content["categories"], key=lambda one: one["id"])}
        images = {one["id"]: one for one in content["images"]}
        annotations = content["annotations"]
        by_image: dict[Any, list[Any]] = {id: [] for id in images}
        for one in annotations:
            if one["image_id"] not in by_image:
                raise InputError(
                    f"{path}: annotation {one.get('id')} is of image {one['image_id']}, which is not listed"
                )
            by_image[one["image_id"]].append(one)
        folders = dict.fromkeys(
            (
                path.parent,
                root,
                root / source,
                root / "images",
                root / "images" / source,
                *root.glob(f"{escape(source)}20*"),
            )
        )
        places = {category: place for place, category in enumerate(categories)}
        entries = [
            _labeled(
                _first(image["file_name"], folders),
                [_coco_object(one, image, places, path) for one in by_image[id]],
                id,
            )
            for id, image in images.items()
        ]
    except InputError:
        raise
    except (ValueError, OverflowError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} is not of COCO's format, with images, annotations and categories ({type(error).__name__}: {error})"
        ) from error
    check_files_exist(path, (one.image for one in entries))
    return Objects(tuple(categories.values()), tuple(entries))


def _coco_file(root: Path, source: str) -> Path | None:
    named = [root / source] if source.endswith(".json") else []
    stem = source.removesuffix(".json")
    places = (f"{stem}.json", f"{stem}/_annotations.coco.json", f"annotations/{stem}.json")
    others = [*(root / place for place in places), *sorted(root.glob(f"annotations/instances_{escape(stem)}*.json"))]
    return next((path for path in (*named, *others) if os.path.isfile(path)), None)


def _first(name: Any, folders: Iterable[Path]) -> Path:
    """Find the image of that name; return its path in the first folder if it does not exist."""
    places = [folder / str(name) for folder in folders]
    return next((place for place in places if os.path.isfile(place)), places[0])


def _coco_object(one: Any, image: Any, places: dict[Any, int], path: Path) -> LabeledBox:
    where = f"{path}: annotation {one.get('id')}"
    if one["category_id"] not in places:
        raise InputError(f"{where} has the unknown class {one['category_id']!r}; the classes are in `categories`")
    left, top, width, height = map(float, one["bbox"])
    size = float(image["width"]), float(image["height"])
    box = _checked((left, top, left + width, top + height), size, where)
    return box, places[one["category_id"]], bool(one.get("iscrowd", 0))


# --- YOLO -----------------------------------------------------------------------------------------------------------


def _yolo(root: Path, source: str, names: tuple[str, ...]) -> Objects | None:
    for images, labels in (("images/{}", "labels/{}"), ("{}/images", "{}/labels")):
        folder, texts = root / images.format(source), root / labels.format(source)
        if os.path.isdir(folder):
            names = _yolo_names(root, names)
            return Objects(names, tuple(read_yolo(p, texts / f"{p.stem}.txt", names) for p in list_images(folder)))
    return None


def _yolo_names(root: Path, default: tuple[str, ...]) -> tuple[str, ...]:
    """Read the classes: one per line of classes.txt, or `names` of data.yaml, as a list or with numbers."""
    for name in ("classes.txt", "data.yaml", "dataset.yaml"):
        if (root / name).is_file():
            text = read_list(root / name)
            lines = text.split("\n") if name.endswith(".txt") else _yaml_names(text)
            if names := tuple(line.strip().strip("'\"") for line in lines if line.strip()):
                return names
    if default:
        return default
    raise InputError(f"{root} does not name its classes; write them into classes.txt, one per line, or into data.yaml")


def _yaml_names(text: str) -> list[str]:
    if inline := re.search(r"^names:\s*[\[{](.*?)[\]}]", text, re.S | re.M):
        return [re.sub(r"^\s*\d+\s*:", "", part) for part in inline[1].split(",")]
    block = re.search(r"^names:[ \t]*\n((?:[ \t]*(?:-|\d+[ \t]*:).*\n?)*)", text, re.M)
    return [re.sub(r"^\s*(-|\d+\s*:)", "", line).split(" #")[0] for line in block[1].splitlines()] if block else []


def read_yolo(image: Path, text: Path, names: tuple[str, ...]) -> LabeledImage:
    """Read lines of class, x and y of the center, width and height, as fractions of the image; no file: no objects."""
    if not text.is_file():
        return _labeled(image, [], image.stem)
    height, width = stored_size(image)
    boxes: list[LabeledBox] = []
    for number, line in enumerate(read_list(text).splitlines(), 1):
        if not line.strip():
            continue
        where = f"{text}, line {number},"
        try:
            label, *box = (float(word) for word in line.split())
            x, y, w, h = box
        except ValueError as error:
            raise InputError(f"{where} is not `class x y width height`: {line[:60]!r}") from error
        if label not in range(len(names)):
            raise InputError(f"{where} has the unknown class {label:g}; there are {len(names)}, {names[0]} is 0")
        corners = (x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height
        boxes.append((_checked(corners, (width, height), where), int(label), False))
    return _labeled(image, boxes, image.stem)


_READERS: dict[str, Callable[[Path, str, tuple[str, ...]], Objects | None]] = {
    "voc": _voc,
    "coco": _coco,
    "yolo": _yolo,
}
