"""Edge detection: the annotator-robust loss, the training pictures, and the score on a validation set.

For pixel i of map j with probability p and label y (the share of annotators), the paper (section 6.1) has

    l = -alpha log(1 - p)   if y = 0          alpha = lambda (1 - beta)
        0                   if 0 < y < eta    beta = negatives / (negatives + positives) of the picture
        -beta log p         otherwise         L = sum of l over pixels and maps

Here p = sigmoid(logit), and the logarithms are taken on the logits. The loss of a batch is the mean of its
pictures' L. L is a sum over pixels, so its gradient dwarfs Adam's eps, and the weight decay acts on weights
without any gradient only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.tasks.edge_data import EdgePairs, collate, find_root, list_pairs, normalise


@dataclass(frozen=True)
class Data:
    """Where the training pairs are and how they are augmented."""

    root: str  # a folder, or its name under PIXELDIFF_DATA
    sources: tuple[str, ...]  # splits of a raw BSDS500
    rotations: int = 1  # 16 is HED's: every 22.5 degrees
    flips: bool = False
    scales: tuple[float, ...] = (1.0,)
    crop: int = 0  # side of the random square windows; 0 is the whole picture
    fill: bool = False  # windows of rotated pictures: false keeps to the inscribed rectangle, true mirrors beyond


@dataclass(frozen=True)
class Loss:
    """Constants of the annotator-robust loss (`balance` is the paper's lambda)."""

    eta: float = 0.3
    balance: float = 1.1

    def __post_init__(self) -> None:
        if not 1 / 255 < self.eta <= 1:
            raise UserError(f"loss.eta is the share of annotators that makes an edge, 1/255 to 1, got {self.eta}")


@dataclass(frozen=True)
class Evaluate:
    """The validation set."""

    root: str = ""


def robust_loss(logits: list[Tensor], label: Tensor, eta: float = 0.3, balance: float = 1.1) -> Tensor:
    """The loss above, one value per picture (N,): `logits` are maps (N, 1, H, W), `label` is y in [0, 1]."""
    negative, positive = label == 0, label >= eta
    pixels = (1, 2, 3)
    negatives, positives = negative.sum(pixels), positive.sum(pixels)
    beta = negatives / (negatives + positives).clamp(min=1)
    weight = positive * beta.view(-1, 1, 1, 1) + negative * (balance * (1 - beta)).view(-1, 1, 1, 1)
    target = positive.to(logits[0].dtype)
    total = torch.zeros(len(label), device=label.device)
    for z in logits:
        total = total + F.binary_cross_entropy_with_logits(z.float(), target, weight, reduction="none").sum(pixels)
    return total


class Task:
    """Edges for the training loop; see TaskProtocol."""

    def __init__(self, recipe: Any) -> None:
        data: Data = recipe.data
        self.settings: Loss = recipe.loss
        root = find_root(data.root)
        pairs = [pair for source in data.sources for pair in list_pairs(root, source)]
        self.pairs = EdgePairs(pairs, recipe.seed, data.rotations, data.flips, data.scales, data.crop, data.fill)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        return self.pairs[key]

    def name(self, index: int) -> str:
        return self.pairs.name(index)

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        return collate(samples)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        logits = model.side_logits(normalise(images))  # type: ignore[operator]
        return robust_loss(logits, labels / 255, self.settings.eta, self.settings.balance).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {}

    def preview(self, model: nn.Module) -> np.ndarray | None:
        return None
