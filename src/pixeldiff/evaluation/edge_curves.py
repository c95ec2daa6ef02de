"""Precision-recall curves over lines of equal F, as in the papers (Matplotlib, extra `eval`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pixeldiff.evaluation.edges import EdgeScores
from pixeldiff.figures import COLORS, DASHES, save_figure


def plot_curves(path: Path, scores: Mapping[str, EdgeScores], human: tuple[float, float] | None = None) -> None:
    """Plot one curve per model, best ODS first in the legend; `human` is the annotators' (recall, precision)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _draw_equal_f(axes)
    if human is not None:
        recall, precision = human
        f = 2 * recall * precision / (recall + precision)
        axes.plot(recall, precision, "o", color="#444444", markersize=7, label=f"[F={f:.3f}] Human", zorder=3)
    ranked = sorted(scores.items(), key=lambda item: -item[1].ods)
    for k, (name, one) in enumerate(ranked):
        summary = one.summary
        color, dash = COLORS[k % len(COLORS)], DASHES[k % len(DASHES)]
        defined = summary.curve.all_prediction > 0  # precision needs a prediction
        axes.plot(
            summary.curve.recall[defined],
            summary.curve.precision[defined],
            dash,
            color=color,
            linewidth=2,
            label=f"[F={summary.ods:.3f}] {name}",
        )
        axes.plot(summary.ods_point.recall, summary.ods_point.precision, "s", color=color, markersize=5)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="Recall", ylabel="Precision", aspect="equal")
    ticks = np.linspace(0, 1, 11)
    axes.set_xticks(ticks)
    axes.set_yticks(ticks)
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="lower left", framealpha=0.95, fontsize=9)
    save_figure(figure, path, dpi=200)


def _draw_equal_f(axes: object) -> None:
    for f in np.arange(1, 10) / 10:
        recall = np.linspace(f / (2 - f), 1, 200)
        axes.plot(recall, f * recall / (2 * recall - f), color="#8fbf8f", linewidth=0.8, zorder=1)  # type: ignore[attr-defined]
        axes.annotate(  # type: ignore[attr-defined]
            f"{f:.1f}", (1, f / (2 - f)), xytext=(3, 0), textcoords="offset points", fontsize=7, color="#4d804d",
            va="center", annotation_clip=False,
        )  # fmt: skip
