"""Scores of models on corrupted images: tables whose cells are filled one by one, comparison, and a bar chart.

A cell is (model, (corruption, severity)); ("clean", 0) is the uncorrupted data. All models of a condition score the
same images, corrupted with the seed `seed + index of the image`. After each condition the JSON file is replaced, so
that a stopped run resumes. The tables are laid out as in the paper: models below each other, a column per corruption,
the highest severity first.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff.errors import InputError, UserError
from pixeldiff.evaluation.benchmark import CLEAN, Advance, Benchmark, Condition, Model, evaluate
from pixeldiff.evaluation.corruptions import FAMILIES, KINDS, SEVERITIES
from pixeldiff.figures import COLORS, check_plot, save_figure

Scores = dict[str, float]
_HEAD = ("task", "data", "images", "seed", "models")
_WITHOUT_ELASTIC = tuple(kind for kind in KINDS if kind != "elastic_transform")

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


@dataclass(frozen=True)
class Layout:
    """The table of a task."""

    scores: tuple[str, ...]  # of a cell; models are compared on the first
    label: str  # of the first score, in words
    axis: str  # the same beside a plot
    digits: int
    width: int  # of a column
    kinds: tuple[str, ...] = KINDS  # by default
    blocks: tuple[tuple[str, ...], ...] = (("noise", "blur", "weather", "digital"),)  # families side by side


# The tables of edges and objects omit elastic transforms, which move edges and objects away from their labels.
LAYOUTS = {
    "edges": Layout(("ods", "ois"), "ODS", "ODS", 3, 12, _WITHOUT_ELASTIC, (("noise", "blur"), ("digital", "weather"))),
    "classes": Layout(("top1",), "top-1", "top-1 (%)", 2, 8),
    "faces": Layout(("accuracy",), "accuracy", "accuracy (%)", 2, 8),
    "objects": Layout(
        ("map50", "ap"), "mAP@.5", "mAP@.5 (%)", 1, 8, _WITHOUT_ELASTIC, (("noise", "blur"), ("digital", "weather"))
    ),
}


@dataclass
class Results:
    """What was scored on what, and the scores. Two runs continue each other if the first four fields are equal."""

    task: str
    data: str
    images: int
    seed: int
    models: dict[str, str]  # name -> sha256 of its file
    cells: dict[tuple[str, Condition], Scores] = field(default_factory=dict)

    def missing(self, models: Sequence[str], condition: Condition) -> list[str]:
        """Return the models that have no cell for a condition."""
        return [model for model in models if (model, condition) not in self.cells]

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.task]

    def as_json(self, comparisons: Sequence[Comparison] = ()) -> dict[str, Any]:
        """Return the content of the file; the cells are its `results`."""
        cells = [
            {"model": model, "corruption": kind, "severity": severity, **scores}
            for (model, (kind, severity)), scores in self.cells.items()
        ]
        head = {name: getattr(self, name) for name in _HEAD}
        return {**head, "comparisons": [dataclasses.asdict(one) for one in comparisons], "results": cells}

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read a file written before."""
        try:
            content = json.loads(path.read_text())
            cells = {
                (cell.pop("model"), (cell.pop("corruption"), cell.pop("severity"))): {
                    name: float(score) for name, score in cell.items()
                }
                for cell in content["results"]
            }
            results = cls(**{name: content[name] for name in _HEAD}, cells=cells)
            texts = (text for pair in results.models.items() for text in pair)
            complete = (
                set(results.layout.scores) <= scores.keys() and model in results.models
                for (model, _), scores in cells.items()
            )
            if not all(isinstance(text, str) for text in texts) or not all(complete):
                raise ValueError("models are names and hashes, and their cells hold all scores")
            return results
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{path} is not a result file of `pixeldiff eval ... --corruption`; give another name"
            ) from error

    def resume(self, path: Path) -> Results:
        """Return this run with the cells of the file, if it exists and is of the same run."""
        if not path.exists():
            return self
        before = self.load(path)
        for name in ("task", "data", "images", "seed"):
            if getattr(before, name) != getattr(self, name):
                raise InputError(
                    f"{path} holds a run with {name} {getattr(before, name)!r}, this one has {getattr(self, name)!r}; "
                    "give another --json file"
                )
        # A model is its file's content: "last" of the earlier run may be "a/last" now that there is a "b/last", too.
        names = {sha256: name for name, sha256 in self.models.items()}
        renamed = {name: names.get(sha256, name) for name, sha256 in before.models.items()}
        models = {renamed[name]: sha256 for name, sha256 in before.models.items()}
        if changed := [name for name, sha256 in self.models.items() if models.get(name, sha256) != sha256]:
            raise InputError(f"{path} holds scores of an earlier {', '.join(changed)}; give another --json file")
        cells = {(renamed[name], condition): scores for (name, condition), scores in before.cells.items()}
        return Results(**{**vars(self), "models": models | self.models, "cells": cells})


