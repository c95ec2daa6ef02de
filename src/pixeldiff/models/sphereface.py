"""The 20-layer network of SphereFace for faces: float, and binary with Bi-PDC (paper, sections 6.2 and 7.2).

Aligned faces of 112 x 96 pixels go through four stages of 64, 128, 256 and 512 channels. A stage opens with a 3x3
convolution of stride 2 and goes on with 1, 2, 4 and 1 pairs of 3x3 convolutions: 3 + 5 + 9 + 3 = 20. The last map,
7 x 6, is flattened and a linear layer makes the embedding.

    float    PReLU after each convolution, a shortcut around each pair, no batch norm, as in SphereFace
    binary   the first convolution is float, with batch norm; all others are mixed binary layers with a shortcut round
             each, which is average pooling, a float 1x1 convolution and batch norm where a stage opens

`forward` returns embeddings, not yet of length 1. With `classes` people the network also has their weights, `head`,
which only training uses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.models.blocks import binary_unit, float_conv
from pixeldiff.models.config import check_choice, check_differences, copy_weights, scale_channels
from pixeldiff.nn.binary import ACTIVATIONS, RPReLU
from pixeldiff.nn.layers import round_channels
from pixeldiff.nn.margin import AngularMargin

TASK = "faces"
ARCHITECTURES = ("float", "binary")
CHANNELS = (64, 128, 256, 512)
PAIRS = (1, 2, 4, 1)
REDUCTION = 2 ** len(CHANNELS)


@dataclass(frozen=True)
class SphereFaceConfig:
    architecture: str = "binary"  # or float
    kind: str = "central"  # of the differences; "vanilla" for none
    ratio: float = 0.2  # xi, the fraction of the input channels with differences
    width: float = 1.0  # factor on every channel count
    embedding: int = 512
    embedding_norm: bool = False  # batch norm after the linear layer; not in SphereFace, but quicker to train
    classes: int = 0  # people in the training set; 0 for a network that only embeds
    activation: str = "sum"  # RPReLU after the sum of the branches, or one per "branch"
    clip: float = 1.0  # of the straight-through gradient

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, ARCHITECTURES)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_differences(self.kind, self.ratio)
        if self.architecture == "float" and self.activation != SphereFaceConfig.activation:
            raise UserError("activation has no effect in a float network; leave it out")
        if self.embedding < 1 or self.classes < 0 or not self.clip > 0:
            raise UserError(
                f"embedding and clip are positive and classes at least 0, got {self.embedding}, {self.clip} and "
                f"{self.classes}"
            )
        self.channels  # noqa: B018 (checks the width)

    @property
    def channels(self) -> tuple[int, ...]:
        """Channels of the four stages."""
        return scale_channels(CHANNELS, self.width)


VARIANTS = {
    "sphereface20": SphereFaceConfig("float", kind="vanilla", ratio=0.0),
    "sphereface20_binary": SphereFaceConfig(kind="vanilla", ratio=0.0),
    "sphereface20_bipdc": SphereFaceConfig(),
}


def _float_conv(in_channels: int, channels: int, stride: int, config: SphereFaceConfig) -> list[nn.Module]:
    """Build a 3x3 convolution with PReLU."""
    # RGB has few channels: it takes no differences if the ratio rounds down to none of them.
    kind = config.kind if in_channels > 3 or round_channels(config.ratio, in_channels) else "vanilla"
    conv = float_conv(in_channels, channels, stride, kind, config.ratio)
    nn.init.xavier_uniform_(conv.weight)
    return [conv, nn.PReLU(channels)]


class FloatPair(nn.Module):
    """Two 3x3 convolutions with PReLU, and a shortcut around them."""

    def __init__(self, channels: int, config: SphereFaceConfig) -> None:
        super().__init__()
        layers = [*_float_conv(channels, channels, 1, config), *_float_conv(channels, channels, 1, config)]
        self.convs = nn.Sequential(*layers)
        for module in self.convs:
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)  # as in SphereFace: a pair begins close to its shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.convs(x)
        return y


def _float_stage(in_channels: int, channels: int, pairs: int, config: SphereFaceConfig) -> nn.Sequential:
    opening = _float_conv(in_channels, channels, 2, config)
    return nn.Sequential(*opening, *(FloatPair(channels, config) for _ in range(pairs)))


def _binary_stage(in_channels: int, channels: int, pairs: int, config: SphereFaceConfig) -> nn.Sequential:
    if in_channels == 3:
        conv = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        opening: list[nn.Module] = [conv, nn.BatchNorm2d(channels), RPReLU(channels)]
    else:
        opening = [binary_unit(in_channels, channels, 2, config)]
    return nn.Sequential(*opening, *(binary_unit(channels, channels, 1, config) for _ in range(2 * pairs)))


class SphereFace(nn.Module):
    """Embeddings of normalized aligned faces, (N, 3, 112, 96)."""

    def __init__(self, config: SphereFaceConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or SphereFaceConfig()
        stage = _float_stage if config.architecture == "float" else _binary_stage
        widths = (3, *config.channels)
        self.stages = nn.ModuleList(stage(widths[k], widths[k + 1], pairs, config) for k, pairs in enumerate(PAIRS))
        self.last_map = (image.FACE[0] // REDUCTION, image.FACE[1] // REDUCTION)
        self.embed = nn.Linear(widths[-1] * math.prod(self.last_map), config.embedding)
        self.norm = nn.BatchNorm1d(config.embedding) if config.embedding_norm else nn.Identity()
        self.head = AngularMargin(config.embedding, config.classes) if config.classes else None

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) != image.FACE:
            expected, size = (" x ".join(map(str, shape)) for shape in (image.FACE, x.shape[2:]))
            raise UserError(f"this network takes aligned faces of {expected} pixels, got {size}")
        for stage in self.stages:
            x = stage(x)
        y: Tensor = self.norm(self.embed(x.flatten(1)))
        return y


def build(config: SphereFaceConfig) -> SphereFace:
    return SphereFace(config)


def preprocessing(config: SphereFaceConfig) -> dict[str, Any]:
    return image.face_preprocessing()


def init_from(model: SphereFace, other: nn.Module) -> None:
    """Take over the weights of the same network."""
    copy_weights(model, other, ignore=("clip",))
