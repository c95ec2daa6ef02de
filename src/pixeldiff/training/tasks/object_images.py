"""Images with boxes for training: flipped, scaled, cropped, recolored, four as one; or crops of single objects.

An image and its boxes go through one transformation, `place`: a window of the image, which may reach beyond it,
becomes a rectangle of pixels, and boxes are mapped, cut at its border and dropped if too little of them is visible.
Everything random about a sample comes from (seed, epoch, index).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from pixeldiff.data.voc import LabeledImage
from pixeldiff.errors import InputError
from pixeldiff.image import read8
from pixeldiff.inference.objects import PAD
from pixeldiff.machine import memory_budget
from pixeldiff.metrics.boxes import area
from pixeldiff.training.tasks.edge_pairs import recolor

Window = tuple[float, float, float, float]  # left, top, right, bottom in the image
Sample = tuple[Tensor, Tensor, Tensor]  # uint8 (3, S, S), boxes (M, 4), labels (M,)
Batch = tuple[Tensor, Tensor, Tensor]  # uint8 (N, 3, S, S), boxes (N, M, 4), labels (N, M), -1 where there is none

VISIBLE = 0.3  # fraction of a box that must stay visible
SMALLEST = 4.0  # pixels of a side
SMALLEST_CROP = 12.0  # pixels of an object's long side


@dataclass(frozen=True)
class Augment:
    """How training images are changed."""

    hflip: bool = True
    zoom: tuple[float, float] = (1.0, 1.0)  # 1 shows the full image, more a part of it, less leaves a margin
    stretch: float = 0.0  # largest change of width against height, a fraction
    color_jitter: float = 0.0  # as for edges
    mosaic: float = 0.0  # probability that four images become one

    def __post_init__(self) -> None:
        if not 0.1 <= self.zoom[0] <= self.zoom[1] <= 10:
            raise InputError(f"augment.zoom must be a range within 0.1 to 10, got {list(self.zoom)}")
        for name, high in (("stretch", 0.5), ("color_jitter", 0.5), ("mosaic", 1.0)):
            if not 0 <= getattr(self, name) <= high:
                raise InputError(f"augment.{name} must be 0 to {high:g}, got {getattr(self, name)}")


def place(
    image: NDArray[np.uint8],
    boxes: NDArray[np.float32],
    window: Window,
    size: tuple[int, int],
    flipped: bool = False,
) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.bool_]]:
    """Return the window as size = (height, width) pixels, the boxes in it, and which of those stay visible."""
    left, top, right, bottom = window
    height, width = size
    along, down = width / (right - left), height / (bottom - top)
    canvas = np.empty((height, width, 3), np.uint8)
    canvas[:] = PAD
    # Whole pixels of the result that lie inside the image, and what they cover there: boxes stay where they are.
    x0, x1 = max(0, math.ceil(-left * along)), min(width, math.floor((image.shape[1] - left) * along))
    y0, y1 = max(0, math.ceil(-top * down)), min(height, math.floor((image.shape[0] - top) * down))
    if x1 > x0 and y1 > y0:
        source = (left + x0 / along, top + y0 / down, left + x1 / along, top + y1 / down)
        source = (
            max(0.0, source[0]),
            max(0.0, source[1]),
            min(image.shape[1], source[2]),
            min(image.shape[0], source[3]),
        )
        part = Image.fromarray(image).resize((x1 - x0, y1 - y0), Image.Resampling.BILINEAR, source)
        canvas[y0:y1, x0:x1] = np.asarray(part)
    moved = (boxes - np.array([left, top] * 2, np.float32)) * np.array([along, down] * 2, np.float32)
    cut = np.clip(moved, 0, np.array([width, height] * 2, np.float32))
    visible = area(cut) >= VISIBLE * area(moved)
    visible &= (cut[:, 2:] - cut[:, :2] >= SMALLEST).all(1)
    if flipped:
        canvas = canvas[:, ::-1]
        cut = np.stack([width - cut[:, 2], cut[:, 1], width - cut[:, 0], cut[:, 3]], 1)
    return canvas, cut.astype(np.float32), visible


class ObjectImages(Dataset[Sample]):
    """Full images with all their boxes; ignored objects are not learned."""

    def __init__(self, images: tuple[LabeledImage, ...], seed: int, size: int, augment: Augment) -> None:
        self.images, self.seed, self.size, self.augment = images, seed, size, augment
        self._cache: dict[int, NDArray[np.uint8]] = {}
        self._cache_left = memory_budget()  # bytes of decoded images

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return str(self.images[index].image)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels (3, S, S), boxes (M, 4) and labels (M,)."""
        rng = np.random.default_rng((self.seed, *key))
        side = self.size
        if rng.uniform() < self.augment.mosaic:
            others = rng.integers(0, len(self), 3)
            canvas, boxes, labels = self._four([key[1], *others], rng)
        else:
            canvas, boxes, labels = self._one(key[1], (side, side), rng)
        pixels = torch.from_numpy(np.ascontiguousarray(canvas)).permute(2, 0, 1)
        return recolored(pixels, self.augment.color_jitter, rng), torch.from_numpy(boxes), torch.from_numpy(labels)

    def collate(self, samples: list[Sample]) -> Batch:
        return collate(samples)

    def plain(self, index: int) -> NDArray[np.uint8]:
        """Return the image as it is in the file."""
        return self._decoded(index)

    def _four(
        self, indices: list[int], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.int64]]:
        """Place four images around a random point."""
        side = self.size
        x, y = (int(v) for v in rng.uniform(0.3 * side, 0.7 * side, 2))
        canvas = np.empty((side, side, 3), np.uint8)
        boxes, labels = [], []
        corners = ((0, 0, x, y), (x, 0, side, y), (0, y, x, side), (x, y, side, side))
        for index, (left, top, right, bottom) in zip(indices, corners, strict=True):
            part, part_boxes, names = self._one(index, (bottom - top, right - left), rng)
            canvas[top:bottom, left:right] = part
            boxes.append(part_boxes + np.array([left, top] * 2, np.float32))
            labels.append(names)
        return canvas, np.concatenate(boxes), np.concatenate(labels)

    def _one(
        self, index: int, size: tuple[int, int], rng: np.random.Generator
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[np.int64]]:
        """Place an augmented image in a rectangle of pixels."""
        labeled, augment = self.images[index], self.augment
        image = self._decoded(index)
        window = random_window(image.shape[:2], size, augment.zoom, augment.stretch, rng)
        flipped = bool(augment.hflip and rng.integers(2))
        canvas, boxes, visible = place(image, labeled.boxes, window, size, flipped)
        visible &= ~labeled.ignored
        return canvas, boxes[visible], labeled.labels[visible]

    def _decoded(self, index: int) -> NDArray[np.uint8]:
        if index not in self._cache:
            image = read8(self.images[index].image)
            if image.nbytes > self._cache_left:
                return image
            self._cache_left -= image.nbytes
            self._cache[index] = image
        return self._cache[index]


