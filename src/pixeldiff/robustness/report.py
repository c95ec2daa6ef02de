"""The robustness results as the paper lays them out: two text tables, the comparison in words, and a plot.

The paper's edge table has two blocks, noise and blur above digital and weather, its CIFAR-100-C table one; in both the
highest severity comes first and the models stand below each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pixeldiff.figures import COLOURS, check_plot, save_figure
from pixeldiff.robustness import Condition, Layout
from pixeldiff.robustness.results import CLEAN, Comparison, Results, compare, families

# The paper's column heads.
SHORT = {
    "gaussian_noise": "Gauss.",
    "shot_noise": "Shot",
    "impulse_noise": "Impul.",
    "defocus_blur": "Defoc.",
    "glass_blur": "Glass",
    "motion_blur": "Motion",
    "zoom_blur": "Zoom",
    "snow": "Snow",
    "frost": "Frost",
    "fog": "Fog",
    "brightness": "Brit.",
    "contrast": "Contr.",
    "elastic_transform": "Elastic",
    "pixelate": "Pixel",
    "jpeg_compression": "JPEG",
}


def cell(results: Results, model: str, condition: Condition) -> str:
    """The scores of a cell (ODS/OIS, or top-1); a dash where nothing was scored."""
    scores = results.cells.get((model, condition))
    if scores is None:
        return "-"
    layout = results.layout
    return "/".join(f"{scores[name]:.{layout.digits}f}" for name in layout.scores)


def table(results: Results, models: Sequence[str], grid: Sequence[Condition], columns: int = 200) -> str:
    """The blocks of the paper, for the models, kinds and severities of this run; narrower ones if they do not fit."""
    chosen = families([kind for kind, _ in grid])
    severities = sorted({severity for kind, severity in grid if (kind, severity) != CLEAN}, reverse=True)
    blocks = []
    for names in results.layout.blocks:
        parts = [(family, chosen[family]) for family in names if family in chosen]
        block = _block(results, models, parts, severities) if parts else ""
        if max(map(len, block.splitlines()), default=0) > columns:
            blocks += [_block(results, models, [part], severities) for part in parts]
        elif parts:
            blocks.append(block)
    if CLEAN in grid:
        clean = ", ".join(f"{model} {cell(results, model, CLEAN)}" for model in models)
        blocks.insert(0, f"Clean: {clean}")
    return "\n\n".join(blocks)


def _block(
    results: Results, models: Sequence[str], parts: Sequence[tuple[str, list[str]]], severities: Sequence[int]
) -> str:
    groups = [[f"{model} (L{severity})" for model in models] for severity in severities]
    first = max(len("Method"), *(len(label) for labels in groups for label in labels))
    width = results.layout.width
    heads = [f"{family.capitalize():^{width * len(kinds)}}" for family, kinds in parts]
    lines = [" |".join([" " * first, *heads]).rstrip()]
    lines.append(" |".join([f"{'Method':{first}}", *("".join(f"{SHORT[k]:>{width}}" for k in ks) for _, ks in parts)]))
    rule = "-" * len(lines[-1])
    for severity, labels in zip(severities, groups, strict=True):
        lines.append(rule)
        for model, label in zip(models, labels, strict=True):
            values = ("".join(f"{cell(results, model, (k, severity)):>{width}}" for k in kinds) for _, kinds in parts)
            lines.append(" |".join([f"{label:{first}}", *values]))
    return "\n".join(lines)


def comparisons(results: Results, models: Sequence[str], grid: Sequence[Condition]) -> list[Comparison]:
    """Every further model against the first."""
    return [found for model in models[1:] for found in compare(results, model, models[0], grid)]


def in_words(found: Comparison, layout: Layout) -> str:
    """One line: in how many cells the model is ahead, and by how much on average."""
    digits = layout.digits
    level = "all levels" if found.severity is None else f"level {found.severity}"
    error = "" if found.error is None else f" ± {found.error:.{digits}f}"
    return (
        f"{found.model} against {found.reference}, {level}: ahead in {found.ahead} of {found.cells} cells, "
        f"mean {layout.label} {found.mean:.{digits}f}, difference {found.difference:+.{digits}f}{error}"
    )


def plot(results: Results, models: Sequence[str], grid: Sequence[Condition], path: Path) -> None:
    """Bars per kind, one panel per severity, the clean score as a line of the model's color."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    metric = results.layout.scores[0]
    kinds = [kind for kinds in families([kind for kind, _ in grid]).values() for kind in kinds]
    severities = sorted({severity for kind, severity in grid if (kind, severity) != CLEAN})
    figure = Figure(figsize=(10, 2.6 * len(severities) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(severities), 1, squeeze=False)[:, 0]
    for severity, axis in zip(severities, axes, strict=True):
        _panel(axis, results, models, kinds, severity, metric)
        axis.set_ylabel(results.layout.axis)
        axis.set_title(f"level {severity}" + (" (dashed: clean)" if CLEAN in grid else ""), loc="left", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(models), frameon=False)
    save_figure(figure, path, dpi=150)


def _panel(
    axis: Any, results: Results, models: Sequence[str], kinds: Sequence[str], severity: int, metric: str
) -> None:
    width = 0.8 / len(models)
    for i, model in enumerate(models):
        color = COLOURS[i % len(COLOURS)]
        values = [results.cells.get((model, (kind, severity)), {}).get(metric, 0.0) for kind in kinds]
        places = [k + (i - (len(models) - 1) / 2) * width for k in range(len(kinds))]
        axis.bar(places, values, width, color=color, label=model)
        if (model, CLEAN) in results.cells:
            axis.axhline(results.cells[model, CLEAN][metric], color=color, linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(kinds)), [SHORT[kind] for kind in kinds])
    axis.spines[["top", "right"]].set_visible(False)
