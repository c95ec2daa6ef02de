"""Pixel differences as linear maps of the kernel.

A pixel difference convolution (paper, section 3.2) replaces the pixels under a kernel by differences of pixels,

    y = sum_i w_i * (x_i - x'_i),    (x_i, x'_i) in P,

which is linear in w, so it equals a plain convolution with another kernel: `fold(weight, kind)`. The set P is
a `PixelPairs`, derived from geometry for the kinds of the paper or given by the user.

The binary operators (paper, section 4) take signs of pixels or of differences, which are not linear in x:

    y = sum_i w^b_i * Sign(x_i)            binary_conv2d
    y = sum_i w^b_i * Sign(x_i - x'_i)     binary_pdc,        w^b = Sign(w), Sign(0) = +1

Their gradient is the straight-through one: Sign passes it on where |x| < clip.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pixeldiff.errors import UserError
from pixeldiff.weights.pairs import Offset
from pixeldiff.weights.pairs import PixelPairs as PixelPairs
from pixeldiff.weights.pairs import pixel_pairs as pixel_pairs


def kind_name(kind: str | PixelPairs) -> str:
    """Return the name of a kind, "pairs" for a PixelPairs."""
    return kind if isinstance(kind, str) else "pairs"


def resolve_pairs(kind: str | PixelPairs, kernel_size: int) -> PixelPairs:
    """Return the pixel pairs of a kind; an error unless they are for this kernel size."""
    pairs = pixel_pairs(kind, kernel_size) if isinstance(kind, str) else kind
    if pairs.kernel_size != kernel_size:
        raise UserError(
            f"these pixel pairs are for kernels of {pairs.kernel_size}x{pairs.kernel_size}, "
            f"the weight is {kernel_size}x{kernel_size}"
        )
    return pairs


@lru_cache(maxsize=64)
def _folding_matrix(pairs: PixelPairs, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # the cache keeps it, and a later call may need a gradient
        return torch.from_numpy(pairs.matrix()).to(dtype=dtype, device=device)


def fold(weight: Tensor, kind: str | PixelPairs) -> Tensor:
    """Return the plain kernel that computes the pixel difference convolution of `weight` (paper, section 3.2).

    `weight` is (..., k, k); the result is (..., s, s) with s the support of the pairs (5 for radial 3x3, else k).
    """
    k = weight.shape[-1]
    if weight.dim() < 2 or weight.shape[-2] != k:
        raise UserError(f"fold takes square kernels (..., k, k), got shape {tuple(weight.shape)}")
    pairs = resolve_pairs(kind, k)
    if kind == "vanilla":
        return weight
    matrix = _folding_matrix(pairs, weight.dtype, weight.device)
    folded = weight.flatten(-2) @ matrix.T
    result: Tensor = folded.unflatten(-1, (pairs.support, pairs.support))
    return result


class _RadialDepthwise(torch.autograd.Function):
    """Depthwise radial convolution, 3x3, stride 1, padded to keep the size.

    The gradient of a 5x5 depthwise kernel is the slowest step of training on a CPU. This kernel has the form
    y = (w, dilation 2) - (w, dilation 1), so its gradient is that of two 3x3 kernels. The one of dilation 2 becomes a
    plain one on the four grids of every second pixel. This is four times faster and computes the same sums in another
    order.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, fold(weight, "radial"), padding=2, groups=weight.shape[0])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = (saved.to(gradient.dtype) for saved in ctx.saved_tensors)  # half precision under autocast
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            to_x = _depthwise_gradients(gradient, x, fold(weight, "radial"), (True, False))[0]
        if ctx.needs_input_grad[1]:
            outer = _depthwise_gradients(_grids(gradient), _grids(x), weight, (False, True))[1]
            inner = _depthwise_gradients(gradient, x, weight, (False, True))[1]
            center = torch.zeros(3, 3, dtype=torch.bool, device=weight.device)
            center[1, 1] = True  # this weight has no effect
            to_weight = (outer - inner).masked_fill(center, 0.0)
        return to_x, to_weight


def _depthwise_gradients(gradient: Tensor, x: Tensor, weight: Tensor, wanted: tuple[bool, bool]) -> tuple[Tensor, ...]:
    """Return the gradients of F.conv2d(x, weight, padding=k // 2, groups=C), to x and to weight, as far as wanted."""
    padding, ones = [weight.shape[-1] // 2] * 2, [1, 1]
    gradients: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, ones, padding, ones, False, [0, 0], weight.shape[0], [*wanted, False]
    )
    return gradients


def _grids(x: Tensor) -> Tensor:
    """Return the four grids of every second pixel, (4 N, C, ceil(H / 2), ceil(W / 2)), zero-padded."""
    height, width = x.shape[2:]
    if height % 2 or width % 2:
        x = F.pad(x, (0, width % 2, 0, height % 2))
    rows = x.permute(0, 2, 3, 1).unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # N, H / 2, 2, W / 2, 2, C
    grids: Tensor = rows.permute(2, 4, 0, 1, 3, 5).flatten(0, 2)  # one copy; the channels of a pixel are adjacent
    return grids.permute(0, 3, 1, 2)


