"""Binary layers (paper, sections 4 and 6.2): RPReLU, ReplicaPool and the mixed convolution of Bi-PiDiNet.

The docstring of `BinaryPDCBlock` defines what the packed kernels compute; tests/nn/test_binary.py compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.nn.layers import count_difference_channels
from pixeldiff.nn.lbp import fixed_kernels
from pixeldiff.nn.ops import PixelPairs, binary_conv2d, binary_pdc, kind_name, resolve_pairs, sign

ACTIVATIONS = ("sum", "branch")
# How fixed LBP kernels are drawn -> fraction of uniform patterns among them (None: as many as chance gives).
FIXED_LBP: dict[str, float | None] = {"random": None, "uniform": 0.8}


class _RPReLU(torch.autograd.Function):
    """RPReLU with a written gradient, which takes half the time of autograd's."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, before: Tensor, slope: Tensor, after: Tensor) -> Tensor:
        ctx.save_for_backward(x, before, slope)
        return torch.prelu(x + before[:, None, None], slope).add_(after[:, None, None])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, before, slope = ctx.saved_tensors
        z = x + before[:, None, None]  # again, so that the gradient has a gradient, too
        pixels = (0, 2, 3)
        below = gradient - torch.ops.aten.threshold_backward(gradient, z, 0)  # where z <= 0
        to_x = torch.addcmul(gradient, below, (slope - 1)[:, None, None])
        return to_x, to_x.sum(pixels), (below * z).sum(pixels), gradient.sum(pixels)


