"""ResNet-18 and -34 for recognition: float, binary, and Bi-PiDiNet (paper, section 6.2 and figure "Bi-PiDiNet").

    plain    float ResNet (He et al. 2016); with share > 0 its 3x3 convolutions see pixel differences (FP-CPDC)
    before   the same body with binary 3x3 convolutions and one shortcut round each; shortcuts that change the
             shape are average pooling, a float 1x1 convolution and batch norm
    after    Bi-PiDiNet: 3x3 stem of 32, wider binary stages, ReplicaPool shortcuts, no float convolution but the stem

Stages of "before" have 64, 128, 256, 512 channels and stride 2 in the first convolution of stages 2 to 4. Stages of
"after" have 128, 192, 384, 768; each opens with a convolution of stride 1 (32 -> 64 in stage 1, always vanilla, else
C -> C) and one of stride 2 to the new width. Nothing follows an addition. `forward` returns class logits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.data.cifar import SIDE
from pixeldiff.errors import UserError
from pixeldiff.nn.binary import ACTIVATIONS, FIXED_LBP, BinaryPDConv2d, ReplicaPool, RPReLU
from pixeldiff.nn.layers import PDConv2d, check_share
from pixeldiff.nn.ops import PixelPairs, pixel_pairs
from pixeldiff.weights.pairs import KINDS

TASK = "classes"
BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
CHANNELS = {"plain": (64, 64, 128, 256, 512), "before": (64, 64, 128, 256, 512), "after": (32, 128, 192, 384, 768)}
STEMS = ("imagenet", "cifar")


@dataclass(frozen=True)
class BiPiDiNetConfig:
    architecture: str = "after"  # plain, before or after
    depth: int = 18  # 18 or 34
    kind: str = "central"  # of the differences; "vanilla" for none
    share: float = 0.2  # xi, the part of the input channels that sees differences
    width: float = 1.0  # factor on every channel count
    stem: str = "imagenet"  # or "cifar": 3x3, stride 1, no pooling
    classes: int = 1000
    activation: str = "sum"  # RPReLU after the sum of the branches, or one per "branch"
    fixed_lbp: str | None = None  # "random" or "uniform": difference weights drawn once, never trained
    binary_weights: bool = True  # False: binary activations only, the first stage of two-stage training
    clip: float = 1.0  # of the straight-through gradient

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, CHANNELS)
        check_choice("depth", self.depth, BLOCKS)
        check_choice("stem", self.stem, STEMS)
        check_choice("activation", self.activation, ACTIVATIONS)
        if self.fixed_lbp is not None:
            check_choice("fixed_lbp", self.fixed_lbp, FIXED_LBP)
        check_kind(self.kind)
        check_share(self.share)
        differences = self.kind != "vanilla"
        if differences != (self.share > 0):
            raise UserError(
                f"kind {self.kind!r} with share {self.share:g} would do nothing; "
                + ("give a share above 0, or kind 'vanilla'" if differences else "give share 0, or another kind")
            )
        binary_only = [name for name in ("activation", "fixed_lbp", "binary_weights") if self._changed(name)]
        if self.architecture == "plain" and binary_only:
            raise UserError(f"{', '.join(binary_only)} would do nothing in a float network")
        if self.fixed_lbp is not None and not differences:
            raise UserError("fixed_lbp would do nothing without differences; give a share above 0 and a kind")
        if self.classes < 1 or not self.clip > 0:
            raise UserError(f"classes and clip are positive, got {self.classes} and {self.clip}")
        self.channels  # noqa: B018 (checks the width)

    def _changed(self, name: str) -> bool:
        return bool(getattr(self, name) != getattr(type(self), name))

    @property
    def channels(self) -> tuple[int, ...]:
        """Of the stem and the four stages."""
        scaled = [c * self.width for c in CHANNELS[self.architecture]]
        if not (math.isfinite(self.width) and self.width > 0) or any(c != int(c) for c in scaled):
            raise UserError(
                f"width {self.width} does not give whole channel counts "
                f"({', '.join(f'{c:g}' for c in scaled)}); use a multiple of 1/{CHANNELS[self.architecture][0]}"
            )
        return tuple(int(c) for c in scaled)


def check_choice(field: str, value: object, choices: object) -> None:
    """An error unless a config's value is one of those that there are."""
    if value not in list(choices):  # type: ignore[call-overload]
        raise UserError(f"unknown {field} {value!r}; use one of {', '.join(map(str, choices))}")  # type: ignore[call-overload]