def radial_depthwise(x: Tensor, weight: Tensor) -> Tensor:
    """Compute F.conv2d(x, fold(weight, "radial"), padding=2, groups=C), weight (C, 1, 3, 3), with a fast gradient."""
    result: Tensor = _RadialDepthwise.apply(x, weight)  # type: ignore[no-untyped-call]
    return result


class _Sign(torch.autograd.Function):
    """Sign with the straight-through gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, clip: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.clip = clip
        # Adding 0 turns -0 into +0, so that copysign, one vectorized pass, gives +1 for both.
        return torch.copysign(torch.ones((), dtype=x.dtype, device=x.device), x + 0.0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        passed: Tensor = torch.ops.aten.hardtanh_backward(gradient, x, -ctx.clip, ctx.clip)
        return passed, None


def sign(x: Tensor, clip: float = 1.0) -> Tensor:
    """Return +1 where x >= 0, else -1; the gradient passes straight through where |x| < clip and is 0 elsewhere."""
    result: Tensor = _Sign.apply(x, clip)  # type: ignore[no-untyped-call]
    return result


class _Differences(torch.autograd.Function):
    """Differences of shifted views, one pass per pair: much faster than a convolution with kernels of +1 and -1."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, pairs: PixelPairs, stride: int) -> Tensor:
        ctx.shape, ctx.pairs, ctx.stride = x.shape, pairs, stride
        ctx.format = torch.channels_last if x.stride(1) == 1 else torch.contiguous_format
        channels, radius = x.shape[1], pairs.support // 2
        padded = F.pad(x, (radius,) * 4)
        if torch.compiler.is_compiling():  # which does not take `out=` with a view
            shifted = ((_shifted(padded, point, radius, stride) for point in pair) for pair in pairs.differences)
            return torch.cat([plus - minus for plus, minus in shifted], 1)
        size = [(side - 1) // stride + 1 for side in x.shape[2:]]
        planes = torch.empty(
            (x.shape[0], len(pairs.differences) * channels, *size),
            dtype=x.dtype,
            device=x.device,
            memory_format=ctx.format,
        )
        for i, (plus, minus) in enumerate(pairs.differences):
            out = planes[:, i * channels : (i + 1) * channels]
            torch.sub(_shifted(padded, plus, radius, stride), _shifted(padded, minus, radius, stride), out=out)
        return planes

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (count, channels, height, width), radius = ctx.shape, ctx.pairs.support // 2
        padded = torch.empty(
            (count, channels, height + 2 * radius, width + 2 * radius),
            dtype=gradient.dtype,
            device=gradient.device,
            memory_format=ctx.format,
        ).zero_()
        for i, (plus, minus) in enumerate(ctx.pairs.differences):
            part = gradient[:, i * channels : (i + 1) * channels]
            _shifted(padded, plus, radius, ctx.stride).add_(part)
            _shifted(padded, minus, radius, ctx.stride).sub_(part)
        return padded[:, :, radius : radius + height, radius : radius + width], None, None


def _shifted(padded: Tensor, offset: Offset, radius: int, stride: int) -> Tensor:
    """Return the pixels at `offset` from each output pixel: a view of a map padded by `radius` on each side."""
    rows, columns = (
        slice(radius + o, radius + o + side - 2 * radius, stride)
        for o, side in zip(offset, padded.shape[2:], strict=True)
    )
    return padded[:, :, rows, columns]


def pixel_differences(x: Tensor, pairs: PixelPairs, stride: int = 1) -> Tensor:
    """Return the planes x_i - x'_i, (N, P * C, ceil(H / stride), ceil(W / stride)).

    Plane i * C + c is pair i of channel c. Output pixel (y, x) is centered on input pixel (stride * y, stride * x).
    Pixels outside the map are 0.
    """
    result: Tensor = _Differences.apply(x, pairs, stride)  # type: ignore[no-untyped-call]
    return result


def binary_conv2d(x: Tensor, weight: Tensor, stride: int = 1, clip: float = 1.0) -> Tensor:
    """Convolve Sign(x) with real weights (O, C, k, k), k odd; pass `sign(weight)` for a binary convolution.

    k // 2 zeros are padded after the sign: an output at the border sums fewer products.
    """
    return F.conv2d(sign(x, clip), weight, stride=stride, padding=weight.shape[-1] // 2)


def binary_pdc(
    x: Tensor, weight: Tensor, kind: str | PixelPairs, stride: int = 1, clip: float = 1.0, kernel_size: int = 3
) -> Tensor:
    """Compute Bi-PDC, sum_i w_i * Sign(x_i - x'_i), with real weights (O, C, P), one per difference in row order.

    Zeros are padded before the difference: outside pixels are 0, so every sign is +1 or -1, also at the border.
    The bit of pair i is `x_i >= x'_i` at (stride * y, stride * x); the sum is a 1x1 convolution over P * C bits.
    """
    pairs = resolve_pairs(kind, kernel_size)
    if weight.dim() != 3 or tuple(weight.shape[1:]) != (x.shape[1], len(pairs.differences)):
        raise UserError(
            f"Bi-PDC of {x.shape[1]} channels takes weights (out, {x.shape[1]}, {len(pairs.differences)}), "
            f"got {tuple(weight.shape)}"
        )
    planes = sign(pixel_differences(x, pairs, stride), clip)
    return F.conv2d(planes, weight.transpose(1, 2).flatten(1)[:, :, None, None])
