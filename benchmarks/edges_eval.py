"""What the claims about the boundary benchmark rest on: agreement with SciPy, speed, and how speed scales.

    python benchmarks/edges_eval.py --maps MAPS --data BSDS500 [--quick] [--json FILE]

MAPS is a folder of float maps (.npy) of the 200 test images. Single-thread times are CPU times, so that a busy
machine disturbs them less; ratios come from one run.
- agreement: one threshold and one annotator of each image, counts and total distance against SciPy's exact solver;
- carried: all thresholds of an image against the same matcher started afresh at each, and against SciPy;
- scaling: mosaics of real images, 0.1 to 2 megapixels, once with the tolerance of one image (in pixels), once with
  max_dist of the growing diagonal, where the tolerance and with it the number of possible pairs per pixel grows;
- whole: the test set with two workers, wall-clock, CPU time and peak memory of a process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff import _native
from pixeldiff.data.edges import find_labels
from pixeldiff.data.maps import read_map
from pixeldiff.edgemap import nms, to_8_bit
from pixeldiff.machine import describe
from pixeldiff.metrics.edges import BSDS_MAX_DIST, lowest_levels, threshold_values

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.references import matching as reference

LEVELS = lowest_levels(threshold_values(99))
ImageArray = tuple[np.ndarray, np.ndarray]  # float map, stack of truths as uint8


def cpu_seconds(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = work(*arguments)
    return time.process_time() - start, result


def radius_of(edge_map: np.ndarray) -> float:
    return BSDS_MAX_DIST * float(np.hypot(*edge_map.shape))


def load(maps: Path, data: Path) -> list[ImageArray]:
    labels = find_labels(data / "groundTruth" / "test")
    return [(read_map(maps / f"{name}.npy"), np.stack(labels[name].masks()).view(np.uint8)) for name in sorted(labels)]


def agreement(images: list[ImageArray]) -> dict[str, int]:
    """Pairs of map and annotator whose pair count, matched pixels and cost equal SciPy's."""
    equal = 0
    for k, (edge_map, truths) in enumerate(images):
        level = LEVELS[(7 * k) % 99]
        truth = truths[k % len(truths)]
        mask = _native.thin((to_8_bit(nms(edge_map)) >= level).view(np.uint8))
        pairs, cost = _native.match(mask, truth, radius_of(edge_map), 2)
        matched, expected = reference.match(mask.astype(bool), truth.astype(bool), radius_of(edge_map), 2)
        equal += cost == expected and np.array_equal(np.sort(pairs[:, 0]), np.flatnonzero(matched))
    return {"pairs": len(images), "equal": int(equal)}


def count_all(levels: np.ndarray, truths: np.ndarray, radius: float) -> np.ndarray:
    result: np.ndarray = np.array(_native.count_boundary(levels, LEVELS, True, truths, radius)).T
    return result


def count_afresh(levels: np.ndarray, truths: np.ndarray, radius: float) -> np.ndarray:
    each = [_native.count_boundary(levels, [level], True, truths, radius) for level in LEVELS]
    return np.array(each)[:, :, 0]


def count_scipy(levels: np.ndarray, truths: np.ndarray, radius: float) -> np.ndarray:
    masks = [_native.thin((levels >= level).view(np.uint8)).astype(bool) for level in LEVELS]
    return np.array([reference.count(mask, list(truths.astype(bool)), radius) for mask in masks])


