"""A light one-stage detector: GhostNet, a small top-down pyramid over strides 8, 16, 32, one separable head per level.

Anchor-free (Tian et al. 2019, FCOS): every point of a map predicts a score for each class and the distances to the four
sides of its object. Heads are not shared between levels: separable convolutions are cheap, and the statistics of batch
norm differ between levels. `forward` returns one map per level, (N, classes + 4, h, w): class logits,
then the logarithms of the distances to left, top, right and bottom in strides. `decode` turns them into boxes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.models.config import check_differences, copy_weights
from pixeldiff.models.ghostnet import STRIDES, GhostBody, GhostNet, depthwise, initialize

TASK = "objects"
SIZE = 256  # pixels of the longer side of an image, unless the weights say otherwise
PRIOR = 0.01  # probability of a class at a point before training; most points are empty
FURTHEST = 5.0  # of the logarithms: 148 strides
FIRST_DISTANCE = 2.0  # strides, before training


@dataclass(frozen=True)
class DetectorConfig:
    kind: str = "vanilla"  # of the differences in GhostNet's cheap operations; "vanilla" for none
    ratio: float = 0.0  # xi, the fraction of their channels with differences
    width: float = 1.0  # factor on every channel count of GhostNet
    classes: int = 20
    channels: int = 96  # of the pyramid

    def __post_init__(self) -> None:
        check_differences(self.kind, self.ratio)
        if self.classes < 1 or self.channels < 1 or not 0 < self.width <= 8:
            raise UserError(
                f"classes and channels are at least 1 and width 0 to 8, "
                f"got {self.classes}, {self.channels} and {self.width}"
            )


VARIANTS = {"ghostnet_objects": DetectorConfig()}


def _separable(channels: int, kernel: int = 5) -> nn.Sequential:
    """Build a depthwise and a 1x1 convolution. Five pixels wide: a wider view costs little, further depth much."""
    pointwise = nn.Conv2d(channels, channels, 1, bias=False)
    return nn.Sequential(
        *depthwise(channels, kernel),
        nn.ReLU(inplace=True),
        pointwise,
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
    )


def points(map: Tensor, stride: int) -> Tensor:
    """Return the positions of a map's points in the image, (h * w, 2): x, y in pixels."""
    ones = map[:1, :1].detach().clamp(1.0, 1.0)  # not arange, which makes a graph that no program opens at any size
    return torch.stack([(ones.cumsum(axis).flatten() - 0.5) * stride for axis in (3, 2)], -1)


class Detector(nn.Module):
    """Class logits and distances of normalized RGB images (N, 3, H, W), H and W multiples of 32."""

    def __init__(self, config: DetectorConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or DetectorConfig()
        wide = config.channels
        self.body = GhostBody(config.kind, config.ratio, config.width)
        self.laterals = nn.ModuleList(
            nn.Sequential(nn.Conv2d(count, wide, 1, bias=False), nn.BatchNorm2d(wide)) for count in self.body.channels
        )
        self.smooth = nn.ModuleList(_separable(wide) for _ in STRIDES)
        self.heads = nn.ModuleList(nn.Sequential(_separable(wide), _separable(wide)) for _ in STRIDES)
        self.outputs = nn.ModuleList(nn.Conv2d(wide, config.classes + 4, 1) for _ in STRIDES)
        for part in (self.laterals, self.smooth, self.heads):
            initialize(part)
        for output in self.outputs:
            assert isinstance(output, nn.Conv2d)
            assert output.bias is not None
            nn.init.normal_(output.weight, std=0.01)
            nn.init.constant_(output.bias[: config.classes], -math.log((1 - PRIOR) / PRIOR))
            nn.init.constant_(output.bias[config.classes :], math.log(FIRST_DISTANCE))

    def forward(self, x: Tensor) -> list[Tensor]:
        maps = [lateral(map) for lateral, map in zip(self.laterals, self.body(x), strict=True)]
        for level in (1, 0):
            maps[level] = maps[level] + F.interpolate(maps[level + 1], scale_factor=2.0, mode="nearest")
        levels = zip(self.smooth, self.heads, self.outputs, maps, strict=True)
        return [output(head(smooth(map))) for smooth, head, output, map in levels]

    def decode(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return class logits (N, points, classes) and boxes (N, points, 4): left, top, right, bottom in pixels."""
        logits, boxes = [], []
        for stride, map in zip(STRIDES, maps, strict=True):
            flat = map.flatten(2).transpose(1, 2)
            logits.append(flat[..., : self.config.classes])
            away = flat[..., self.config.classes :].clamp(max=FURTHEST).exp() * stride
            center = points(map, stride)
            boxes.append(torch.cat([center - away[..., :2], center + away[..., 2:]], -1))
        return torch.cat(logits, 1), torch.cat(boxes, 1)


def build(config: DetectorConfig) -> Detector:
    return Detector(config)


def preprocessing(config: DetectorConfig) -> dict[str, Any]:
    return image.preprocessing(size=SIZE)


def init_from(model: Detector, other: nn.Module) -> None:
    """Take over the weights of the same detector, or the body of a GhostNet trained to classify."""
    if not isinstance(other, GhostNet):
        copy_weights(model, other)
        return
    mine, theirs = ((net.config.kind, net.config.ratio, net.config.width) for net in (model, other))
    if mine != theirs:
        raise UserError(f"its body has kind, ratio and width {theirs}, that of the detector {mine}")
    model.body.load_state_dict(other.body.state_dict())
