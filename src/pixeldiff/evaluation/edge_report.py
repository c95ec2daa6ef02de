"""Scores of edge maps as a table, as JSON, as CSV per image, and as the four text files of the original benchmark."""

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
    from pixeldiff.evaluation.edges import EdgeScores, Settings


def to_dict(name: str, scores: EdgeScores, sha256: str | None = None) -> dict[str, Any]:
    """Return what --json holds for a folder of maps, or for the model with this hash."""
    curve = scores.summary.curve
    return {
        "name": name,
        **({} if sha256 is None else {"sha256": sha256}),
        "images": len(scores.images),
        "settings": asdict(scores.settings),
        **scores.numbers(),
        "ods_point": asdict(scores.summary.ods_point),
        "curve": {
            "threshold": curve.thresholds.tolist(),
            "recall": curve.recall.tolist(),
            "precision": curve.precision.tolist(),
            "f": curve.f.tolist(),
        },
    }


def table(scores: Mapping[str, EdgeScores]) -> list[str]:
    """Return a line per folder of maps or model, and how they were scored."""
    wide = max(4, *map(len, scores))
    lines = [f"{'maps':{wide}}     ODS     OIS      AP     R50  crispness  images"]
    for name, one in scores.items():
        numbers = "  ".join(f"{number:.4f}" for number in (one.ods, one.ois, one.ap, one.r50))
        lines.append(f"{name:{wide}}  {numbers}  {one.crispness:9.4f}  {len(one.images):8}")
    return [*lines, _describe(next(iter(scores.values())).settings)]


def _describe(settings: Settings) -> str:
    thinning = "thinning" if settings.thin else "no thinning"
    nms = f"NMS (radius {settings.nms_radius})" if settings.nms else "No NMS"
    thresholds = f"{settings.thresholds} threshold{'s' * (settings.thresholds != 1)}"
    return f"{nms}, {thinning}; {thresholds}; tolerance {settings.max_dist} of the diagonal."


def write_csv(path: Path, scores: Mapping[str, EdgeScores]) -> None:
    """Write one line per folder and image: the image's best point and its crispness."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["maps", "image", "threshold", "recall", "precision", "f", "crispness"])
    for name, one in scores.items():
        for image, point in zip(one.images, one.summary.images, strict=True):
            numbers = (point.threshold, point.recall, point.precision, point.f, one.images[image].crispness)
            writer.writerow([name, image, *(f"{number:.6f}" for number in numbers)])
    atomic_write(path, text.getvalue().encode())


def write_all_text_files(folder: Path, scores: Mapping[str, EdgeScores]) -> None:
    """Write the text files of one evaluation into the folder, those of several into one folder each."""
    for name, one in scores.items():
        # A name may be a path, if two folders have the same name; it must not lead out of this folder.
        inner = folder / re.sub(r"[^\w.+-]+", "_", name).strip("._")
        write_text_files(folder if len(scores) == 1 else inner, one)


def write_text_files(folder: Path, scores: EdgeScores) -> None:
    """Write eval_bdry.txt, eval_bdry_thr.txt, eval_bdry_img.txt and one <image>_ev1.txt per image."""
    summary, curve = scores.summary, scores.summary.curve
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
    for name, scored in scores.images.items():
        c = scored.counts
        columns = (c.thresholds, c.matched_truth, c.all_truth, c.matched_prediction, c.all_prediction)
        atomic_write(folder / f"{name}_ev1.txt", _rows(zip(*columns, strict=True)))


def _rows(rows: Iterable[Iterable[float]]) -> bytes:
    return "".join(" ".join(f"{number:10g}" for number in row) + "\n" for row in rows).encode()