def random_window(
    image: tuple[int, int], size: tuple[int, int], zoom: tuple[float, float], stretch: float, rng: np.random.Generator
) -> Window:
    """Draw the window of an image that becomes a rectangle of (height, width); all of it at zoom 1, with margins."""
    factor = math.exp(rng.uniform(*np.log(zoom)))
    shape = math.exp(rng.uniform(-1, 1) * math.log1p(stretch) / 2)
    scale = min(size[0] / image[0], size[1] / image[1]) * factor
    wide, high = size[1] / (scale * shape), size[0] / (scale / shape)
    # A window larger than the image covers all of it, another lies within.
    left, top = (
        rng.uniform(min(0.0, side - part), max(0.0, side - part)) for side, part in ((image[1], wide), (image[0], high))
    )
    return left, top, left + wide, top + high


def recolored(pixels: Tensor, color: float, rng: np.random.Generator) -> Tensor:
    """Change colors, as for edges."""
    if not color:
        return pixels
    saturation, contrast, brightness = rng.uniform(-color, color, 3) * (2, 1, 1) + 1
    tint = rng.uniform(-color, color, 3) / 4 + 1
    return recolor(pixels, saturation, contrast, torch.tensor(brightness * tint, dtype=torch.float32))


def collate(samples: list[Sample]) -> Batch:
    """Make one batch of samples; images without objects have only labels -1."""
    largest = max(1, *(len(labels) for _, _, labels in samples))
    images = torch.stack([pixels for pixels, _, _ in samples])
    boxes = torch.zeros(len(samples), largest, 4)
    labels = torch.full((len(samples), largest), -1, dtype=torch.int64)
    for row, (_, image_boxes, names) in enumerate(samples):
        boxes[row, : len(image_boxes)] = image_boxes
        labels[row, : len(names)] = names
    return images, boxes, labels


class ObjectCrops(Dataset[Sample]):
    """Single objects as square images, for a classifier."""

    def __init__(self, images: ObjectImages, seed: int) -> None:
        self.images, self.seed, self.size, self.augment = images, seed, images.size, images.augment
        self.objects = [
            (index, number)
            for index, labeled in enumerate(images.images)
            for number, box in enumerate(labeled.boxes)
            if not labeled.ignored[number] and max(box[2] - box[0], box[3] - box[1]) >= SMALLEST_CROP
        ]
        if not self.objects:
            raise InputError(f"no image shows an object of {SMALLEST_CROP:g} pixels or more; nothing can be learned")

    def __len__(self) -> int:
        return len(self.objects)

    def name(self, index: int) -> str:
        image, number = self.objects[index]
        return f"{self.images.name(image)} (object {number})"

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return pixels (3, S, S), no boxes, and the label."""
        rng = np.random.default_rng((self.seed, *key, 2))
        canvas, label = self._cut(key[1], rng)
        pixels = torch.from_numpy(np.ascontiguousarray(canvas)).permute(2, 0, 1)
        return recolored(pixels, self.augment.color_jitter, rng), torch.zeros(0, 4), torch.tensor([label])

    def collate(self, samples: list[Sample]) -> Batch:
        return collate(samples)

    def plain(self, index: int) -> tuple[Tensor, int]:
        """Return the object without augmentation."""
        canvas, label = self._cut(index, None)
        return torch.from_numpy(np.ascontiguousarray(canvas)).permute(2, 0, 1), label

    def _cut(self, index: int, rng: np.random.Generator | None) -> tuple[NDArray[np.uint8], int]:
        """Crop a square around the object, about a sixth larger; in training of random size, shape and place."""
        image, number = self.objects[index]
        labeled = self.images.images[image]
        left, top, right, bottom = (float(v) for v in labeled.boxes[number])
        side = 1.15 * max(right - left, bottom - top)
        x, y, wide, high = (left + right) / 2, (top + bottom) / 2, side, side
        flipped = False
        if rng is not None:
            grown, shape = math.exp(rng.uniform(math.log(0.7), math.log(1.4))), math.exp(rng.uniform(-0.2, 0.2))
            wide, high = side * grown * shape, side * grown / shape
            x, y = x + rng.uniform(-0.15, 0.15) * side, y + rng.uniform(-0.15, 0.15) * side
            flipped = bool(self.augment.hflip and rng.integers(2))
        window = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
        size = (self.size, self.size)
        canvas, _, _ = place(self.images.plain(image), np.zeros((0, 4), np.float32), window, size, flipped)
        return canvas, int(labeled.labels[number])
