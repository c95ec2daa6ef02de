"""ResNet-18 and -34 for recognition: float, binary, and Bi-PiDiNet (paper, section 6.2 and figure "Bi-PiDiNet").

    plain    float ResNet (He et al. 2016); with ratio > 0 its 3x3 convolutions take pixel differences (FP-CPDC)
    before   the same body with binary 3x3 convolutions and one shortcut around each; shortcuts that change the
             shape are average pooling, a float 1x1 convolution and batch norm
    after    Bi-PiDiNet: 3x3 stem of 32, wider binary stages, ReplicaPool shortcuts, no float convolution but the stem

Stages of "before" have 64, 128, 256, 512 channels and stride 2 in the first convolution of stages 2 to 4. Stages of
"after" have 128, 192, 384, 768; each opens with a convolution of stride 1 (32 -> 64 in stage 1, always vanilla, else
C -> C) and one of stride 2 to the new width. Nothing follows an addition. `forward` returns class logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.data.cifar import SIDE
from pixeldiff.errors import UserError
from pixeldiff.models.blocks import binary_unit, float_conv
from pixeldiff.models.config import check_choice, check_differences, copy_weights, scale_channels
from pixeldiff.nn.binary import ACTIVATIONS, FIXED_LBP, ReplicaPool, RPReLU

TASK = "classes"
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
CHANNELS = {"plain": (64, 64, 128, 256, 512), "before": (64, 64, 128, 256, 512), "after": (32, 128, 192, 384, 768)}
STEMS = ("imagenet", "cifar")


@dataclass(frozen=True)
class BiPiDiNetConfig:
    architecture: str = "after"  # plain, before or after
    depth: int = 18  # 18 or 34
    kind: str = "central"  # of the differences; "vanilla" for none
    ratio: float = 0.2  # xi, the fraction of the input channels with differences
    width: float = 1.0  # factor on every channel count
    stem: str = "imagenet"  # or "cifar": 3x3, stride 1, no pooling
    classes: int = 1000
    activation: str = "sum"  # RPReLU after the sum of the branches, or one per "branch"
    fixed_lbp: str | None = None  # "random" or "uniform": difference weights are drawn once and not trained
    binary_weights: bool = True  # False: binary activations only, the first stage of two-stage training
    clip: float = 1.0  # of the straight-through gradient

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, CHANNELS)
        check_choice("depth", self.depth, BLOCKS)
        check_choice("stem", self.stem, STEMS)
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.fixed_lbp is not None:
            check_choice("fixed_lbp", self.fixed_lbp, FIXED_LBP)
        check_differences(self.kind, self.ratio)
        binary_only = [name for name in ("activation", "fixed_lbp", "binary_weights") if self._changed(name)]
        if self.architecture == "plain" and binary_only:
            raise UserError(f"{', '.join(binary_only)} has no effect in a float network; leave it out")
        if self.fixed_lbp is not None and self.kind == "vanilla":
            raise UserError("fixed_lbp has no effect without differences; give a ratio above 0 and a kind")
        if self.classes < 1 or not self.clip > 0:
            raise UserError(f"classes and clip are positive, got {self.classes} and {self.clip}")
        self.channels  # noqa: B018 (checks the width)

    def _changed(self, name: str) -> bool:
        return bool(getattr(self, name) != getattr(type(self), name))

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the stem and of the four stages."""
        return scale_channels(CHANNELS[self.architecture], self.width)


_NETWORKS = {
    "resnet{}": BiPiDiNetConfig("plain", kind="vanilla", ratio=0.0),
    "resnet{}_pdc": BiPiDiNetConfig("plain"),
    "resnet{}_binary": BiPiDiNetConfig("before", kind="vanilla", ratio=0.0),
    "resnet{}_bipdc": BiPiDiNetConfig("before"),
    "bipidinet{}": BiPiDiNetConfig("after"),
}
_IMAGENET = {name.format(depth): replace(c, depth=depth) for depth in BLOCKS for name, c in _NETWORKS.items()}
VARIANTS = _IMAGENET | {f"{name}_cifar": replace(c, stem="cifar", classes=100) for name, c in _IMAGENET.items()}


class FloatBlock(nn.Module):
    """The basic block of ResNet: two 3x3 convolutions, ReLU after the addition."""

    def __init__(self, in_channels: int, channels: int, stride: int, config: BiPiDiNetConfig) -> None:
        super().__init__()
        self.conv1 = float_conv(in_channels, channels, stride, config.kind, config.ratio)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = float_conv(channels, channels, 1, config.kind, config.ratio)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def _stem(config: BiPiDiNetConfig) -> nn.Sequential:
    channels = config.channels[0]
    activation = nn.ReLU() if config.architecture == "plain" else RPReLU(channels)
    if config.stem == "cifar":
        conv = nn.Conv2d(3, channels, 3, 1, 1, bias=False)
    elif config.architecture == "after":
        conv = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
    else:
        conv = nn.Conv2d(3, channels, 7, 2, 3, bias=False)
    stem = nn.Sequential(conv, nn.BatchNorm2d(channels), activation)
    if config.stem == "imagenet" and config.architecture != "after":
        stem.append(nn.MaxPool2d(3, 2, 1))
    return stem


def _block(in_channels: int, channels: int, stage: int, block: int, config: BiPiDiNetConfig) -> list[nn.Module]:
    """Build one block: a float block, or two binary units."""
    stride = 2 if stage > 0 and block == 0 else 1
    if config.architecture == "plain":
        return [FloatBlock(in_channels, channels, stride, config)]
    if config.architecture == "before":
        return [binary_unit(in_channels, channels, stride, config), binary_unit(channels, channels, 1, config)]
    if block > 0:
        return [binary_unit(channels, channels, 1, config) for _ in range(2)]
    if stage == 0:
        # The stem has few channels, and this unit already doubles them: it takes no differences.
        middle = 2 * in_channels
        opening = replace(config, kind="vanilla", ratio=0.0, fixed_lbp=None)
        first = binary_unit(in_channels, middle, 1, opening, ReplicaPool.between(in_channels, middle, pool=False))
    else:
        middle = in_channels
        first = binary_unit(in_channels, middle, 1, config)
    return [first, binary_unit(middle, channels, 2, config, ReplicaPool.between(middle, channels))]


class BiPiDiNet(nn.Module):
    """Class logits of normalized RGB images, (N, 3, H, W)."""

    def __init__(self, config: BiPiDiNetConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or BiPiDiNetConfig()
        before, *widths = config.channels
        self.stem = _stem(config)
        self.stages = nn.ModuleList()
        for index, (channels, blocks) in enumerate(zip(widths, BLOCKS[config.depth], strict=True)):
            stage = nn.Sequential()
            for block in range(blocks):
                stage.extend(_block(before, channels, index, block, config))
                before = channels
            self.stages.append(stage)
        self.head = nn.Linear(before, config.classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for stage in self.stages:
            x = stage(x)
        y: Tensor = self.head(x.mean((2, 3)))
        return y


def build(config: BiPiDiNetConfig) -> BiPiDiNet:
    return BiPiDiNet(config)


def preprocessing(config: BiPiDiNetConfig) -> dict[str, Any]:
    if config.stem == "cifar":
        return image.preprocessing(size=SIDE, crop=1.0)
    return image.preprocessing(size=224, crop=image.CENTER)


def init_from(model: BiPiDiNet, other: nn.Module) -> None:
    """Take over the weights of the same network, which may be of the other stage of two-stage training."""
    copy_weights(model, other, ignore=("binary_weights", "clip"))
