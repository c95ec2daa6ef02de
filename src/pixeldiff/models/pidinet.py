"""PiDiNet, the edge network of the paper (section 6.1, figure "Network Architecture of our PiDiNet").

A stem and 15 residual blocks in four stages of C, 2C, 4C, 4C channels; a side branch per stage
(CDCM, CSAM, 1x1 to one map, bilinear to the input's size); a 1x1 fusion of the four maps.
A network is a pattern (the first letter of the kind of each of 16 layers: c central, a angular, r radial, v vanilla), a
width and three switches. Models return logits: `forward` the fused map, `side_logits` all five.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.nn.layers import CDCM, CSAM, PDConv2d
from pixeldiff.nn.ops import kind_name
from pixeldiff.weights.pairs import KINDS, pixel_pairs

TASK = "edges"

# The 14 configurations of the paper's architecture table.
PATTERNS = {
    "carv": "carv" * 4,
    "baseline": "v" * 16,
    **{f"{letter}-v15": letter + "v" * 15 for letter in "car"},
    **{f"{letter}vvv": f"{letter}vvv" * 4 for letter in "car"},
    **{f"{letter * 3}v": f"{letter * 3}v" * 4 for letter in "car"},
    **{f"{letter}16": letter * 16 for letter in "car"},
}


def letters() -> dict[str, str]:
    """Return the kinds by their first letters."""
    return {kind[0]: kind for kind in KINDS}


@dataclass(frozen=True)
class PiDiNetConfig:
    width: int = 60  # C
    side_channels: int = 24  # M
    pattern: str = "carv"  # a name in PATTERNS or 16 letters
    cdcm: bool = True
    csam: bool = True
    shortcuts: bool = True

    def __post_init__(self) -> None:
        pattern = PATTERNS.get(self.pattern, self.pattern).lower()
        if len(pattern) != 16 or set(pattern) - set(letters()):
            raise UserError(
                f"invalid pattern {self.pattern!r}; expected 16 of the letters {', '.join(letters())}, or one of "
                f"{', '.join(PATTERNS)}"
            )
        object.__setattr__(self, "pattern", pattern)
        if not all(isinstance(count, int) and count >= 1 for count in (self.width, self.side_channels)):
            raise UserError(
                f"width and side_channels are whole numbers of at least 1, got {self.width} and {self.side_channels}"
            )


_FULL = {
    "tiny": PiDiNetConfig(20, 8),
    "small": PiDiNetConfig(30, 12),
    "basic": PiDiNetConfig(60, 24),
    # The paper plots these two without their widths; here C is 1.5 and 2 times that of basic, and M = 0.4 C.
    "wide": PiDiNetConfig(90, 36),
    "wider": PiDiNetConfig(120, 48),
}
VARIANTS = _FULL | {f"{name}-l": replace(config, cdcm=False, csam=False) for name, config in _FULL.items()}


class Block(nn.Module):
    """Depthwise PDC 3x3 -> ReLU -> pointwise 1x1, plus the shortcut (1x1 where a stage begins)."""

    def __init__(self, in_channels: int, channels: int, kind: str, opens_stage: bool, shortcut: bool) -> None:
        super().__init__()
        self.opens_stage = opens_stage
        self.depthwise = PDConv2d(
            in_channels, in_channels, 3, padding="same", groups=in_channels, bias=False, kind=kind
        )
        self.pointwise = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.shortcut: nn.Module | None = None
        if shortcut:
            self.shortcut = nn.Conv2d(in_channels, channels, 1) if opens_stage else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        if self.opens_stage:
            x = F.max_pool2d(x, 2)
        y = self.pointwise(F.relu(self.depthwise(x)))
        result: Tensor = y if self.shortcut is None else y + self.shortcut(x)
        return result


class SideBranch(nn.Module):
    """Compute one map of logits from a stage's features, at that stage's resolution."""

    def __init__(self, in_channels: int, config: PiDiNetConfig) -> None:
        super().__init__()
        channels = config.side_channels if config.cdcm else in_channels
        self.dilate = CDCM(in_channels, channels) if config.cdcm else nn.Identity()
        self.attend = CSAM(channels) if config.csam else nn.Identity()
        self.reduce = nn.Conv2d(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.reduce(self.attend(self.dilate(x)))
        return result


def upsample(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize maps bilinearly to (height, width)."""
    return F.interpolate(x, size, mode="bilinear", align_corners=False)