def conditions(kinds: Sequence[str], severities: Sequence[int], clean: bool = True) -> list[Condition]:
    """Return the clean data, then each corruption at each severity."""
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UserError(f"unknown corruption {', '.join(map(repr, unknown))}; expected all or {', '.join(KINDS)}")
    if wrong := [severity for severity in severities if severity not in SEVERITIES]:
        raise UserError(f"severity is 1 to 5, got {', '.join(map(str, wrong))}")
    grid = [(kind, severity) for kind in KINDS if kind in kinds for severity in sorted(set(severities))]
    return [CLEAN, *grid] if clean else grid


def fill(
    results: Results,
    benchmark: Benchmark[Any, Any, Any],
    models: Sequence[Model],
    grid: Sequence[Condition],
    *,
    threads: int = 1,
    save: Callable[[], None] = lambda: None,
    start: Callable[[Condition], None] = lambda condition: None,
    advance: Advance = lambda samples: None,
) -> None:
    """Score the missing cells; `save` is called after each condition."""
    by_name = {model.name: model for model in models}
    for condition in grid:
        missing = results.missing(list(by_name), condition)
        if not missing:
            continue
        start(condition)
        chosen = [by_name[name] for name in missing]
        counts = evaluate(benchmark, chosen, condition, seed=results.seed, threads=threads, advance=advance)
        for name, counts_of_model in counts.items():
            summary = benchmark.summarize(counts_of_model)
            results.cells[name, condition] = {score: float(summary[score]) for score in results.layout.scores}
        save()


# --- comparison -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """A model against a reference over the corruptions of one severity (None: all), on the first score of a cell."""

    model: str
    reference: str
    severity: int | None
    cells: int
    ahead: int
    mean: float  # of the model
    difference: float  # mean of the paired differences
    error: float | None  # its standard error over the cells, if there are several

    def describe(self, layout: Layout) -> str:
        """Say in one line in how many cells the model is ahead, and by how much on average."""
        digits = layout.digits
        level = "all severities" if self.severity is None else f"severity {self.severity}"
        error = "" if self.error is None else f" ± {self.error:.{digits}f}"
        return (
            f"{self.model} against {self.reference}, {level}: ahead in {self.ahead} of {self.cells} cells, "
            f"mean {layout.label} {self.mean:.{digits}f}, difference {self.difference:+.{digits}f}{error}"
        )


def compare(results: Results, models: Sequence[str], grid: Sequence[Condition]) -> list[Comparison]:
    """Compare every further model with the first."""
    return [one for model in models[1:] for one in _compare_pair(results, model, models[0], grid)]


def _compare_pair(results: Results, model: str, reference: str, grid: Sequence[Condition]) -> list[Comparison]:
    """Return one comparison per severity and one over all, from the cells that both models have."""
    score = results.layout.scores[0]
    corrupted = [condition for condition in grid if condition != CLEAN]
    common = [condition for condition in corrupted if not results.missing([model, reference], condition)]
    comparisons = []
    for severity in [*sorted({severity for _, severity in common}), None]:
        chosen = [condition for condition in common if severity in (None, condition[1])]
        if not chosen:
            continue
        scores = np.array([results.cells[model, condition][score] for condition in chosen])
        difference = scores - np.array([results.cells[reference, condition][score] for condition in chosen])
        error = float(difference.std(ddof=1) / np.sqrt(len(chosen))) if len(chosen) > 1 else None
        ahead = int(np.sum(difference > 0))
        numbers = (len(chosen), ahead, float(scores.mean()), float(difference.mean()), error)
        comparisons.append(Comparison(model, reference, severity, *numbers))
    return comparisons


