"""Parts of recognition networks that several families use: 3x3 convolutions with differences, float and binary."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from pixeldiff.nn.binary import BinaryPDCBlock
from pixeldiff.nn.layers import PDConv2d
from pixeldiff.nn.ops import pixel_pairs


def float_conv(in_channels: int, channels: int, stride: int, kind: str, ratio: float) -> nn.Conv2d:
    """Build a 3x3 convolution without a bias, with pixel differences in the given ratio of its input channels."""
    if kind == "vanilla":
        return nn.Conv2d(in_channels, channels, 3, stride, 1, bias=False)
    padding = pixel_pairs(kind).support // 2
    return PDConv2d(in_channels, channels, 3, stride, padding, bias=False, kind=kind, ratio=ratio)


def projection(in_channels: int, channels: int, stride: int) -> nn.Module:
    """Build the shortcut of a binary unit: average pooling, float 1x1 and batch norm where the shape changes."""
    if stride == 1:
        return nn.Identity()
    # Odd sides: the last window is cut, so that pooling and a strided convolution agree on the size.
    pool = nn.AvgPool2d(2, ceil_mode=True, count_include_pad=False)
    return nn.Sequential(pool, nn.Conv2d(in_channels, channels, 1, bias=False), nn.BatchNorm2d(channels))


class BinaryUnit(nn.Module):
    """A mixed binary convolution with its shortcut; nothing after the addition."""

    def __init__(self, conv: BinaryPDCBlock, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv = conv
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x) + self.shortcut(x)
        return y


def binary_unit(
    in_channels: int, channels: int, stride: int, config: Any, shortcut: nn.Module | None = None
) -> BinaryUnit:
    """Build a 3x3 unit by a family's config; the default shortcut is `projection`.

    The config has `kind`, `ratio`, `activation` and `clip`, and may have `fixed_lbp` and `binary_weights`.
    """
    options = {name: getattr(config, name) for name in ("fixed_lbp", "binary_weights") if hasattr(config, name)}
    block = BinaryPDCBlock(
        in_channels,
        channels,
        3,
        stride,
        kind=config.kind,
        ratio=config.ratio,
        activation=config.activation,
        clip=config.clip,
        **options,
    )
    return BinaryUnit(block, projection(in_channels, channels, stride) if shortcut is None else shortcut)
