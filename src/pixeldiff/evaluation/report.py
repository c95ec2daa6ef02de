"""Results on disk: JSON, CSV per picture, and the four text files that others' plotting scripts read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pixeldiff.evaluation.edges import Evaluation
from pixeldiff.files import write_whole


def to_dict(name: str, evaluation: Evaluation, sha256: str | None = None) -> dict[str, Any]:
    """What --json holds for one folder of maps, or for the network with this hash."""
    summary, curve = evaluation.summary, evaluation.summary.curve
    return {
        "name": name,
        **({} if sha256 is None else {"sha256": sha256}),
        "pictures": len(evaluation.pictures),
        "settings": asdict(evaluation.settings),
        "ods": summary.ods,
        "ois": summary.ois,
        "ap": summary.ap,
        "r50": summary.r50,
        "crispness": evaluation.crispness,
        "ods_point": asdict(summary.ods_point),
        "curve": {
            "threshold": curve.thresholds.tolist(),
            "recall": curve.recall.tolist(),
            "precision": curve.precision.tolist(),
            "f": curve.f.tolist(),
        },
    }


def write_json(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """One result as it is, several under `results`."""
    content = results[0] if len(results) == 1 else {"results": list(results)}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())


def write_csv(path: Path, evaluations: dict[str, Evaluation]) -> None:
    """One line per folder and picture: the picture's best point and its crispness."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["maps", "picture", "threshold", "recall", "precision", "f", "crispness"])
    for name, evaluation in evaluations.items():
        for picture, point in zip(evaluation.pictures, evaluation.summary.images, strict=True):
            numbers = (point.threshold, point.recall, point.precision, point.f, evaluation.pictures[picture].crispness)
            writer.writerow([name, picture, *(f"{number:.6f}" for number in numbers)])
    write_whole(path, text.getvalue().encode())


def write_text_files(folder: Path, evaluation: Evaluation) -> None:
    """eval_bdry.txt, eval_bdry_thr.txt, eval_bdry_img.txt and one <picture>_ev1.txt each."""
    summary, curve = evaluation.summary, evaluation.summary.curve
    best = summary.ods_point
    ois = (summary.ois_recall, summary.ois_precision, summary.ois)
    write_whole(
        folder / "eval_bdry.txt", _rows([(best.threshold, best.recall, best.precision, best.f, *ois, summary.ap)])
    )
    write_whole(
        folder / "eval_bdry_thr.txt", _rows(zip(curve.thresholds, curve.recall, curve.precision, curve.f, strict=True))
    )
    points = [(k, p.threshold, p.recall, p.precision, p.f) for k, p in enumerate(summary.images, start=1)]
    write_whole(folder / "eval_bdry_img.txt", _rows(points))
    for name, scored in evaluation.pictures.items():
        c = scored.counts
        columns = (c.thresholds, c.matched_truth, c.all_truth, c.matched_prediction, c.all_prediction)
        write_whole(folder / f"{name}_ev1.txt", _rows(zip(*columns, strict=True)))


def _rows(rows: Iterable[Iterable[float]]) -> bytes:
    return "".join(" ".join(f"{number:10g}" for number in row) + "\n" for row in rows).encode()
