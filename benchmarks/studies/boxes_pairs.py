"""Detectors of one data set side by side: scores, and how sure their differences are.

    python benchmarks/studies/boxes_pairs.py --data voc2012 --json benchmarks/results/boxes_pairs.json \
        plain=runs/plain/final/last.safetensors cpdc=runs/cpdc/final/last.safetensors

Every network finds objects in the same pictures. The error of a difference to the first network is its spread over sets
of pictures drawn with replacement (bootstrap), the same sets for all: how much the pictures matter. What another seed
of training would change is not in it.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff.data.lists import find_root
from pixeldiff.data.voc import ORIGIN, list_objects
from pixeldiff.evaluation.boxes import SCORED
from pixeldiff.export.boxes import export_boxes
from pixeldiff.machine import describe
from pixeldiff.metrics.boxes import Matches, Truth
from pixeldiff.runtime.boxes import ObjectDetector
from pixeldiff.weights import sha256

SCORES = ("map50", "ap")


def matched(weights: Path, data: Path, split: str) -> list[Matches]:
    """What a network finds, a table for each picture."""
    with tempfile.TemporaryDirectory() as folder:
        export_boxes(weights, Path(folder) / "network.onnx")
        detector = ObjectDetector(Path(folder) / "network.onnx")
    tables = []
    for own in list_objects(data, split, detector.labels).pictures:
        table = Matches(len(detector.labels))
        table.add(detector(own.picture, SCORED), Truth(own.boxes, own.labels, own.ignored))
        tables.append(table)
    return tables


def scores(tables: list[Matches], chosen: np.ndarray | range) -> dict[str, float]:
    total = Matches(len(tables[0].classes))
    for index in chosen:
        total.merge(tables[index])
    summary = total.summary()
    return {name: getattr(summary, name) for name in SCORES}


def compare(networks: dict[str, list[Matches]], draws: int) -> dict[str, Any]:
    """Scores of each, and for all but the first the difference to it with its error."""
    pictures = len(next(iter(networks.values())))
    rng = np.random.default_rng(0)
    whole = {name: scores(tables, range(pictures)) for name, tables in networks.items()}
    drawn: dict[str, list[dict[str, float]]] = {name: [] for name in networks}
    for _ in range(draws):
        chosen = rng.integers(0, pictures, pictures)
        for name, tables in networks.items():
            drawn[name].append(scores(tables, chosen))
    first = next(iter(networks))
    report: dict[str, Any] = {}
    for name, own in whole.items():
        report[name] = {key: round(value, 2) for key, value in own.items()}
        if name == first:
            continue
        for key in SCORES:
            differences = [a[key] - b[key] for a, b in zip(drawn[name], drawn[first], strict=True)]
            report[name][f"{key}_difference"] = round(own[key] - whole[first][key], 2)
            report[name][f"{key}_error"] = round(statistics.stdev(differences), 2)
    return report


@click.command()
@click.argument("networks", nargs=-1, required=True, metavar="NAME=WEIGHTS...")
@click.option("--data", required=True)
@click.option("--split", default="val", show_default=True)
@click.option("--draws", default=200, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(networks: tuple[str, ...], data: str, split: str, draws: int, json_file: Path | None) -> None:
    files = {name: Path(path) for name, _, path in (word.partition("=") for word in networks)}
    root = find_root(data, ORIGIN)
    report = compare({name: matched(path, root, split) for name, path in files.items()}, draws)
    for name, path in files.items():
        report[name]["sha256"] = sha256(path)
    text = json.dumps(
        {"machine": describe(1, Path(__file__)), "split": split, "draws": draws, "networks": report}, indent=1
    )
    if json_file:
        json_file.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
