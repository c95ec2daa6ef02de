"""Objects: detectors on full images, and before that their body as a classifier on crops of the objects.

A point of the maps belongs to an object if it lies within RADIUS strides of the object's middle, inside of the box, on
a level that the object's size fits (Tian et al. 2019; of several objects the smallest has it). Its class target is the
IoU q of the box it gives (Li et al. 2020), elsewhere 0. With p = sigmoid(logit) and P such points

    L = (1 / P) [ sum |q - p|^2 BCE(p, q)  +  box * sum_P (1 - GIoU) ]

A classifier (`ghostnet` as [model]) has cross-entropy with smoothed labels instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.data.lists import find_root
from pixeldiff.data.voc import ORIGIN, LabeledImage, Objects, check_same_names, joined, list_objects
from pixeldiff.errors import InputError
from pixeldiff.evaluation.objects import MIN_SCORE
from pixeldiff.inference.objects import GRID, choose, fit
from pixeldiff.metrics.classes import accuracy
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches
from pixeldiff.models import model_config
from pixeldiff.models.detector import Detector, points
from pixeldiff.models.ghostnet import STRIDES, GhostNetConfig
from pixeldiff.render.detections import draw
from pixeldiff.training.tasks.images import normalize
from pixeldiff.training.tasks.object_images import Augment as Augment
from pixeldiff.training.tasks.object_images import Batch, ObjectCrops, ObjectImages

RADIUS = 1.5  # strides
LONG_SIDES = ((0.0, 8.0), (2.0, 10.0), (3.0, float("inf")))  # strides, of the objects on each level; they overlap
SMOOTHING = 0.1
PREVIEWED = 0.3
LAYOUTS = ("voc", "coco", "yolo")


@dataclass(frozen=True)
class Source:
    """One table of `data.sources`: a split in one of the layouts that data/voc.py reads."""

    type: str  # voc, coco or yolo
    split: str  # "VOC2012/train", or "train" of every year

    def __post_init__(self) -> None:
        if self.type not in LAYOUTS:
            raise InputError(f"unknown type {self.type!r} of a data source; expected {', '.join(LAYOUTS)}")


@dataclass(frozen=True)
class Data:
    """Where the images are."""

    root: str  # a folder, or its name under PIXELDIFF_DATA
    sources: tuple[Source, ...]  # several are joined
    classes: tuple[str, ...] = ()  # if the data does not name them; VOC's twenty by default
    hold_out: int = 0  # of each so many images one is scored and not trained on; 0 is none
    size: int = 256  # side of the training images

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("data.sources must name at least one source")
        if self.hold_out < 0 or self.hold_out == 1:
            raise InputError(f"data.hold_out must be 0 or at least 2, got {self.hold_out}")
        if self.size < GRID or self.size % GRID:
            raise InputError(f"data.size must be a multiple of {GRID}, got {self.size}")


@dataclass(frozen=True)
class Loss:
    box: float = 2.0  # weight of the boxes against the classes

    def __post_init__(self) -> None:
        if not self.box > 0:
            raise InputError(f"loss.box must be more than 0, got {self.box}")


@dataclass(frozen=True)
class Evaluate:
    """What is scored during training: the held-out images, or these sources."""

    root: str = ""  # as data.root, which is the default
    sources: tuple[Source, ...] = ()
    limit: int = 0  # number of images, evenly spaced; 0 is all

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise InputError(f"evaluate.limit must be at least 0, got {self.limit}")


def assign(sizes: list[Tensor], boxes: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the object of each point, (N, points), -1 for none, and the points; `sizes` are maps of the levels."""
    centers = torch.cat([points(level, stride) for level, stride in zip(sizes, STRIDES, strict=True)])
    counts = [level.shape[2] * level.shape[3] for level in sizes]
    strides = torch.cat([torch.full((n,), float(s)) for n, s in zip(counts, STRIDES, strict=True)]).to(boxes.device)
    low, high = (
        torch.cat([torch.full((n,), side[k] * s) for n, side, s in zip(counts, LONG_SIDES, STRIDES, strict=True)])
        for k in (0, 1)
    )
    low, high = low.to(boxes.device), high.to(boxes.device)
    spans = boxes[..., 2:] - boxes[..., :2]  # (N, M, 2)
    x = centers[None, :, None]  # (1, points, 1, 2)
    near = ((x - (boxes[..., :2] + boxes[..., 2:])[:, None] / 2).abs() < RADIUS * strides[None, :, None, None]).all(-1)
    inside = ((x > boxes[:, None, :, :2]) & (x < boxes[:, None, :, 2:])).all(-1)
    long = spans.amax(-1)[:, None]
    fits = (long >= low[None, :, None]) & (long < high[None, :, None])
    area = spans.prod(-1)[:, None].expand(-1, len(centers), -1)
    area = area.masked_fill(~(near & inside & fits & (labels >= 0)[:, None]), float("inf"))
    smallest, which = area.min(-1)
    return which.masked_fill(smallest.isinf(), -1), centers


