"""The runs behind the shipped edge networks: a table for docs/results/training.md and the curves of ODS over hours.

python benchmarks/studies/edge_training.py [--plot docs/images/training.png]

benchmarks/results/edge_training.json has one entry per run: its recipe and stage, the one it starts from, how many
windows, and `points` of (hours into the run, ODS on BSDS500 test), the last one with OIS and AP. Each was scored by
`pixeldiff eval edges -m weights/<step>.safetensors --dataset bsds500 --data-dir BSDS500`; none was used to choose.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from pixeldiff.figures import COLORS, save_figure

RESULTS = Path(__file__).parents[1] / "results" / "edge_training.json"
Runs = dict[str, dict[str, Any]]  # "edges/tiny first", a recipe and its stage -> the entry


def read() -> Runs:
    return {name_of(run): run for run in json.loads(RESULTS.read_text())}


def name_of(entry: dict[str, Any]) -> str:
    """What a run, or a card, calls its recipe and stage."""
    return " ".join(entry[key] for key in ("recipe", "stage") if key in entry)


def hours_before(runs: Runs, recipe: str) -> float:
    """Hours of all runs that this one stands on."""
    after = runs[recipe]["after"]
    return 0.0 if after is None else hours_before(runs, after) + runs[after]["points"][-1][0]


def as_markdown(runs: Runs) -> str:
    lines = [
        "| recipe and stage | starts from | windows | hours | ODS on the way | ODS / OIS / AP |",
        "|---|---|---|---|---|---|",
    ]
    for recipe, run in runs.items():
        hours, *scores = run["points"][-1]
        way = ", ".join(f"{_short(ods)} ({early} h)" for early, ods in run["points"][:-1])
        start = f"`{run['after']}`" if run["after"] else "nothing"
        final = " / ".join(map(_short, scores))
        lines.append(f"| `{recipe}` | {start} | {run['windows']:,} | {hours} | {way} | {final} |")
    return "\n".join(lines)


def _short(score: float) -> str:
    return f"{score:g}".removeprefix("0")  # as many digits as were kept


def draw(runs: Runs, path: Path) -> None:
    """ODS over the hours since tiny began; a network goes on from where the one it was widened from stood."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    names = list(dict.fromkeys(run["network"] for run in runs.values()))
    for name, color in zip(names, COLORS, strict=False):
        own = {recipe: run for recipe, run in runs.items() if run["network"] == name}
        for k, (recipe, run) in enumerate(own.items()):
            begin = hours_before(runs, recipe)
            points = [(begin + hours, ods) for hours, ods, *_ in run["points"]]
            if run["after"]:
                points = [(begin, runs[run["after"]]["points"][-1][1]), *points]
            axes.plot(*zip(*points, strict=True), "o-", color=color, markersize=4, label=name if k == 0 else None)
    axes.set(xlabel="hours on a CPU, those of the networks before included", ylabel="ODS, BSDS500 test")
    axes.grid(color="#dddddd", linewidth=0.5)
    axes.legend(loc="lower right")
    save_figure(figure, path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="Draw the curves into this .png, .svg or .pdf file.")
    options = parser.parse_args()
    runs = read()
    print(as_markdown(runs))
    if options.plot:
        draw(runs, options.plot)


if __name__ == "__main__":
    main()
