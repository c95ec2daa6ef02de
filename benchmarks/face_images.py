"""Images of faces: how often one is found, how long it takes on one core, and how long a folder's search; JSON out.

python benchmarks/face_images.py FACES [--model NAME|FILE] [--images N] --json FILE

FACES holds folders of images (lfw, cfp, imfdb). Milliseconds are CPU time of this process, so that other load does
not count: a decoded image to its aligned face. The search runs as a user's command in new processes, on links to
5,000 images of the largest folder: first when nothing is known, then five times with the embeddings beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pixeldiff import image, weights
from pixeldiff.errors import UserError
from pixeldiff.files import atomic_write, find_files
from pixeldiff.inference.alignment import FaceAligner, NoFaceError
from pixeldiff.machine import describe

SEARCHED = 5000
AGAIN = 5


def images_in(folder: Path) -> list[Path]:
    return [path for path, _ in find_files([str(folder)], image.SUFFIXES, "images").files]


def measure_alignment(paths: list[Path], aligner: FaceAligner) -> dict[str, Any]:
    """How many faces are found in these images, and the CPU time of each."""
    times, without, several = [], 0, 0
    for path in paths:
        photo = image.read8(path)
        start = time.process_time()
        try:
            several += aligner(photo).rivals > 0
        except NoFaceError:
            without += 1
        times.append(1000 * (time.process_time() - start))
    tenths = statistics.quantiles(times, n=10)
    return {
        "images": len(paths),
        "found": len(paths) - without,
        "found_percent": round(100 * (1 - without / len(paths)), 2),
        "several": several,
        "median_ms": round(statistics.median(times), 2),
        "mean_ms": round(statistics.mean(times), 2),
        "p90_ms": round(tenths[-1], 2),
    }


def measure_search(paths: list[Path], model: str) -> dict[str, Any]:
    """Wall clock and CPU seconds of `pixeldiff faces search`, the first time and afterwards."""
    with tempfile.TemporaryDirectory(prefix="pixeldiff-bench-") as place:
        folder = Path(place) / "photos"
        folder.mkdir()
        like, *others = paths[: SEARCHED + 1]
        for number, path in enumerate(others):
            os.symlink(path.absolute(), folder / f"{number:05}{path.suffix}")
        command = [sys.executable, "-m", "pixeldiff", "faces", "search", str(folder), "--query", str(like)]
        command += ["--model", model, "--threshold", "0.5"]
        first, *again = [_run(command) for _ in range(1 + AGAIN)]
        kept = (Path(place) / "photos.faces").stat().st_size
    best = {key: min(one[key] for one in again) for key in first}
    median = {key: round(statistics.median(one[key] for one in again), 3) for key in first}
    return {"images": len(others), "first": first, "again_median": median, "again_best": best, "kept_bytes": kept}


def _run(command: list[str]) -> dict[str, float]:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 2:
        raise UserError(done.stderr.strip())
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_seconds": round(wall, 3), "cpu_seconds": round(cpu, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faces", type=Path, help="a folder of folders of images")
    parser.add_argument("--model", help="of the search; by default the best that is shipped")
    parser.add_argument("--images", type=int, help="at most so many of each folder are aligned, evenly spaced")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    aligner = FaceAligner()
    aligner.open()
    folders = {folder.name: images_in(folder) for folder in sorted(given.faces.iterdir()) if folder.is_dir()}
    alignment = {}
    for name, paths in folders.items():
        step = max(1, len(paths) // given.images) if given.images else 1
        alignment[name] = measure_alignment(paths[::step], aligner)
        print(name, alignment[name])
    model = given.model or weights.best("faces")
    search = measure_search(max(folders.values(), key=len), model)
    print("search", search)
    result = {
        "machine": describe(1, Path(__file__)),
        "model": Path(model).stem,
        "alignment": alignment,
        "search": search,
    }
    atomic_write(given.json, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
