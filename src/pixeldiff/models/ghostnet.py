"""GhostNet (Han et al. 2020), and pixel differences in its cheap operations (paper, section "object detection").

A Ghost module makes half of its channels by a 1x1 convolution and the other half from those by a cheap operation, a
depthwise 3x3 convolution. A bottleneck is two Ghost modules around a depthwise convolution (where it strides) and
squeeze-and-excitation. `kind` and `ratio` (the paper's xi) put pixel differences into that fraction of the input
channels of all 32 cheap operations. One with too few channels for the ratio (2 channels at 0.3) keeps plain pixels.
`GhostBody` returns maps at strides 8, 16 and 32, `GhostNet` class logits.
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
from pixeldiff.nn.layers import replace_convs, round_channels

TASK = "objects"  # as the body of a detector; no shipped task runs float classifiers
# kernel, channels between the Ghost modules, channels, squeeze-and-excitation, stride
BOTTLENECKS = (
    (3, 16, 16, False, 1),
    (3, 48, 24, False, 2),
    (3, 72, 24, False, 1),
    (5, 72, 40, True, 2),
    (5, 120, 40, True, 1),
    (3, 240, 80, False, 2),
    (3, 200, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 184, 80, False, 1),
    (3, 480, 112, True, 1),
    (3, 672, 112, True, 1),
    (5, 672, 160, True, 2),
    (5, 960, 160, False, 1),
    (5, 960, 160, True, 1),
    (5, 960, 160, False, 1),
    (5, 960, 160, True, 1),
)
STRIDES = (8, 16, 32)
ENDS = (4, 10, 15)  # the bottlenecks whose maps have these strides
STEM, TAIL, HIDDEN = 16, 960, 1280
DROPOUT = 0.2


@dataclass(frozen=True)
class GhostNetConfig:
    kind: str = "vanilla"  # of the differences; "vanilla" for none
    ratio: float = 0.0  # xi, the fraction of a cheap operation's channels with differences
    width: float = 1.0  # factor on every channel count
    classes: int = 1000

    def __post_init__(self) -> None:
        check_differences(self.kind, self.ratio)
        if self.classes < 1 or not 0 < self.width <= 8:
            raise UserError(f"classes is at least 1 and width 0 to 8, got {self.classes} and {self.width}")


VARIANTS = {"ghostnet": GhostNetConfig()}


def divisible(channels: float, by: int = 4) -> int:
    """Round channels to a multiple of `by`, at most a tenth below their number."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded


class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation: scale each channel by a number in [0, 1] computed from the mean of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = divisible(channels / 4)
        self.reduce = nn.Conv2d(channels, hidden, 1)
        self.expand = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(gate)


class GhostModule(nn.Module):
    """Half of the channels by a 1x1 convolution, the others from those by the cheap operation."""

    def __init__(self, in_channels: int, channels: int, activated: bool) -> None:
        super().__init__()
        half = math.ceil(channels / 2)
        self.channels = channels
        self.activated = activated
        self.primary = nn.Sequential(nn.Conv2d(in_channels, half, 1, bias=False), nn.BatchNorm2d(half))
        self.cheap = nn.Sequential(nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False), nn.BatchNorm2d(half))

    def forward(self, x: Tensor) -> Tensor:
        first = self.primary(x)
        if self.activated:
            first = F.relu(first)
        second = self.cheap(first)
        if self.activated:
            second = F.relu(second)
        both = torch.cat([first, second], 1)
        return both if both.shape[1] == self.channels else both[:, : self.channels]


def depthwise(channels: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Build a depthwise convolution with batch norm."""
    conv = nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels))


class Bottleneck(nn.Module):
    """Two Ghost modules, around a depthwise convolution if it strides, and a shortcut."""

    def __init__(self, in_channels: int, middle: int, channels: int, kernel: int, squeezes: bool, stride: int) -> None:
        super().__init__()
        self.expand = GhostModule(in_channels, middle, activated=True)
        self.down: nn.Module = depthwise(middle, kernel, stride) if stride > 1 else nn.Identity()
        self.squeeze: nn.Module = SqueezeExcite(middle) if squeezes else nn.Identity()
        self.project = GhostModule(middle, channels, activated=False)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != channels:
            pointwise = nn.Sequential(nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))
            self.shortcut = nn.Sequential(depthwise(in_channels, kernel, stride), pointwise)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.squeeze(self.down(self.expand(x)))) + self.shortcut(x)
        return y


class GhostBody(nn.Module):
    """Maps of normalized RGB images at strides 8, 16 and 32."""

    def __init__(self, kind: str, ratio: float, width: float) -> None:
        super().__init__()
        before = divisible(STEM * width)
        self.stem = nn.Sequential(
            nn.Conv2d(3, before, 3, 2, 1, bias=False), nn.BatchNorm2d(before), nn.ReLU(inplace=True)
        )
        self.blocks = nn.ModuleList()
        for kernel, middle, channels, squeezes, stride in BOTTLENECKS:
            after = divisible(channels * width)
            self.blocks.append(Bottleneck(before, divisible(middle * width), after, kernel, squeezes, stride))
            before = after
        self.channels = tuple(divisible(BOTTLENECKS[end][2] * width) for end in ENDS)
        initialize(self)
        if ratio:
            self._put_differences(kind, ratio)

    def _put_differences(self, kind: str, ratio: float) -> None:
        def include(name: str, conv: nn.Conv2d) -> bool:
            return name.endswith("cheap.0") and round_channels(ratio, conv.in_channels) > 0

        if not replace_convs(self, kind, ratio=ratio, include=include):
            raise UserError(f"ratio={ratio:g} rounds down to no channel in every layer of this network; give more")

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        maps = []
        for index, block in enumerate(self.blocks):
            x = block(x)
            if index in ENDS:
                maps.append(x)
        return maps


def initialize(module: nn.Module) -> None:
    """Draw the weights of all convolutions (He et al. 2015, fan out), with biases of 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            if layer.groups > 1:  # fan_out counts the outputs of all groups, but each reads one channel
                layer.weight.data.mul_(math.sqrt(layer.groups))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


class GhostNet(nn.Module):
    """Class logits of normalized RGB images, (N, 3, H, W)."""

    def __init__(self, config: GhostNetConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or GhostNetConfig()
        self.body = GhostBody(config.kind, config.ratio, config.width)
        tail = divisible(TAIL * config.width)
        self.tail = nn.Sequential(nn.Conv2d(self.body.channels[-1], tail, 1, bias=False), nn.BatchNorm2d(tail))
        self.hidden = nn.Conv2d(tail, HIDDEN, 1)
        self.head = nn.Linear(HIDDEN, config.classes)
        initialize(self.tail)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.tail(self.body(x)[-1])).mean((2, 3), keepdim=True)
        x = F.relu(self.hidden(x)).flatten(1)
        y: Tensor = self.head(F.dropout(x, DROPOUT, self.training))
        return y


def build(config: GhostNetConfig) -> GhostNet:
    return GhostNet(config)


def preprocessing(config: GhostNetConfig) -> dict[str, Any]:
    return image.preprocessing(size=224, crop=image.CENTER)


def init_from(model: GhostNet, other: nn.Module) -> None:
    """Take over the weights of the same network."""
    copy_weights(model, other)
