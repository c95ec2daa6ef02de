"""Edge detection: the annotator-robust loss, the training images, and the score on a validation set.

For pixel i of map j with probability p and label y (the share of annotators), the paper (section 6.1) has

    l = -alpha log(1 - p)   if y = 0          alpha = lambda (1 - beta)
        0                   if 0 < y < eta    beta = negatives / (negatives + positives) of the image
        -beta log p         otherwise         L = sum of l over pixels and maps

A pseudo-label is y = q, the strength that a teacher saw. Trained with the loss above, it says q where it believes that
people mark an edge with probability r (edge_sources). So what is expected of their labels is

    l = -w (q log p + (1 - q) log(1 - p))      w = r beta + (1 - r) alpha = alpha beta / (q alpha + (1 - q) beta)

which has its least value where p is q, and is the loss above for q = 0 or 1. A teacher's map does not say how many
pixels people would mark in it; beta is NEGATIVES, that of BSDS500.

Here p = sigmoid(logit), and the logarithms are taken on the logits. The loss of a batch is the mean of its
images' L. L is a sum over pixels, so its gradient dwarfs Adam's eps, and the weight decay acts on weights
without any gradient only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff.data.edges import READERS, EdgeLabels
from pixeldiff.data.lists import find_root
from pixeldiff.edgemap import to_8_bit
from pixeldiff.errors import UserError
from pixeldiff.image import pad_to, preprocessing, read8
from pixeldiff.metrics.edges import BSDS_MAX_DIST, evaluate_image, summarize
from pixeldiff.training.tasks.edge_pairs import SMALLEST, EdgePairs
from pixeldiff.training.tasks.edge_sources import (
    BALANCE,
    ETA,
    IGNORED,
    LARGEST_SCALE,
    NEGATIVES,
    Pair,
    list_pairs,
    read_label,
    read_pair,
)
from pixeldiff.training.tasks.images import normalize

LOOKED_AT = 32  # labels that are read before training begins
PREVIEW_PIXELS = 10**6  # larger images are drawn smaller


@dataclass(frozen=True)
class Data:
    """Where the training pairs are and how they are augmented."""

    root: str  # a folder, or its name under PIXELDIFF_DATA
    sources: tuple[str, ...]  # splits, lists, folders; see edge_sources.list_pairs
    rotations: int = 1  # 16 is HED's: every 22.5 degrees
    flips: bool = False
    scales: tuple[float, ...] = (1.0,)  # HED's are 1, 0.5, 1.5
    crop: int = 0  # side of the random square windows; 0 is the full image
    fill: bool = False  # windows of rotated images: false keeps to the inscribed rectangle, true mirrors beyond
    color: float = 0.0  # up to 0.5: contrast and brightness vary by so much, saturation by twice, tint by a quarter
    share: float = 0.0  # of soft: and objects: sources in an epoch; 0 is every image once

    def __post_init__(self) -> None:
        if not self.sources:
            raise UserError("data.sources names at least one split, list or pair of folders")
        if (
            self.rotations < 1
            or self.crop < 0
            or not self.scales
            or not all(0 < s < LARGEST_SCALE for s in self.scales)
        ):
            raise UserError(
                f"data needs rotations >= 1, crop >= 0 and scales between 0 and {LARGEST_SCALE}, "
                f"got {self.rotations}, {self.crop} and {list(self.scales)}"
            )
        if 0 < self.crop < SMALLEST:
            raise UserError(f"data.crop is 0 (full images) or at least {SMALLEST} pixels, got {self.crop}")
        if self.fill and not self.crop:
            raise UserError("data.fill is for windows; give data.crop their side, or leave fill out")
        if not 0 <= self.share < 1:
            raise UserError(f"data.share is the part of soft: and objects: sources, 0 to below 1, got {self.share}")
        if not 0 <= self.color <= 0.5:
            raise UserError(f"data.color is how much colors vary, 0 to 0.5, got {self.color}")


@dataclass(frozen=True)
class Loss:
    """Constants of the annotator-robust loss (`balance` is the paper's lambda)."""

    eta: float = ETA
    balance: float = BALANCE

    def __post_init__(self) -> None:
        if not 1 / 255 < self.eta <= 1:
            raise UserError(f"loss.eta is the share of annotators that makes an edge, 1/255 to 1, got {self.eta}")
        if not self.balance > 0:
            raise UserError(f"loss.balance weighs the pixels without an edge and is more than 0, got {self.balance}")


@dataclass(frozen=True)
class Evaluate:
    """The images that are scored while training, and the first four of them drawn. No sources: no scores."""

    root: str = ""  # as data.root, which is the default
    sources: tuple[str, ...] = ()
    every: int = 1  # only every so many images
    thresholds: int = 99  # fewer are quicker and a little lower
    max_dist: float = BSDS_MAX_DIST  # NYUD: 0.011

    def __post_init__(self) -> None:
        if self.every < 1 or self.thresholds < 1:
            raise UserError(f"evaluate.every and .thresholds are at least 1, got {self.every} and {self.thresholds}")
        if not 0 < self.max_dist < 1:
            raise UserError(f"evaluate.max_dist is a part of the image diagonal, 0 to 1, got {self.max_dist}")


def robust_loss(
    logits: list[Tensor], label: Tensor, eta: float = ETA, balance: float = BALANCE, soft: Tensor | None = None
) -> Tensor:
    """The loss above, one value per image (N,): `logits` are maps (N, 1, H, W), `label` is y in [0, 1], `soft` (N,)
    says whose labels are soft."""
    negative, positive = label == 0, label >= eta
    pixels = (1, 2, 3)
    negatives, positives = negative.sum(pixels), positive.sum(pixels)
    beta = negatives / (negatives + positives).clamp(min=1)
    weight = positive * beta.view(-1, 1, 1, 1) + negative * (balance * (1 - beta)).view(-1, 1, 1, 1)
    target = positive.to(logits[0].dtype)
    if soft is not None and soft.any():
        choose = soft.view(-1, 1, 1, 1)
        weight = torch.where(choose, soft_weight(label, balance), weight)
        target = torch.where(choose, label.to(target.dtype), target)
    total = torch.zeros(len(label), device=label.device)
    for z in logits:
        total = total + F.binary_cross_entropy_with_logits(z.float(), target, weight, reduction="none").sum(pixels)
    return total


def soft_weight(label: Tensor, balance: float) -> Tensor:
    """w of pseudo-labels, 0 where they are IGNORED."""
    beta, alpha = NEGATIVES, balance * (1 - NEGATIVES)
    return (label != IGNORED / 255) * (alpha * beta) / (label * alpha + (1 - label) * beta)


def logits_of(model: nn.Module, image: np.ndarray) -> list[Tensor]:
    """The five maps of an RGB image, without gradients."""
    height, width = image.shape[:2]
    pixels = torch.from_numpy(np.ascontiguousarray(pad_to(image, SMALLEST)))
    device = next(model.parameters()).device
    with torch.no_grad():
        maps = model.side_logits(normalize(pixels.permute(2, 0, 1)[None].to(device)))  # type: ignore[operator]
    return [one[:, :, :height, :width] for one in maps]


def as_edges(logits: list[Tensor]) -> np.ndarray:
    """The edge map of these logits, float32 (H, W) in [0, 1]."""
    edges: np.ndarray = torch.sigmoid(logits[-1])[0, 0].float().cpu().numpy()
    return edges


class Task:
    """Edges for the training loop; see TaskProtocol."""

    preprocessing = preprocessing()
    labels = ()

    def __init__(self, recipe: Any) -> None:
        data: Data = recipe.data
        self.settings: Loss = recipe.loss
        self.scored: Evaluate = recipe.evaluate
        pairs = _all_pairs(data.root, data.sources)
        _look_at(pairs, self.settings.eta)
        self.train_data = EdgePairs(
            pairs, recipe.seed, data.rotations, data.flips, data.scales, data.crop, data.fill, data.color, data.share
        )
        self.held_out = _all_pairs(self.scored.root or data.root, self.scored.sources)[:: self.scored.every]
        if new := [pair for pair in self.held_out if pair.kind != "shares"]:
            raise UserError(
                f"evaluate.sources names {new[0].judged or new[0].label}, which no person has drawn; score what people "
                "saw"
            )
        if scaled := [pair for pair in self.held_out if pair.scale != 1]:
            raise UserError(
                f"evaluate.sources asks for {scaled[0].image} at scale {scaled[0].scale:g}, but images are scored as "
                "they are; give a list without other scales"
            )

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        images, labels, soft = batch
        logits = model.side_logits(normalize(images))  # type: ignore[operator]
        return robust_loss(logits, labels / 255, self.settings.eta, self.settings.balance, soft).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """ODS, OIS and AP of the benchmark (NMS radius 1) on the held-out images, and their mean loss.

        The loss is of full images, so it is larger than that of windows; where it rises, the network overfits.
        """
        if not self.held_out:
            return {}
        counts, losses = [], []
        for pair in self.held_out:
            image, label = read_pair(pair)
            logits = logits_of(model, image)
            shares = torch.from_numpy(label).to(logits[0].device)[None, None] / 255
            losses.append(robust_loss(logits, shares, self.settings.eta, self.settings.balance).item())
            truth = EdgeLabels((pair.label,)).masks()
            counts.append(evaluate_image(as_edges(logits), truth, self.scored.thresholds, self.scored.max_dist))
        summary = summarize(counts)
        return {"ods": summary.ods, "ois": summary.ois, "ap": summary.ap, "held_out_loss": sum(losses) / len(losses)}

    def preview(self, model: nn.Module) -> np.ndarray | None:
        """Four images side by side, their edges below, white on black."""
        pairs = (self.held_out or self.train_data.pairs)[:4]
        columns = []
        for pair in pairs:
            image = read8(pair.image)
            step = math.ceil(math.sqrt(image.shape[0] * image.shape[1] / PREVIEW_PIXELS))
            image = image[::step, ::step]
            edges = to_8_bit(as_edges(logits_of(model, image)))
            columns.append(np.concatenate([image, np.repeat(edges[..., None], 3, axis=2)]))
        height = max(column.shape[0] for column in columns)
        return np.concatenate([np.pad(c, ((0, height - c.shape[0]), (0, 0), (0, 0))) for c in columns], axis=1)


def _look_at(pairs: list[Pair], eta: float) -> None:
    """Refuse wrong labels before training begins. One may be without an edge; from a set of such nothing is learned."""
    some = pairs[:: math.ceil(len(pairs) / LOOKED_AT)]
    if not any([(read_label(pair) >= eta * 255).any() for pair in some]):  # all are read
        raise UserError(
            f"none of {len(some)} labels marks an edge, {some[0].label} is the first: labels are black, bright where "
            f"at least loss.eta = {eta:g} of the annotators saw one"
        )


def _all_pairs(root: str, sources: tuple[str, ...]) -> list[Pair]:
    return [pair for source in sources for pair in list_pairs(find_root(root, READERS["bsds500"].origin), source)]