class PiDiNet(nn.Module):
    """Edge logits of normalized RGB images, (N, 3, H, W) with H and W at least 8 (the three poolings)."""

    def __init__(self, config: PiDiNetConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or PiDiNetConfig()
        kinds = [letters()[letter] for letter in config.pattern]
        width = config.width
        self.stem = PDConv2d(3, width, 3, padding="same", bias=False, kind=kinds[0])
        self.stages = nn.ModuleList()
        self.sides = nn.ModuleList()
        before = width
        for index, channels in enumerate((width, 2 * width, 4 * width, 4 * width)):
            stage = nn.Sequential()
            # The stem is layer 1 of stage 1, which therefore has three blocks.
            for layer in range(4 * index + (index == 0), 4 * index + 4):
                opens = index > 0 and layer == 4 * index
                stage.append(Block(before, channels, kinds[layer], opens, config.shortcuts))
                before = channels
            self.stages.append(stage)
            self.sides.append(SideBranch(channels, config))
        self.fusion = nn.Conv2d(4, 1, 1)
        nn.init.constant_(self.fusion.weight, 0.25)
        nn.init.zeros_(self.fusion.bias)  # type: ignore[arg-type]

    def side_maps(self, x: Tensor) -> list[Tensor]:
        """Compute the four side logits, each at its stage's resolution."""
        x = self.stem(x)
        maps = []
        for stage, side in zip(self.stages, self.sides, strict=True):
            x = stage(x)
            maps.append(side(x))
        return maps

    def side_logits(self, x: Tensor) -> list[Tensor]:
        """Compute five maps of logits at the input's size: the four sides, then the fused one."""
        size = (x.shape[-2], x.shape[-1])
        first, *smaller = self.side_maps(x)
        sides = [first, *(upsample(side, size) for side in smaller)]
        return [*sides, self.fusion(torch.cat(sides, dim=1))]

    def forward(self, x: Tensor) -> Tensor:
        return self.side_logits(x)[-1]


def build(config: PiDiNetConfig) -> PiDiNet:
    return PiDiNet(config)


def engine_layout(model: PiDiNet) -> list[tuple[str, str]] | None:
    """Return the tensors in the order of native/float/pidinet.hpp, with the kind of each kernel ("" without one).

    None if the engine cannot run the network: its kernels are 3x3, or radial.
    """
    layers = {f"{name}.weight": layer for name, layer in model.named_modules() if isinstance(layer, PDConv2d)}
    if any(layer.pairs.support != 3 and layer.pairs != pixel_pairs("radial") for layer in layers.values()):
        return None
    parts = ["stem", *(f"{part}.{stage}" for stage in range(4) for part in ("stages", "sides")), "fusion"]
    names = [f"{part}.{name}" for part in parts for name in model.get_submodule(part).state_dict()]
    return [(name, kind_name(layers[name].kind) if name in layers else "") for name in names]


def preprocessing(config: PiDiNetConfig) -> dict[str, Any]:
    return image.preprocessing()


def init_from(model: PiDiNet, other: nn.Module) -> None:
    """Give `model` the function of `other`: the same network, or one with fewer channels (Net2Net, Chen et al. 2016).

    Channel j of the wide network repeats channel j mod n of the narrow one. The weights that read a repeated channel
    divide its old weight at random, so the sums stay the same while the repeats learn different things. If the side
    branches are of another kind (cdcm, csam), the stages are taken over and the sides keep their fresh weights.
    """
    if not isinstance(other, PiDiNet):
        raise UserError(f"they are the weights of a {type(other).__name__}, this is a PiDiNet")
    old, new = other.config, model.config
    if old == new:
        model.load_state_dict(other.state_dict())
        return
    same_stages = replace(new, width=old.width, side_channels=old.side_channels, cdcm=old.cdcm, csam=old.csam) == old
    same_sides = (new.cdcm, new.csam) == (old.cdcm, old.csam)
    if not same_stages or new.width < old.width or new.side_channels < old.side_channels:
        raise UserError(f"weights of {old} do not fit {new}; give weights of the same network or of a narrower one")
    before = other.state_dict()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.state_dict().items():
            if name.startswith("sides.") and not same_sides:
                continue
            value = before[name]
            value = value[torch.arange(len(weight)) % len(value)]
            if weight.dim() > 1:
                repeats = torch.arange(weight.shape[1]) % value.shape[1]
                part = torch.rand(weight.shape, generator=generator) + 0.5
                total = torch.zeros_like(value).index_add_(1, repeats, part)
                value = value[:, repeats] * (part / total[:, repeats])
            weight.copy_(value)
