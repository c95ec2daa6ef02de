"""Figures of pattern statistics before and after training, and of frequencies (analysis/patterns.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from pixeldiff.analysis.patterns import Array, LayerPatterns, high_frequency_fraction, shifting_filters, spectrum
from pixeldiff.nn.lbp import kernels_of, uniform_codes

OTHER, UNIFORM = "#888888", "#c0392b"


def plot_patterns(before: Sequence[LayerPatterns], after: Sequence[LayerPatterns]) -> Figure:
    """Plot per branch the 256 codes by frequency, before and after training (uniform ones red), and the first five."""
    figure = Figure(figsize=(4 * len(after), 6), layout="constrained")
    axes = figure.subplots(3, len(after), squeeze=False)
    for column, (old, new) in enumerate(zip(before, after, strict=True)):
        for row, (when, patterns) in enumerate((("before", old), ("after", new))):
            axis = axes[row, column]
            order = np.argsort(-patterns.counts, kind="stable")
            percent = 100 * patterns.counts[order] / patterns.counts.sum()
            colors = np.where(np.isin(order, uniform_codes()), UNIFORM, OTHER)
            axis.vlines(np.arange(len(order)), 0, percent, colors=colors)
            axis.set_title(f"{patterns.branch}, {when}: {100 * patterns.uniform_fraction:.1f}% uniform", fontsize=9)
            axis.set_ylabel("% of kernels")
        axes[1, column].set_xlabel("LBP codes by frequency (red: uniform)")
        _draw_kernels(axes[2, column], new.most_frequent())
        axes[2, column].set_title("most frequent after training", fontsize=9)
    return figure


def plot_kernels(patterns: Sequence[LayerPatterns], columns: int = 4) -> Figure:
    """Plot the five most frequent kernels of some layers, a row per branch (paper, figure "extract")."""
    branches = list(dict.fromkeys(layer.branch for layer in patterns))
    by_name = {(layer.layer, layer.branch): layer for layer in patterns}
    names = _spread(list(dict.fromkeys(layer.layer for layer in patterns)), columns)
    figure = Figure(figsize=(3 * len(names), 1.2 * len(branches)), layout="constrained")
    axes = figure.subplots(len(branches), len(names), squeeze=False)
    for row, branch in enumerate(branches):
        for axis, name in zip(axes[row], names, strict=True):
            axis.set_axis_off()
            if layer := by_name.get((name, branch)):
                codes = layer.most_frequent()
                _draw_kernels(axis, codes)
                percent = 100 * layer.counts[codes].sum() / layer.counts.sum()
                axis.set_title(f"{name}, {branch}: {percent:.0f}% of kernels", fontsize=7)
    return figure


def _spread(names: list[str], count: int) -> list[str]:
    """Return at most `count` of the names, evenly spaced from the first to the last."""
    return [names[i] for i in np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).astype(int))]


def _draw_kernels(axis: Any, codes: Array) -> None:
    """Draw the kernels of codes side by side: white +1, black -1, the center gray, blue between them."""
    image = np.full((5, 4 * len(codes) + 1), np.nan)
    for i, kernel in enumerate(kernels_of(codes)):
        image[1:4, 4 * i + 1 : 4 * i + 4] = np.insert(kernel, 4, 0).reshape(3, 3)
    axis.imshow(image, cmap=colormaps["gray"].with_extremes(bad="#9db8d2"), vmin=-1, vmax=1)
    axis.set_axis_off()


def plot_filters(kinds: Sequence[str] = ("vanilla", "central", "angular", "radial"), size: int = 64) -> Figure:
    """Plot |FFT2| of the shifting filters at the positions of their weights (paper, figure "frequency" a and b)."""
    figure = Figure(figsize=(3 * len(kinds), 3.3), layout="constrained")
    for axis, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        filters = shifting_filters(kind)
        positions = range(9) if len(filters) == 9 else [i for i in range(9) if i != 4]
        tiles = np.full((3, size + 4, 3, size + 4), np.nan)
        for i, magnitude in zip(positions, spectrum(filters, size), strict=True):
            tiles[i // 3, :size, i % 3, :size] = magnitude
        axis.imshow(tiles.reshape(3 * (size + 4), -1)[:-4, :-4], cmap="viridis", vmin=0, vmax=2)
        axis.set_title(kind)
        axis.set_axis_off()
    return figure


def plot_features(spectra: Mapping[str, Mapping[str, Array]], columns: int = 8) -> Figure:
    """Plot log |FFT2| of the feature maps, a column per layer, a row per branch, and name the high frequencies."""
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
                percent = 100 * high_frequency_fraction(magnitude)
                axis.set_title(f"{name}\n{branch}, {percent:.0f}% high", fontsize=7)
    return figure
