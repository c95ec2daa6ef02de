"""Scores of edge maps for people and programs: a table, JSON, CSV per image, and the four text files that others'
plotting scripts read."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pixeldiff.files import atomic_write

if TYPE_CHECKING:
    from pixeldiff.evaluation.edges import Evaluation, Settings


def to_dict(name: str, evaluation: Evaluation, sha256: str | None = None) -> dict[str, Any]:
    """What --json holds for one folder of maps, or for the network with this hash."""
    summary, curve = evaluation.summary, evaluation.summary.curve
    return {
        "name": name,
        **({} if sha256 is None else {"sha256": sha256}),
        "images": len(evaluation.images),
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


def table(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """A line per folder of maps or network, and how they were scored."""
    wide = max(4, *map(len, evaluations))
    lines = [f"{'maps':{wide}}     ODS     OIS      AP     R50  crispness  images"]
    for name, one in evaluations.items():
        s = one.summary
        scores = "  ".join(f"{number:.4f}" for number in (s.ods, s.ois, s.ap, s.r50))
        lines.append(f"{name:{wide}}  {scores}  {one.crispness:9.4f}  {len(one.images):8}")
    return [*lines, _described(next(iter(evaluations.values())).settings)]


def _described(settings: Settings) -> str:
    thinning = "thinned" if settings.thin else "not thinned"
    suppressed = f"Suppressed (radius {settings.nms_radius})" if settings.nms else "Not suppressed"
    tolerance = f"within {settings.max_dist} of the diagonal"
    thresholds = f"{settings.thresholds} threshold{'s' * (settings.thresholds != 1)}"
    return f"{suppressed}, {thinning}; {thresholds}; {tolerance}."


def write_csv(path: Path, evaluations: dict[str, Evaluation]) -> None:
    """One line per folder and image: the image's best point and its crispness."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["maps", "image", "threshold", "recall", "precision", "f", "crispness"])
    for name, evaluation in evaluations.items():
        for image, point in zip(evaluation.images, evaluation.summary.images, strict=True):
            numbers = (point.threshold, point.recall, point.precision, point.f, evaluation.images[image].crispness)
            writer.writerow([name, image, *(f"{number:.6f}" for number in numbers)])
    atomic_write(path, text.getvalue().encode())


def write_all_text_files(folder: Path, evaluations: Mapping[str, Evaluation]) -> None:
    """The text files of one evaluation in the folder, of several in one folder each."""
    for name, one in evaluations.items():
        # A name may be a path, where two folders are called alike; it shall not lead out of this one.
        own = folder / re.sub(r"[^\w.+-]+", "_", name).strip("._")
        write_text_files(folder if len(evaluations) == 1 else own, one)


def write_text_files(folder: Path, evaluation: Evaluation) -> None:
    """eval_bdry.txt, eval_bdry_thr.txt, eval_bdry_img.txt and one <image>_ev1.txt each."""
    summary, curve = evaluation.summary, evaluation.summary.curve
    best = summary.ods_point
    ois = (summary.ois_recall, summary.ois_precision, summary.ois)
    atomic_write(
        folder / "eval_bdry.txt", _rows([(best.threshold, best.recall, best.precision, best.f, *ois, summary.ap)])
    )
    atomic_write(
        folder / "eval_bdry_thr.txt", _rows(zip(curve.thresholds, curve.recall, curve.precision, curve.f, strict=True))
    )
    points = [(k, p.threshold, p.recall, p.precision, p.f) for k, p in enumerate(summary.images, start=1)]
    atomic_write(folder / "eval_bdry_img.txt", _rows(points))
    for name, scored in evaluation.images.items():
        c = scored.counts
        columns = (c.thresholds, c.matched_truth, c.all_truth, c.matched_prediction, c.all_prediction)
        atomic_write(folder / f"{name}_ev1.txt", _rows(zip(*columns, strict=True)))


def _rows(rows: Iterable[Iterable[float]]) -> bytes:
    return "".join(" ".join(f"{number:10g}" for number in row) + "\n" for row in rows).encode()
