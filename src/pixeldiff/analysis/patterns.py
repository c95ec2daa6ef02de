"""LBP codes of the kernels of binary networks, and frequencies of their shifting filters and feature maps.

A binary convolution is: shift the map, take signs, add them up with weights +1 and -1 (paper, section 5). The shifting
filter of a weight is +1 at x_i (vanilla), or +1 at x_i and -1 at x'_i (Bi-PDC); its spectrum is |FFT2|. The codes
(paper, figures "extract" and "lbp_code") are those of the 3x3 binary kernels, see lbp.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixeldiff.nn.binary import BinaryPDCBlock
from pixeldiff.nn.lbp import CODES, lbp_codes, uniform_codes
from pixeldiff.nn.ops import kind_name, pixel_pairs

Array = NDArray[Any]


@dataclass(frozen=True)
class LayerPatterns:
    """How often each LBP code occurs among the 3x3 kernels of one branch of a layer."""

    layer: str
    branch: str  # "vanilla" or the kind of the differences
    counts: Array  # (256,)

    @property
    def uniform_fraction(self) -> float:
        """Return the fraction of the kernels with at most two transitions; 58 / 256 = 0.227 by chance."""
        return float(self.counts[uniform_codes()].sum() / self.counts.sum())

    def most_frequent(self, count: int = 5) -> Array:
        """Return the most frequent codes, in order."""
        return np.argsort(-self.counts, kind="stable")[:count]


def kernel_patterns(model: nn.Module) -> list[LayerPatterns]:
    """Count the codes of every branch of 3x3 binary kernels, in the order of the layers."""
    patterns = []
    for name, layer in model.named_modules():
        if not isinstance(layer, BinaryPDCBlock) or layer.kernel_size != 3:
            continue
        for branch, weight in ((kind_name(layer.kind), layer.difference_weight), ("vanilla", layer.weight)):
            if weight is not None and (weight is layer.weight or weight.shape[-1] == 8):  # other pairs form no ring
                codes = lbp_codes(weight.detach().cpu().numpy())
                patterns.append(LayerPatterns(name, branch, np.bincount(codes.ravel(), minlength=CODES)))
    return patterns


def pooled(patterns: Sequence[LayerPatterns]) -> list[LayerPatterns]:
    """Add up the counts of all layers, one entry per branch."""
    branches = dict.fromkeys(p.branch for p in patterns)
    return [LayerPatterns("all", b, np.sum([p.counts for p in patterns if p.branch == b], axis=0)) for b in branches]


def shifting_filters(kind: str) -> Array:
    """Return the filters that shift (vanilla) or difference a map, (weights, support, support)."""
    pairs = pixel_pairs(kind)
    filters: Array = pairs.matrix().T.reshape(-1, pairs.support, pairs.support)
    return filters[filters.any((1, 2))]  # the center of a difference cancels


def spectrum(maps: Array, size: int | None = None) -> Array:
    """Compute |FFT2| of maps (..., H, W) with frequency zero in the middle, zero-padded to `size` if given."""
    shape = None if size is None else (size, size)
    magnitude: Array = np.abs(np.fft.fftshift(np.fft.fft2(maps, shape), axes=(-2, -1)))
    return magnitude


def high_frequency_fraction(magnitude: Array) -> float:
    """Return the fraction of the energy above half the Nyquist frequency in either direction, but zero."""
    height, width = magnitude.shape[-2:]
    rows = np.abs(np.fft.fftshift(np.fft.fftfreq(height)))[:, None]
    columns = np.abs(np.fft.fftshift(np.fft.fftfreq(width)))[None]
    energy = magnitude**2
    zero = (rows == 0) & (columns == 0)
    return float((energy * (np.maximum(rows, columns) > 0.25)).sum() / (energy * ~zero).sum())


def feature_maps(model: nn.Module, images: Tensor) -> dict[str, dict[str, Array]]:
    """Run images and return layer -> branch -> its sums before batch norm, averaged over channels, (N, H, W)."""
    maps: dict[str, dict[str, Array]] = {}
    hooks = []
    for name, layer in model.named_modules():
        if isinstance(layer, BinaryPDCBlock):
            for branch, norm in ((kind_name(layer.kind), layer.difference_norm), ("vanilla", layer.norm)):
                if norm is not None:
                    maps.setdefault(name, {})
                    hooks.append(norm.register_forward_hook(_recorder(maps, name, branch)))
    training = model.training
    with torch.no_grad():
        model.eval()(images)
    model.train(training)
    for hook in hooks:
        hook.remove()
    return maps


def _recorder(maps: dict[str, dict[str, Array]], name: str, branch: str) -> Any:
    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        maps[name][branch] = inputs[0].mean(1).cpu().numpy()

    return record


def feature_spectra(maps: dict[str, dict[str, Array]]) -> dict[str, dict[str, Array]]:
    """Return layer -> branch -> |FFT2| of the feature maps, averaged over the images, without layers of 1x1 maps."""
    return {
        layer: {branch: spectrum(of_branch).mean(0) for branch, of_branch in branches.items()}
        for layer, branches in maps.items()
        if all(min(of_branch.shape[-2:]) > 1 for of_branch in branches.values())
    }
