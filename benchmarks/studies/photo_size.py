"""Scores over the size at which the network sees a large image: what DEFAULT_SIZE of EdgeDetector rests on.

    python benchmarks/studies/photo_size.py --data BSDS500 [--split val] [--model tiny] [--every 4] [--json FILE]

Images of BSDS500 are enlarged 2, 3 and 4 times (Pillow's bicubic). The detector gives maps of the enlarged size;
they are reduced again (smoothly, `image.reduce`) and scored at the original size, as the originals are. `--every 4`
takes every fourth image. The default was chosen on val; test is a report. A later run replaces
its entry of FILE.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pixeldiff import EdgeDetector, image
from pixeldiff.data.edges import find_labels
from pixeldiff.machine import describe
from pixeldiff.metrics.edges import Counts, evaluate_image, summarize

FACTORS = (1, 2, 3, 4)
SIZES: tuple[int | str, ...] = ("none", 1500, 1000, 800, 640, 481)


def enlarged(photo: image.ImageArray, factor: int) -> image.ImageArray:
    if factor == 1:
        return photo
    size = (photo.shape[1] * factor, photo.shape[0] * factor)
    return np.asarray(Image.fromarray(photo).resize(size, Image.Resampling.BICUBIC))


def reduced_map(edges: image.FloatMap, size: tuple[int, int]) -> image.FloatMap:
    return image.reduce(np.repeat(edges[..., None], 3, 2), size)[..., 0]


def measure(
    detector: EdgeDetector, data: Path, split: str, every: int, sizes: Sequence[int | None]
) -> list[dict[str, Any]]:
    labels = find_labels(data / "groundTruth" / split)
    names = sorted(labels)[::every]
    counts: dict[tuple[int, int | None], list[Counts]] = {}
    for name in names:
        photo = image.read(data / "images" / split / f"{name}.jpg")
        masks = labels[name].masks()
        for factor in FACTORS:
            large = enlarged(photo, factor)
            for size in sizes:
                if size is not None and size >= max(large.shape):
                    continue  # the same as all pixels
                edges = reduced_map(detector(large, max_size=size), photo.shape[:2])
                counts.setdefault((factor, size), []).append(evaluate_image(edges, masks))
    rows = []
    for (factor, size), own in counts.items():
        scores = summarize(own)
        row = {"factor": factor, "size": size, "images": len(own), "ods": scores.ods, "ois": scores.ois}
        rows.append({key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", choices=("val", "test"), default="val")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=[str(size) for size in SIZES])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    sizes = [None if size == "none" else int(size) for size in given.sizes]
    rows = measure(EdgeDetector(given.model, threads=given.threads), given.data, given.split, given.every, sizes)
    report = {"machine": describe(given.threads, Path(__file__)), "rows": rows}
    for row in rows:
        print(*(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json:
        entries = json.loads(given.json.read_text()) if given.json.exists() else {}
        entries[f"{given.model} {given.split}"] = report
        given.json.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