# --- tables and plots -----------------------------------------------------------------------------------------------


def table(results: Results, models: Sequence[str], grid: Sequence[Condition], columns: int = 200) -> str:
    """Lay out the paper's blocks for these models and conditions; blocks that are too wide are split by family."""
    chosen = _families([kind for kind, _ in grid])
    severities = _severities(grid)[::-1]
    blocks = []
    for names in results.layout.blocks:
        parts = [(family, chosen[family]) for family in names if family in chosen]
        block = _block(results, models, parts, severities) if parts else ""
        if max(map(len, block.splitlines()), default=0) > columns:
            blocks += [_block(results, models, [part], severities) for part in parts]
        elif parts:
            blocks.append(block)
    if CLEAN in grid:
        clean = ", ".join(f"{model} {_cell(results, model, CLEAN)}" for model in models)
        blocks.insert(0, f"Clean: {clean}")
    return "\n\n".join(blocks)


def _cell(results: Results, model: str, condition: Condition) -> str:
    """Format the scores of a cell (ODS/OIS, or top-1); a dash if there are none."""
    scores = results.cells.get((model, condition))
    if scores is None:
        return "-"
    layout = results.layout
    return "/".join(f"{scores[name]:.{layout.digits}f}" for name in layout.scores)


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
            values = ("".join(f"{_cell(results, model, (k, severity)):>{width}}" for k in kinds) for _, kinds in parts)
            lines.append(" |".join([f"{label:{first}}", *values]))
    return "\n".join(lines)


def plot(results: Results, models: Sequence[str], grid: Sequence[Condition], path: Path) -> None:
    """Plot bars per corruption, one panel per severity, the clean score as a line of the model's color."""
    check_plot(path)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    kinds = [kind for family in _families([kind for kind, _ in grid]).values() for kind in family]
    severities = _severities(grid)
    figure = Figure(figsize=(10, 2.6 * len(severities) + 0.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(severities), 1, squeeze=False)[:, 0]
    for severity, axis in zip(severities, axes, strict=True):
        _panel(axis, results, models, kinds, severity)
        axis.set_ylabel(results.layout.axis)
        axis.set_title(f"severity {severity}" + (" (dashed: clean)" if CLEAN in grid else ""), loc="left", fontsize=10)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=len(models), frameon=False)
    save_figure(figure, path, dpi=150)


def _panel(axis: Any, results: Results, models: Sequence[str], kinds: Sequence[str], severity: int) -> None:
    score = results.layout.scores[0]
    width = 0.8 / len(models)
    for i, model in enumerate(models):
        color = COLORS[i % len(COLORS)]
        values = [results.cells.get((model, (kind, severity)), {}).get(score, 0.0) for kind in kinds]
        places = [k + (i - (len(models) - 1) / 2) * width for k in range(len(kinds))]
        axis.bar(places, values, width, color=color, label=model)
        if (model, CLEAN) in results.cells:
            axis.axhline(results.cells[model, CLEAN][score], color=color, linewidth=0.8, linestyle="--")
    axis.set_xticks(range(len(kinds)), [SHORT[kind] for kind in kinds])
    axis.spines[["top", "right"]].set_visible(False)


def _severities(grid: Sequence[Condition]) -> list[int]:
    return sorted({severity for kind, severity in grid if (kind, severity) != CLEAN})


def _families(kinds: Sequence[str]) -> Mapping[str, list[str]]:
    """Group corruptions by family."""
    chosen = {family: [kind for kind in members if kind in kinds] for family, members in FAMILIES.items()}
    return {family: members for family, members in chosen.items() if members}