class RPReLU(nn.Module):
    """PReLU between two learned shifts (ReActNet): y = prelu(x + before) + after, 3 parameters per channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.before = nn.Parameter(torch.zeros(channels))
        self.slope = nn.Parameter(torch.full((channels,), 0.25))
        self.after = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _RPReLU.apply(x, self.before, self.slope, self.after)  # type: ignore[no-untyped-call]
        return y


class ReplicaPool(nn.Module):
    """A shortcut that widens without parameters (paper, Algorithm 1): C' = M * C + C / N, half the size.

    Average pooling 2x2, then M copies of it and the mean of its N equal parts, joined along the channels.
    `pool=False` omits the pooling, for a convolution of stride 1.
    """

    def __init__(self, copies: int = 1, parts: int = 1, *, pool: bool = True) -> None:
        super().__init__()
        if copies < 1 or parts < 1:
            raise UserError(f"ReplicaPool needs copies and parts of at least 1, got {copies} and {parts}")
        self.copies = copies  # M
        self.parts = parts  # N
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        channels, height, width = x.shape[1:]
        if channels % self.parts:
            raise UserError(f"ReplicaPool cannot split {channels} channels into N={self.parts} equal parts")
        if self.pool and (height % 2 or width % 2):
            raise UserError(f"ReplicaPool halves the size, so it must be even, got {height}x{width}")
        if self.pool:
            x = F.avg_pool2d(x, 2)
        last = x if self.parts == 1 else x.unflatten(1, (self.parts, -1)).mean(1)
        return torch.cat([x] * self.copies + [last], dim=1)

    @classmethod
    def between(cls, in_channels: int, out_channels: int, *, pool: bool = True) -> ReplicaPool:
        """Build the ReplicaPool of the smallest M and N from one width to the other."""
        extra = out_channels % in_channels or in_channels
        copies = (out_channels - extra) // in_channels
        if copies < 1 or in_channels % extra:
            raise UserError(
                f"ReplicaPool cannot widen {in_channels} channels to {out_channels}; "
                f"the new width must be M * {in_channels} + {in_channels} / N with whole M and N"
            )
        return cls(copies, in_channels // extra, pool=pool)

    def extra_repr(self) -> str:
        return f"copies={self.copies}, parts={self.parts}" + ("" if self.pool else ", pool=False")


class BinaryPDCBlock(nn.Module):
    """The mixed binary layer of Bi-PiDiNet (paper, figure "fusion", c) with its batch norms and activations.

    It has neither a bias nor a scale of its weights.

    With C input channels, c = floor(ratio * C) and the pairs P of `kind` (8 differences for a 3x3 kernel):

        d = binary_pdc(x[:, :c], sign(difference_weight))    weights (O, c, P)           zeros padded before the sign
        v = binary_conv2d(x[:, c:], sign(weight))            weights (O, C - c, k, k)    zeros padded after the sign
        y = RPReLU(BN(d) + BN(v))                            activation="sum"
        y = RPReLU(BN(d)) + RPReLU(BN(v))                    activation="branch", as in the paper's formula

    d and v are integers: d sums c * P products of +1 and -1 at every pixel, v as many as the kernel has pixels
    inside the map. Output pixel (y, x) is centered on input pixel (stride * y, stride * x), output sides are
    ceil(side / stride). With ratio 0 only v and its norm exist, with ratio 1 only d.

    `clip` bounds the straight-through gradient of both signs. `fixed_lbp` ("random" or "uniform") draws the
    difference weights once from LBP codes and never trains them. `binary_weights=False` keeps the weights real and
    binarizes activations only, the first stage of two-stage training.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        *,
        kind: str | PixelPairs = "central",
        ratio: float = 0.2,
        activation: str = "sum",
        clip: float = 1.0,
        fixed_lbp: str | None = None,
        binary_weights: bool = True,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UserError(f"unknown activation {activation!r}; use {' or '.join(ACTIVATIONS)}")
        if in_channels < 1 or out_channels < 1 or stride < 1 or clip <= 0:
            raise UserError(
                f"channels, stride and clip are positive, got {in_channels}, {out_channels}, {stride}, {clip}"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = kernel_size, stride
        self.kind, self.ratio, self.clip = kind, ratio, clip
        self.binary_weights = binary_weights
        vanilla = kind == "vanilla"
        self.pairs = resolve_pairs(kind, kernel_size)
        self.difference_channels = 0 if vanilla else count_difference_channels(ratio, in_channels)
        plain = in_channels - self.difference_channels
        weights = 0 if vanilla else len(self.pairs.differences)
        if self.difference_channels and not weights:
            raise UserError(
                f"a {kernel_size}x{kernel_size} kernel of kind {kind_name(kind)} has no differences; use kind='vanilla'"
            )
        fan_in = self.difference_channels * weights + plain * kernel_size**2
        self.weight = _latent((out_channels, plain, kernel_size, kernel_size), fan_in)
        self.difference_weight = _latent((out_channels, self.difference_channels, weights), fan_in)
        self.norm = nn.BatchNorm2d(out_channels) if plain else None
        self.difference_norm = nn.BatchNorm2d(out_channels) if self.difference_channels else None
        branches = bool(plain) + bool(self.difference_channels)
        self.activations = nn.ModuleList(RPReLU(out_channels) for _ in range(1 if activation == "sum" else branches))
        if fixed_lbp is not None and self.difference_weight is not None:
            _fix_lbp(self.difference_weight, fixed_lbp)

    def branches(self, x: Tensor) -> Iterator[Tensor]:
        """Yield the normalized branches: differences, plain pixels, or both in this order."""
        different, plain = x.split([self.difference_channels, self.in_channels - self.difference_channels], dim=1)
        if self.difference_weight is not None and self.difference_norm is not None:
            weight = self._binarized(self.difference_weight)
            sums = binary_pdc(different, weight, self.kind, self.stride, self.clip, self.kernel_size)
            yield self.difference_norm(sums)
        if self.weight is not None and self.norm is not None:
            weight = self._binarized(self.weight)
            yield self.norm(binary_conv2d(plain, weight, self.stride, self.clip))

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 4 or x.shape[1] != self.in_channels:
            raise UserError(f"this layer takes (N, {self.in_channels}, H, W), got {tuple(x.shape)}")
        branches = list(self.branches(x))
        if len(self.activations) == len(branches):
            branches = [activation(branch) for activation, branch in zip(self.activations, branches, strict=True)]
            return sum(branches[1:], branches[0])
        y: Tensor = self.activations[0](branches[0] + branches[1])
        return y

    def _binarized(self, weight: Tensor) -> Tensor:
        return sign(weight, self.clip) if self.binary_weights else weight

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"kind={kind_name(self.kind)}, ratio={self.ratio}"
        )


def _latent(shape: tuple[int, ...], fan_in: int) -> nn.Parameter | None:
    """Return real weights whose signs are the binary ones, drawn as in nn.Conv2d; None for an empty branch."""
    if 0 in shape:
        return None
    bound = fan_in**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def _fix_lbp(weight: nn.Parameter, choice: str) -> None:
    if choice not in FIXED_LBP:
        raise UserError(f"unknown fixed_lbp {choice!r}; use {' or '.join(FIXED_LBP)}, or None to learn the kernels")
    if weight.shape[-1] != 8:
        raise UserError(f"fixed LBP kernels have 8 weights, these pixel pairs {weight.shape[-1]}")
    if weight.is_meta:  # shapes only
        return
    seed = int(torch.randint(2**31, (), device="cpu"))  # from torch, so that torch.manual_seed decides
    kernels = fixed_kernels(weight.shape[0] * weight.shape[1], np.random.default_rng(seed), FIXED_LBP[choice])
    weight.data = torch.from_numpy(kernels).view_as(weight).to(weight)
    weight.requires_grad_(False)
