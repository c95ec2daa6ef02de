"""Float layers: pixel difference convolution as a drop-in nn.Conv2d, and the side modules of PiDiNet."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.nn.ops import PixelPairs, fold, kind_name, radial_depthwise, resolve_pairs

Pair = int | tuple[int, int]


def _pair(value: Pair) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def check_ratio(ratio: float) -> None:
    """Raise an error unless `ratio` lies in [0, 1]."""
    if not 0.0 <= ratio <= 1.0:
        raise UserError(f"ratio is the fraction of the input channels with differences, 0 to 1, got {ratio}")


def round_channels(ratio: float, channels: int) -> int:
    """Return floor(ratio * channels)."""
    return math.floor(ratio * channels + 1e-9)  # 0.29 * 100 is 28.999...


def count_difference_channels(ratio: float, channels: int) -> int:
    """Return how many of the channels, counted from the first, take differences: floor(ratio * channels).

    A ratio above 0 that rounds to none of the channels is an error.
    """
    check_ratio(ratio)
    count = round_channels(ratio, channels)
    if ratio > 0 and channels > 0 and not count:
        raise UserError(
            f"ratio={ratio:g} of {channels} input channels rounds down to none with differences; "
            f"give a ratio of {math.ceil(1e4 / channels) / 1e4:g} or more, or ratio=0 for plain pixels"
        )
    return count


def _check_padding(
    pairs: PixelPairs, padding: Pair | str, stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int]:
    """Return the padding as numbers; an error if it keeps the size for the kernel's size but not for the support."""
    same = tuple(d * (pairs.support // 2) for d in dilation)
    if padding == "same":
        if stride != (1, 1):
            raise UserError(f"padding='same' needs stride 1, got stride {stride}; give padding={same[0]}")
        return same[0], same[1]
    if padding == "valid":
        return 0, 0
    if isinstance(padding, str):
        raise UserError(f"unknown padding {padding!r}; use 'same', 'valid' or numbers")
    numbers = _pair(padding)
    nominal = tuple(d * (pairs.kernel_size // 2) for d in dilation)
    if pairs.support > pairs.kernel_size and numbers == nominal:
        k, wide = pairs.kernel_size, pairs.support
        raise UserError(
            f"these differences of a {k}x{k} kernel read {wide}x{wide} pixels, "
            f"so padding={numbers[0]} would not keep the size; use padding={same[0]} or 'same'"
        )
    return numbers


class PDConv2d(nn.Conv2d):
    """Pixel difference convolution, y = sum_i w_i (x_i - x'_i) (paper, section 3.2).

    Takes the arguments of nn.Conv2d, `kind` (central, angular, radial, vanilla or a PixelPairs) and `ratio`: the
    fraction of the input channels, counted from the first, that takes differences; the others take plain pixels.
    `padding` is that of the folded kernel, which is `pairs.support` wide (5 for radial 3x3): "same" is always right,
    and a padding that keeps the size for a kernel of `kernel_size` only is an error.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        kind: str | PixelPairs = "central",
        ratio: float = 1.0,
    ) -> None:
        height, width = _pair(kernel_size)
        if height != width:
            raise UserError(f"PDConv2d needs a square kernel, got {height}x{width}")
        pairs = resolve_pairs(kind, height)
        check_ratio(ratio)
        count = in_channels if kind == "vanilla" else count_difference_channels(ratio, in_channels)
        if count and not pairs.matrix().any():
            raise UserError(f"a {height}x{height} kernel of kind {kind_name(kind)} has no differences; use nn.Conv2d")
        padding = _check_padding(pairs, padding, _pair(stride), _pair(dilation))
        super().__init__(
            in_channels,
            out_channels,
            height,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,  # type: ignore[arg-type]
            device,
            dtype,
        )
        self.kind = kind
        self.pairs = pairs
        self.ratio = ratio
        self.difference_channels = count

    def folded_weight(self) -> Tensor:
        """Return the plain kernel of this layer, (out, in / groups, support, support)."""
        folded = fold(self.weight, self.kind)
        if self.difference_channels == self.in_channels:
            return folded
        margin = (self.pairs.support - self.kernel_size[0]) // 2
        plain = F.pad(self.weight, (margin,) * 4)
        # Input channel of each kernel slice: with groups, output row o reads channels group(o) * (in / groups) + j.
        per_group = self.in_channels // self.groups
        group = torch.arange(self.out_channels, device=self.weight.device) // (self.out_channels // self.groups)
        channel = group[:, None] * per_group + torch.arange(per_group, device=self.weight.device)
        return torch.where((channel < self.difference_channels)[:, :, None, None], folded, plain)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self._is_radial_depthwise():
            return radial_depthwise(x, self.weight)
        result: Tensor = self._conv_forward(x, self.folded_weight(), self.bias)
        return result

    def _is_radial_depthwise(self) -> bool:
        """Return whether this is a layer that `radial_depthwise` computes, as those of PiDiNet's blocks."""
        return (
            self.kind == "radial"
            and self.weight.shape[1:] == (1, 3, 3)
            and self.in_channels == self.out_channels == self.difference_channels
            and self.bias is None
            and (self.stride, self.padding, self.dilation) == ((1, 1), (2, 2), (1, 1))
            and self.padding_mode == "zeros"
        )

    def fuse(self) -> nn.Conv2d:
        """Return the nn.Conv2d that computes the same, with the folded kernel as its weight."""
        conv = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            self.pairs.support,
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            self.dilation,  # type: ignore[arg-type]
            self.groups,
            self.bias is not None,
            self.padding_mode,
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        with torch.no_grad():
            conv.weight.copy_(self.folded_weight())
            if self.bias is not None and conv.bias is not None:
                conv.bias.copy_(self.bias)
        return conv

    def extra_repr(self) -> str:
        ratio = f", ratio={self.ratio}" if self.ratio < 1 else ""
        return f"{super().extra_repr()}, kind={kind_name(self.kind)}{ratio}"  # type: ignore[no-untyped-call]


def _substitute(model: nn.Module, twins: Mapping[nn.Module, nn.Module]) -> None:
    """Put the twin of each layer in all places of that layer."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child is not None and child in twins:
                setattr(parent, name, twins[child])


def fuse(model: nn.Module) -> nn.Module:
    """Return a copy of `model` with every PDConv2d replaced by the nn.Conv2d that computes the same."""
    model = copy.deepcopy(model)
    if isinstance(model, PDConv2d):
        return model.fuse()
    _substitute(model, {layer: layer.fuse() for layer in model.modules() if isinstance(layer, PDConv2d)})
    return model


def _takes_differences(conv: nn.Conv2d) -> bool:
    k = conv.kernel_size
    return type(conv) is nn.Conv2d and k[0] == k[1] and k[0] % 2 == 1 and k[0] > 1


def _with_differences(conv: nn.Conv2d, kind: str | PixelPairs, ratio: float) -> PDConv2d:
    layer = PDConv2d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        conv.stride,  # type: ignore[arg-type]
        "same" if conv.padding == "same" else "valid",
        conv.dilation,  # type: ignore[arg-type]
        conv.groups,
        conv.bias is not None,
        conv.padding_mode,
        conv.weight.device,
        conv.weight.dtype,
        kind=kind,
        ratio=ratio,
    )
    if not isinstance(conv.padding, str):
        # Set afterwards: the constructor rejects a padding that fits the kernel but not the support.
        margin = (layer.pairs.support - layer.pairs.kernel_size) // 2
        layer.padding = tuple(p + margin * d for p, d in zip(conv.padding, conv.dilation, strict=True))
        layer._reversed_padding_repeated_twice = [p for p in reversed(layer.padding) for _ in range(2)]
    layer.weight, layer.bias = conv.weight, conv.bias
    return layer.train(conv.training)


def replace_convs(
    module: nn.Module,
    kind: str | PixelPairs = "central",
    *,
    ratio: float = 1.0,
    include: Collection[str] | Callable[[str, nn.Conv2d], bool] | None = None,
) -> dict[str, int]:
    """Put pixel differences into the convolutions of any network, in place; its weights stay.

    If `ratio` rounds down to none of a layer's channels, as in a layer that reads RGB, the layer stays as it is, and a
    warning names it. If the differences read more pixels than the kernel has, the padding grows by as much, so shapes
    stay. A layer that stands in several places stays one layer.

    Args:
        module: The network; a bare convolution has to be wrapped in nn.Sequential.
        kind: "central", "angular", "radial", "vanilla" or a PixelPairs.
        ratio: Fraction of each layer's input channels that takes differences (xi of the paper's detectors).
        include: Names as in `module.named_modules()`, or a test on (name, layer). Default: every square nn.Conv2d (no
            subclass, which may compute something else) with an odd kernel of 3 or more.

    Returns:
        The number of input channels with differences, by the name of each chosen layer.
    """
    layers = module.named_modules(remove_duplicate=False)
    convs = {name: m for name, m in layers if isinstance(m, nn.Conv2d) and not isinstance(m, PDConv2d)}
    if include is None:
        size = kind.kernel_size if isinstance(kind, PixelPairs) else None
        chosen = [n for n, conv in convs.items() if _takes_differences(conv) and size in (None, conv.kernel_size[0])]
    elif callable(include):
        chosen = [name for name, conv in convs.items() if include(name, conv)]
    else:
        chosen = list(include)
        if unknown := sorted(set(chosen) - set(convs)):
            raise UserError(f"no nn.Conv2d named {', '.join(unknown[:5])}; there are {', '.join(list(convs)[:10])}")
    if "" in chosen:
        raise UserError("replace_convs replaces layers inside a module; wrap a bare convolution in nn.Sequential")
    check_ratio(ratio)
    counts = {name: 0 if kind == "vanilla" else round_channels(ratio, convs[name].in_channels) for name in chosen}
    changed = dict.fromkeys(convs[name] for name in chosen if counts[name])
    _substitute(module, {conv: _with_differences(conv, kind, ratio) for conv in changed})
    if ratio > 0 and (same := [name for name, count in counts.items() if not count]):
        warnings.warn(
            f"{len(same)} of {len(counts)} layers take no differences, {same[0]} is the first: ratio={ratio:g} of its "
            f"{convs[same[0]].in_channels} input channels rounds down to none; give a larger ratio, or other layers "
            "with include=",
            stacklevel=2,
        )
    return counts


class CDCM(nn.Module):
    """Compact dilation convolution module (paper, section 6.1): the sum of four dilated convolutions."""

    DILATIONS = (5, 7, 9, 11)

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(in_channels, channels, 1)
        self.views = nn.ModuleList(
            nn.Conv2d(channels, channels, 3, padding=d, dilation=d, bias=False) for d in self.DILATIONS
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(F.relu(x))
        missing = -x.shape[1] % 16 if x.dtype == torch.bfloat16 and x.shape[1] > 16 else 0
        if missing:
            # On a CPU, oneDNN in torch 2.13 gives wrong gradients of dilated weights for 24 inputs, or crashes.
            x = F.pad(x, (0, 0, 0, 0, 0, missing))
            weights = [F.pad(w, (0, 0, 0, 0, 0, missing)) for w in self.views.parameters()]
            views = [F.conv2d(x, w, padding=d, dilation=d) for w, d in zip(weights, self.DILATIONS, strict=True)]
        else:
            views = [view(x) for view in self.views]
        total, *rest = views
        for y in rest:
            total = total + y
        return total


class CSAM(nn.Module):
    """Compact spatial attention module (paper, section 6.1): multiplies its input by a map in (0, 1)."""

    def __init__(self, channels: int, hidden: int = 4) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, hidden, 1)
        self.attend = nn.Conv2d(hidden, 1, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.attend(self.squeeze(F.relu(x))))