def check_kind(kind: object) -> None:
    """An error unless a config's kind of differences has a name: a config is written into weights files."""
    if isinstance(kind, PixelPairs):
        raise UserError(
            f"the kind of a network is a name, {', '.join(KINDS)}, because weights files hold it; give a PixelPairs to "
            "layers: PDConv2d, BinaryPDConv2d, or replace_convs(model, pairs) on a network without differences"
        )
    check_choice("kind", kind, KINDS)


_KINDS = {
    "resnet{}": BiPiDiNetConfig("plain", kind="vanilla", share=0.0),
    "resnet{}_pdc": BiPiDiNetConfig("plain"),
    "resnet{}_binary": BiPiDiNetConfig("before", kind="vanilla", share=0.0),
    "resnet{}_bipdc": BiPiDiNetConfig("before"),
    "bipidinet{}": BiPiDiNetConfig("after"),
}
_IMAGENET = {name.format(depth): replace(c, depth=depth) for depth in BLOCKS for name, c in _KINDS.items()}
VARIANTS = _IMAGENET | {f"{name}_cifar": replace(c, stem="cifar", classes=100) for name, c in _IMAGENET.items()}


class FloatBlock(nn.Module):
    """The basic block of ResNet: two 3x3 convolutions, ReLU after the addition."""

    def __init__(self, in_channels: int, channels: int, stride: int, config: BiPiDiNetConfig) -> None:
        super().__init__()
        self.conv1 = float_conv(in_channels, channels, stride, config.kind, config.share)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = float_conv(channels, channels, 1, config.kind, config.share)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def float_conv(in_channels: int, channels: int, stride: int, kind: str, share: float) -> nn.Conv2d:
    """3x3, without a bias; pixel differences in a share of the channels, if any."""
    if kind == "vanilla":
        return nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
    padding = pixel_pairs(kind).support // 2
    return PDConv2d(in_channels, channels, 3, stride, padding, bias=False, kind=kind, share=share)


class BinaryUnit(nn.Module):
    """A mixed binary convolution with its shortcut; nothing after the addition."""

    def __init__(self, conv: BinaryPDConv2d, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x) + self.shortcut(x)
        return y


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
    """One block: a float block, or two binary units."""
    stride = 2 if stage > 0 and block == 0 else 1
    if config.architecture == "plain":
        return [FloatBlock(in_channels, channels, stride, config)]
    if config.architecture == "before":
        first = BinaryUnit(_mixed(in_channels, channels, stride, config), projection(in_channels, channels, stride))
        return [first, BinaryUnit(_mixed(channels, channels, 1, config), nn.Identity())]
    if block > 0:
        return [BinaryUnit(_mixed(channels, channels, 1, config), nn.Identity()) for _ in range(2)]
    if stage == 0:
        # The stem's few channels see no differences; the unit already doubles them.
        opening = replace(config, kind="vanilla", share=0.0, fixed_lbp=None)
        middle = 2 * in_channels
        first = BinaryUnit(
            _mixed(in_channels, middle, 1, opening), ReplicaPool.between(in_channels, middle, pool=False)
        )
    else:
        middle = in_channels
        first = BinaryUnit(_mixed(in_channels, middle, 1, config), nn.Identity())
    return [first, BinaryUnit(_mixed(middle, channels, 2, config), ReplicaPool.between(middle, channels))]


def _mixed(in_channels: int, channels: int, stride: int, config: BiPiDiNetConfig) -> BinaryPDConv2d:
    return BinaryPDConv2d(
        in_channels,
        channels,
        3,
        stride,
        kind=config.kind,
        share=config.share,
        activation=config.activation,
        clip=config.clip,
        fixed_lbp=config.fixed_lbp,
        binary_weights=config.binary_weights,
    )


def projection(in_channels: int, channels: int, stride: int) -> nn.Module:
    """The shortcut of a binary unit: average pooling, float 1x1 and batch norm where the shape changes."""
    if stride == 1:
        return nn.Identity()
    # Odd sides: the last window is cut, so that pooling and a strided convolution agree on the size.
    pool = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
    return nn.Sequential(pool, nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))


def build(config: BiPiDiNetConfig) -> BiPiDiNet:
    return BiPiDiNet(config)


def preprocessing(config: BiPiDiNetConfig) -> dict[str, Any]:
    if config.stem == "cifar":
        return image.preprocessing(size=SIDE, crop=1.0)
    return image.preprocessing(size=224, crop=image.CENTER)