def carried(images: list[ImageArray], with_scipy: int) -> dict[str, float]:
    """CPU seconds per image, thinning included; SciPy on the first few. All counts must be equal."""
    spent = {"carried": 0.0, "afresh": 0.0, "scipy": 0.0, "carried_for_scipy": 0.0}
    for k, (edge_map, truths) in enumerate(images):
        given = (to_8_bit(nms(edge_map)), truths, radius_of(edge_map))
        own, counts = cpu_seconds(count_all, *given)
        afresh, again = cpu_seconds(count_afresh, *given)
        assert np.array_equal(counts, again), "counts depend on the other thresholds"
        spent["carried"] += own
        spent["afresh"] += afresh
        if k < with_scipy:
            seconds, expected = cpu_seconds(count_scipy, *given)
            assert np.array_equal(counts, expected), "counts differ from SciPy's"
            spent["scipy"] += seconds
            spent["carried_for_scipy"] += own
    return {
        "images": len(images),
        "carried_s": spent["carried"] / len(images),
        "afresh_s": spent["afresh"] / len(images),
        "times_faster_than_afresh": spent["afresh"] / spent["carried"],
        "scipy_images": with_scipy,
        "scipy_s": spent["scipy"] / with_scipy,
        "times_faster_than_scipy": spent["scipy"] / spent["carried_for_scipy"],
    }


def count_suppressed(edge_map: np.ndarray, truths: np.ndarray, radius: float) -> np.ndarray:
    return count_all(to_8_bit(nms(edge_map)), truths, radius)


def scaling(images: list[ImageArray], sides: tuple[int, ...]) -> list[dict[str, float]]:
    """Microseconds per edge pixel (predicted at the lowest threshold, plus true, over annotators) of mosaics."""
    # The same images at every size: their middles, one by one, four in one, all in one ...
    most = max(sides)
    landscape = [(m, t[:4]) for m, t in images if m.shape == (321, 481) and len(t) >= 4][: most * most]
    parts = [[(m[40:281, 40:441], t[:, 40:281, 40:441]) for m, t in landscape]]
    for side in sides:
        each = side * side
        parts.append([_mosaic(landscape[k : k + each], side) for k in range(0, len(landscape), each)])
    rows = []
    for mosaics in parts:
        row: dict[str, float] = {"megapixels": mosaics[0][0].size / 1e6}
        for kind in ("tolerance_of_one_image", "tolerance_grows"):
            spent = pixels = 0.0
            for edge_map, truths in mosaics:
                diagonal = np.hypot(321, 481) if kind == "tolerance_of_one_image" else np.hypot(*edge_map.shape)
                radius = BSDS_MAX_DIST * float(diagonal)
                stack = np.ascontiguousarray(truths)
                seconds, counts = cpu_seconds(count_suppressed, edge_map, stack, radius)
                spent += seconds
                pixels += float(counts[:, 2].max()) * len(stack) + float(stack.sum())
            row[f"us_per_edge_pixel_{kind}"] = 1e6 * spent / pixels
        rows.append(row)
    return rows


def _mosaic(images: list[ImageArray], side: int) -> ImageArray:
    rows = [images[k * side : (k + 1) * side] for k in range(side)]
    truths = [np.block([[t[a] for _, t in row] for row in rows]) for a in range(4)]
    return np.block([[m for m, _ in row] for row in rows]), np.stack(truths)


def whole(maps: Path, data: Path) -> dict[str, float]:
    """The command line on the whole test set, in a process of its own."""
    arguments = ["-m", "pixeldiff", "eval", "edges", str(maps), "--dataset", "bsds500", "--data-dir", str(data)]
    arguments += ["--threads", "2"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=sys.stderr)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": wall, "cpu_s": cpu, "peak_memory_mb": after.ru_maxrss / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="few images, for a first look")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results: dict[str, Any] = {"machine": describe(2, Path(__file__))}

    def keep(name: str, result: Any) -> None:
        results[name] = result
        print(f"{name}: {json.dumps(result)}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(results, indent=1) + "\n")

    keep("whole", whole(given.maps, given.data))  # first: a child starts with the memory of its parent
    images = load(given.maps, given.data)
    keep("scaling", scaling(images, (1, 2) if given.quick else (1, 2, 4)))
    keep("agreement", agreement(images[:: 10 if given.quick else 1]))
    keep("carried", carried(images[:: 100 if given.quick else 40], with_scipy=1))


if __name__ == "__main__":
    main()
