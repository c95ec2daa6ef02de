"""Edge detection: the annotator-robust loss, the training images, and the score on a validation set.

For pixel i of map j with probability p and label y (the fraction of annotators), the paper (section 6.1) has

    l = -alpha log(1 - p)   if y = 0          alpha = lambda (1 - beta)
        0                   if 0 < y < eta    beta = negatives / (negatives + positives) of the image
        -beta log p         otherwise         L = sum of l over pixels and maps

A pseudo-label is y = q, the output of a teacher. Trained with the loss above, it outputs q for a pixel that people mark
with probability r (edge_sources). So the expected loss over their labels is

    l = -w (q log p + (1 - q) log(1 - p))      w = r beta + (1 - r) alpha = alpha beta / (q alpha + (1 - q) beta)

which is least at p = q, and is the loss above for q = 0 or 1. beta is NEGATIVES, that of BSDS500, since a teacher's map
does not give the number of pixels that people would mark.

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
from pixeldiff.errors import InputError
from pixeldiff.image import pad_to, preprocessing, read8
from pixeldiff.metrics.edges import BSDS_MAX_DIST, evaluate_image, summarize
from pixeldiff.training.tasks.edge_pairs import SMALLEST, EdgePairs
from pixeldiff.training.tasks.edge_pairs import Augment as Augment
from pixeldiff.training.tasks.edge_sources import (
    BALANCE,
    ETA,
    IGNORED,
    NEGATIVES,
    Pair,
    Source,
    list_pairs,
    read_label,
    read_pair,
)
from pixeldiff.training.tasks.images import normalize

CHECKED_LABELS = 32  # read before training begins
PREVIEW_PIXELS = 10**6  # larger images are drawn smaller


@dataclass(frozen=True)
class Data:
    """Where the training pairs are."""

    root: str  # a folder, or its name under PIXELDIFF_DATA
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("data.sources must name at least one source")
        total = sum(source.fraction for source in self.sources)
        if total >= 1 and not all(source.fraction for source in self.sources):
            raise InputError(
                f"fractions of data.sources must leave a rest to those without one; their sum is {total:g}"
            )


@dataclass(frozen=True)
class Loss:
    """Constants of the annotator-robust loss (`balance` is the paper's lambda)."""

    eta: float = ETA
    balance: float = BALANCE

    def __post_init__(self) -> None:
        if not 1 / 255 < self.eta <= 1:
            raise InputError(f"loss.eta must be a fraction of annotators, 1/255 to 1, got {self.eta}")
        if not self.balance > 0:
            raise InputError(f"loss.balance must be more than 0, got {self.balance}")


@dataclass(frozen=True)
class Evaluate:
    """The images that are scored during training; the first four are drawn. No sources: no scores."""

    root: str = ""  # data.root by default
    sources: tuple[Source, ...] = ()
    every: int = 1  # step between the images that are used
    thresholds: int = 99  # fewer are quicker and a little lower
    max_dist: float = BSDS_MAX_DIST  # NYUD: 0.011

    def __post_init__(self) -> None:
        if self.every < 1 or self.thresholds < 1:
            raise InputError(
                f"evaluate.every and .thresholds must be at least 1, got {self.every} and {self.thresholds}"
            )
        if not 0 < self.max_dist < 1:
            raise InputError(f"evaluate.max_dist must be a fraction of the image diagonal, 0 to 1, got {self.max_dist}")


def robust_loss(
    logits: list[Tensor], label: Tensor, eta: float = ETA, balance: float = BALANCE, soft: Tensor | None = None
) -> Tensor:
    """The loss above, one value per image (N,): `logits` are maps (N, 1, H, W), `label` is y in [0, 1], `soft` (N,)
    says which labels are pseudo-labels."""
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
    """Return w of pseudo-labels, 0 for IGNORED pixels."""
    beta, alpha = NEGATIVES, balance * (1 - NEGATIVES)
    return (label != IGNORED / 255) * (alpha * beta) / (label * alpha + (1 - label) * beta)


def logits_of(model: nn.Module, image: np.ndarray) -> list[Tensor]:
    """Return the five maps of an RGB image, without gradients."""
    height, width = image.shape[:2]
    pixels = torch.from_numpy(np.ascontiguousarray(pad_to(image, SMALLEST)))
    device = next(model.parameters()).device
    with torch.no_grad():
        maps = model.side_logits(normalize(pixels.permute(2, 0, 1)[None].to(device)))  # type: ignore[operator]
    return [logits[:, :, :height, :width] for logits in maps]


def as_edges(logits: list[Tensor]) -> np.ndarray:
    """Return the edge map of these logits, float32 (H, W) in [0, 1]."""
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
        root = find_root(data.root, READERS["bsds500"].origin)
        lists = [(list_pairs(root, source), source.fraction) for source in data.sources]
        pairs = [pair for part, fraction in lists if not fraction for pair in part]
        self.train_data = EdgePairs(
            pairs, recipe.seed, recipe.augment, [(part, fraction) for part, fraction in lists if fraction]
        )
        _check_labels(self.train_data.pairs, self.settings.eta)
        self.held_out = _held_out(self.scored, data.root)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        images, labels, soft = batch
        logits = model.side_logits(normalize(images))  # type: ignore[operator]
        return robust_loss(logits, labels / 255, self.settings.eta, self.settings.balance, soft).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return ODS, OIS and AP of the benchmark (NMS radius 1) on the held-out images, and their mean loss.

        The loss is of full images, so it is larger than that of crops; if it rises, the network overfits.
        """
        if not self.held_out:
            return {}
        counts, losses = [], []
        for pair in self.held_out:
            image, label = read_pair(pair)
            logits = logits_of(model, image)
            fractions = torch.from_numpy(label).to(logits[0].device)[None, None] / 255
            losses.append(robust_loss(logits, fractions, self.settings.eta, self.settings.balance).item())
            truth = EdgeLabels((pair.label,)).masks()
            counts.append(evaluate_image(as_edges(logits), truth, self.scored.thresholds, self.scored.max_dist))
        summary = summarize(counts)
        return {"ods": summary.ods, "ois": summary.ois, "ap": summary.ap, "held_out_loss": sum(losses) / len(losses)}

    def preview(self, model: nn.Module) -> np.ndarray | None:
        """Draw four images side by side, their edges below, white on black."""
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


def _check_labels(pairs: list[Pair], eta: float) -> None:
    """Raise an error for wrong labels before training begins. A single label may be without an edge, a set may not."""
    some = pairs[:: math.ceil(len(pairs) / CHECKED_LABELS)]
    if not any([(read_label(pair) >= eta * 255).any() for pair in some]):  # a list: all are read
        raise InputError(
            f"none of {len(some)} labels marks an edge, {some[0].label} is the first; expected black labels, bright "
            f"where at least a fraction loss.eta = {eta:g} of the annotators marked an edge"
        )


def _held_out(scored: Evaluate, root: str) -> list[Pair]:
    """List the validation pairs; an error for labels that are not annotations of the full image."""
    if not scored.sources:
        return []
    folder = find_root(scored.root or root, READERS["bsds500"].origin)
    pairs = [pair for source in scored.sources for pair in list_pairs(folder, source)][:: scored.every]
    if soft := [pair for pair in pairs if pair.is_soft]:
        raise InputError(
            f"evaluate.sources names {soft[0].teacher or soft[0].label}, the map of a network; score human annotations"
        )
    if scaled := [pair for pair in pairs if pair.scale != 1]:
        raise InputError(
            f"evaluate.sources has {scaled[0].image} at scale {scaled[0].scale:g}, but images are scored at scale 1; "
            "give a list without other scales"
        )
    return pairs