def box_overlaps(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return IoU and generalized IoU (Rezatofighi et al. 2019) of boxes in pairs, (P, 4)."""
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(-1)
    hull = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(-1)
    union = (a[:, 2:] - a[:, :2]).prod(-1) + (b[:, 2:] - b[:, :2]).prod(-1) - inner
    iou = inner / union.clamp(min=1e-6)
    return iou, iou - (hull - union) / hull.clamp(min=1e-6)


def detection_loss(model: Detector, maps: list[Tensor], boxes: Tensor, labels: Tensor, box_weight: float) -> Tensor:
    """Return the loss above, of a batch."""
    maps = [level.float() for level in maps]
    logits, decoded = model.decode(maps)
    which, _ = assign(maps, boxes, labels)
    image, point = torch.nonzero(which >= 0, as_tuple=True)
    assigned = which[image, point]
    quality, generalized = box_overlaps(decoded[image, point], boxes[image, assigned])
    target = torch.zeros_like(logits)
    target[image, point, labels[image, assigned]] = quality.detach()
    weight = (target - logits.detach().sigmoid()).square()
    classes = (weight * F.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum()
    return (classes + box_weight * (1 - generalized).sum()) / max(1, len(assigned))


def find_objects(model: Detector, image: np.ndarray, size: int, threshold: float) -> Detections:
    """Detect objects in an RGB image, in its pixels; the same steps as without torch."""
    resized, (along, down) = fit(image, size)
    pixels = torch.tensor(resized).permute(2, 0, 1)[None].to(next(model.parameters()).device)
    with torch.no_grad():
        logits, boxes = model.decode(model(normalize(pixels)))
    detections = choose(boxes[0].cpu().numpy(), logits[0].sigmoid().cpu().numpy(), threshold)
    height, width = image.shape[:2]
    corners = detections.boxes / np.array([along, down] * 2, np.float32)
    return Detections(np.clip(corners, 0, np.array([width, height] * 2)), detections.scores, detections.labels)


class Task:
    """Objects for the training loop; see TaskProtocol."""

    def __init__(self, recipe: Any) -> None:
        self.data: Data = recipe.data
        self.settings: Loss = recipe.loss
        self.classifies = isinstance(model_config(recipe.model["name"]), GhostNetConfig)
        objects = _objects(self.data.root, self.data.sources, self.data.classes)
        self.labels = objects.names
        classes = recipe.model.get("classes", model_config(recipe.model["name"]).classes)
        if classes != len(self.labels):
            raise InputError(
                f"the network has {classes} classes, the images {len(self.labels)}; "
                f"set classes = {len(self.labels)} in [model]"
            )
        held, self.learned = _divided(objects.images, self.data.hold_out)
        scored: Evaluate = recipe.evaluate
        if scored.sources:
            scored_objects = _objects(scored.root or self.data.root, scored.sources, self.data.classes)
            held = check_same_names(scored_objects, self.labels).images
        step = max(1, len(held) // scored.limit) if scored.limit else 1
        whole = ObjectImages(self.learned, recipe.seed, self.data.size, recipe.augment)
        self.held_out = ObjectImages(held[::step], recipe.seed, self.data.size, recipe.augment)
        self.train_data: ObjectImages | ObjectCrops = whole
        if self.classifies:
            self.train_data = ObjectCrops(whole, recipe.seed)
        self.preprocessing = image.preprocessing(size=self.data.size, **({"crop": 1.0} if self.classifies else {}))

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        pixels, boxes, labels = batch
        out = model(normalize(pixels))
        if self.classifies:
            return F.cross_entropy(out, labels[:, 0], label_smoothing=SMOOTHING)
        assert isinstance(model, Detector)
        return detection_loss(model, out, boxes, labels, self.settings.box)

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return VOC's mAP and COCO's AP on the held-out images; of a classifier top-1 and top-5 on their objects."""
        if not len(self.held_out):
            return {}
        if self.classifies:
            return self._accuracy(model)
        assert isinstance(model, Detector)
        matches = Matches(len(self.labels))
        for labeled in self.held_out.images:
            pixels = image.read8(labeled.image)
            matches.add(
                find_objects(model, pixels, self.data.size, MIN_SCORE),
                GroundTruth(labeled.boxes, labeled.labels, labeled.ignored),
            )
        scores = matches.summary()
        return {"map50": scores.map50, "ap": scores.ap}

    def _accuracy(self, model: nn.Module) -> dict[str, float]:
        crops = ObjectCrops(self.held_out, 0)
        logits, truth = [], []
        for start in range(0, len(crops), 64):
            part = [crops.plain(index) for index in range(start, min(start + 64, len(crops)))]
            pixels = torch.stack([crop for crop, _ in part]).to(next(model.parameters()).device)
            with torch.no_grad():
                logits.append(model(normalize(pixels)).float().cpu().numpy())
            truth += [label for _, label in part]
        return accuracy(np.concatenate(logits), np.array(truth))

    def preview(self, model: nn.Module) -> np.ndarray | None:
        """Draw four images with their detections."""
        if self.classifies:
            return None
        assert isinstance(model, Detector)
        drawn = []
        for labeled in (self.held_out.images or self.learned)[:4]:
            pixels = image.read8(labeled.image)
            drawn.append(draw(pixels, find_objects(model, pixels, self.data.size, PREVIEWED), self.labels))
        height = max(pixels.shape[0] for pixels in drawn)
        return np.concatenate(
            [np.pad(pixels, ((0, height - pixels.shape[0]), (0, 0), (0, 0))) for pixels in drawn], axis=1
        )


def _objects(root: str, sources: tuple[Source, ...], classes: tuple[str, ...]) -> Objects:
    return joined([list_objects(find_root(root, ORIGIN), source.split, classes, source.type) for source in sources])


def _divided(images: tuple[LabeledImage, ...], every: int) -> tuple[tuple[LabeledImage, ...], tuple[LabeledImage, ...]]:
    """Return the held-out images, and the others."""
    if not every:
        return (), images
    return images[::every], tuple(labeled for k, labeled in enumerate(images) if k % every)
