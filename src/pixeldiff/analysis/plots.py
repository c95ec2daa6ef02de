"""The figures of patterns.py: pattern statistics before and after training, and frequency maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from pixeldiff.analysis.patterns import Array, LayerPatterns, high_frequency_share, shifting_filters, spectrum
from pixeldiff.nn.lbp import kernels_of, uniform_codes

OTHER, UNIFORM = "#888888", "#c0392b"


def plot_patterns(before: Sequence[LayerPatterns], after: Sequence[LayerPatterns]) -> Figure:
    """Per branch: the 256 codes by frequency, before and after training (uniform ones red), and the first five."""
    figure = Figure(figsize=(4 * len(after), 6), layout="constrained")
    axes = figure.subplots(3, len(after), squeeze=False)
    for column, (old, new) in enumerate(zip(before, after, strict=True)):
        for row, (when, patterns) in enumerate((("before", old), ("after", new))):
            axis = axes[row, column]
            order = np.argsort(-patterns.counts, kind="stable")
            shares = 100 * patterns.counts[order] / patterns.counts.sum()
            colors = np.where(np.isin(order, uniform_codes()), UNIFORM, OTHER)
            axis.vlines(np.arange(len(order)), 0, shares, colors=colors)
            axis.set_title(f"{patterns.branch}, {when}: {100 * patterns.uniform_share:.1f}% uniform", fontsize=9)
            axis.set_ylabel("% of kernels")
        axes[1, column].set_xlabel("LBP codes by frequency (red: uniform)")
        _draw_kernels(axes[2, column], new.most_frequent())
        axes[2, column].set_title("most frequent after training", fontsize=9)
    return figure


def plot_kernels(patterns: Sequence[LayerPatterns], columns: int = 4) -> Figure:
    """The five most frequent kernels of some layers with their share, a row per branch (paper, figure "extract")."""
    branches = list(dict.fromkeys(one.branch for one in patterns))
    found = {(one.layer, one.branch): one for one in patterns}
    layers = _spread(list(dict.fromkeys(one.layer for one in patterns)), columns)
    figure = Figure(figsize=(3 * len(layers), 1.2 * len(branches)), layout="constrained")
    axes = figure.subplots(len(branches), len(layers), squeeze=False)
    for row, branch in enumerate(branches):
        for axis, layer in zip(axes[row], layers, strict=True):
            axis.set_axis_off()
            if one := found.get((layer, branch)):
                codes = one.most_frequent()
                _draw_kernels(axis, codes)
                share = 100 * one.counts[codes].sum() / one.counts.sum()
                axis.set_title(f"{layer}, {branch}: {share:.0f}% of kernels", fontsize=7)
    return figure


def _spread(names: list[str], count: int) -> list[str]:
    """At most `count` of the names, from the first to the last."""
    return [names[i] for i in np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).astype(int))]


def _draw_kernels(axis: Any, codes: Array) -> None:
    """Kernels of codes side by side: white +1, black -1, the center gray, blue between them."""
    image = np.full((5, 4 * len(codes) + 1), np.nan)
    for i, kernel in enumerate(kernels_of(codes)):
        image[1:4, 4 * i + 1 : 4 * i + 4] = np.insert(kernel, 4, 0).reshape(3, 3)
    axis.imshow(image, cmap=colormaps["gray"].with_extremes(bad="#9db8d2"), vmin=-1, vmax=1)
    axis.set_axis_off()


def plot_filters(kinds: Sequence[str] = ("vanilla", "central", "angular", "radial"), size: int = 64) -> Figure:
    """|FFT2| of the shifting filters, in the places of their weights round the center (paper, "frequency" a and b)."""
    figure = Figure(figsize=(3 * len(kinds), 3.3), layout="constrained")
    for axis, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        filters = shifting_filters(kind)
        places = range(9) if len(filters) == 9 else [i for i in range(9) if i != 4]
        tiles = np.full((3, size + 4, 3, size + 4), np.nan)
        for place, magnitude in zip(places, spectrum(filters, size), strict=True):
            tiles[place // 3, :size, place % 3, :size] = magnitude
        axis.imshow(tiles.reshape(3 * (size + 4), -1)[:-4, :-4], cmap="viridis", vmin=0, vmax=2)
        axis.set_title(kind)
        axis.set_axis_off()
    return figure


def plot_features(spectra: Mapping[str, Mapping[str, Array]], columns: int = 8) -> Figure:
    """log |FFT2| of the feature maps, a column per layer, a row per branch, with its high-frequency share."""
    layers = _spread(list(spectra), columns)
    branches = sorted({b for name in layers for b in spectra[name]}, reverse=True)
    figure = Figure(figsize=(2 * len(layers), 2.3 * len(branches)), layout="constrained")
    axes = figure.subplots(len(branches), len(layers), squeeze=False)
    for column, name in enumerate(layers):
        for row, branch in enumerate(branches):
            axis = axes[row, column]
            axis.set_axis_off()
            if branch in spectra[name]:
                magnitude = spectra[name][branch]
                axis.imshow(np.log1p(magnitude), cmap="viridis")
                share = 100 * high_frequency_share(magnitude)
                axis.set_title(f"{name}\n{branch}, {share:.0f}% high", fontsize=7)
    return figure
