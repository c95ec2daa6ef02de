"""Networks of one task side by side: scores, and how sure their differences are.

    python benchmarks/studies/pairs.py boxes --data voc2012 --json benchmarks/results/boxes_pairs.json \
        plain=runs/plain/final/last.safetensors cpdc=runs/cpdc/final/last.safetensors
    python benchmarks/studies/pairs.py edges --data BSDS500 \
        plain=runs/plain-0/last.safetensors,runs/plain-1/last.safetensors carv=...

All networks see the same images. The weights of one name are its seeds in order, and its score is their mean. The
error of a difference to the first name is its spread over sets of images drawn with replacement (bootstrap), the same
sets for all: how much the images matter; `spread` is that of a score alone. What training leaves to chance is in the
differences seed by seed.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from pixeldiff.data import voc
from pixeldiff.data.edges import READERS, by_name, read_dataset
from pixeldiff.data.lists import find_root
from pixeldiff.detector import EdgeDetector
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.edges import EdgeBenchmark, NetworkSource
from pixeldiff.evaluation.objects import ObjectBenchmark
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.machine import describe
from pixeldiff.metrics.edges import summarize
from pixeldiff.metrics.objects import Matches
from pixeldiff.weights import sha256

Scores = dict[str, float]


class Study(NamedTuple):
    """What a task brings along."""

    tables: Callable[[Path, str, str], list[Any]]  # weights, data, split -> what is counted in each image
    scores: Callable[[Iterable[Any]], Scores]  # of some of these
    digits: int


def edge_tables(weights: Path, data: str, split: str) -> list[Any]:
    labels = by_name(read_dataset("bsds500", find_root(data, READERS["bsds500"].origin), split))
    detector = EdgeDetector(weights, threads=1, max_size=None)
    results = evaluate(EdgeBenchmark(labels), [Model("network", NetworkSource(detector, ""))])
    return [image.counts for image in results["network"]]


def edge_scores(tables: Iterable[Any]) -> Scores:
    summary = summarize(tables)
    return {"ods": summary.ods, "ois": summary.ois, "ap": summary.ap}


def box_tables(weights: Path, data: str, split: str) -> list[Any]:
    from pixeldiff.export.objects import export_objects

    with tempfile.TemporaryDirectory() as folder:
        export_objects(weights, Path(folder) / "network.onnx")
        detector = ObjectDetector(Path(folder) / "network.onnx")
    benchmark = ObjectBenchmark(voc.list_objects(find_root(data, voc.ORIGIN), split, detector.labels))
    return evaluate(benchmark, [Model("network", detector)])["network"]


def box_scores(tables: Iterable[Any]) -> Scores:
    first, *rest = tables
    total = Matches(first.count)
    for table in (first, *rest):
        total.merge(table)
    summary = total.summary()
    return {"map50": summary.map50, "ap": summary.ap}


STUDIES = {"edges": Study(edge_tables, edge_scores, 4), "objects": Study(box_tables, box_scores, 2)}


def compare(study: Study, networks: dict[str, list[list[Any]]], draws: int) -> dict[str, Any]:
    """Scores of each, and for all but the first the differences to it with their errors.

    A network is a list of its seeds, a seed a list of its images.
    """
    first, images = next(iter(networks)), len(next(iter(networks.values()))[0])
    rng = np.random.default_rng(0)
    whole = {name: [study.scores(seed) for seed in seeds] for name, seeds in networks.items()}
    drawn: dict[str, list[Scores]] = {name: [] for name in networks}
    for _ in range(draws):
        chosen = rng.integers(0, images, images)
        for name, seeds in networks.items():
            drawn[name].append(mean([study.scores([seed[k] for k in chosen]) for seed in seeds]))
    report: dict[str, Any] = {}
    for name, each in whole.items():
        own, other = mean(each), mean(whole[first])
        report[name] = {key: round(value, study.digits) for key, value in own.items()}
        if len(each) > 1:
            report[name]["seeds"] = [{key: round(value, study.digits) for key, value in one.items()} for one in each]
        for key in own:
            report[name][f"{key}_spread"] = round(statistics.stdev(one[key] for one in drawn[name]), study.digits)
        for key in own if name != first else ():
            spread = statistics.stdev(a[key] - b[key] for a, b in zip(drawn[name], drawn[first], strict=True))
            report[name][f"{key}_difference"] = round(own[key] - other[key], study.digits)
            report[name][f"{key}_error"] = round(spread, study.digits)
    return report


def mean(scores: list[Scores]) -> Scores:
    return {key: statistics.fmean(one[key] for one in scores) for key in scores[0]}


@click.command()
@click.argument("task", type=click.Choice(list(STUDIES)))
@click.argument("networks", nargs=-1, required=True, metavar="NAME=WEIGHTS[,WEIGHTS...] ...")
@click.option("--data", required=True)
@click.option("--split", default="val", show_default=True)
@click.option("--draws", default=200, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path))
def main(task: str, networks: tuple[str, ...], data: str, split: str, draws: int, json_file: Path | None) -> None:
    study = STUDIES[task]
    words = (word.partition("=") for word in networks)
    files = {name: [Path(one) for one in paths.split(",")] for name, _, paths in words}
    tables = {name: [study.tables(path, data, split) for path in paths] for name, paths in files.items()}
    report = compare(study, tables, draws)
    for name, paths in files.items():
        report[name]["sha256"] = [sha256(path) for path in paths]
    text = json.dumps(
        {"machine": describe(1, Path(__file__)), "split": split, "draws": draws, "networks": report}, indent=1
    )
    if json_file:
        json_file.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
