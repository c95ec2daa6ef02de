"""Reference results of the pretrained models, against which a change of the code is checked to the last bit.

    python tools/reference.py --write     # record them in benchmarks/results/reference.json
    python tools/reference.py --check     # list every difference; the exit code is 1 if there is one

Recorded are, for ten images made from docs/images: edge maps, PNGs and SVGs of every edge network, logits of every
classifier, embeddings of the face network, and objects; and, with PIXELDIFF_DATA, the scores of `pixeldiff eval`.
PNGs count by their pixels and SVGs without their description, because both also hold the command that made them.

PIXELDIFF_ISA=avx2 makes the C++ kernels round alike on every machine that has AVX2. ONNX Runtime, which finds objects
and aligns faces, has no such switch: results behind it may differ by TOLERANCE, and a smaller difference is a note.
Another Pillow may decode a JPEG differently; the hashes of the images tell.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/reference.json"
ISA = "avx2"
TOLERANCE = 2e-3  # absolute and relative, of what ONNX Runtime computes

PHOTOS = ("coffee", "chelsea", "astronaut")
EDGE_NETWORKS = ("basic", "small", "tiny", "tiny-l")
CLASSIFIERS = ("binary-cifar100", "bipdc-cifar100")
FACE_NETWORK = "binary-faces"
OBJECT_DETECTOR = "cpdc-objects"
BEHIND_ONNX_RUNTIME = ("objects/", "faces/aligned/", "scores/faces/", "scores/objects/")
FACE_SIZE = (112, 96)  # height and width of an aligned face

# What `pixeldiff eval` is given for each task, and what it reports. {folder} is a temporary one, see `prepare_data`.
EVALUATIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "edges": (
        ("--images", "{data}/bsds-bench/images", "--labels", "{data}/bsds-bench/groundTruth"),
        ("ods", "ois", "ap", "r50", "crispness"),
    ),
    "classes": (("--dataset", "cifar100", "--data-dir", "{folder}"), ("top1", "top5")),
    "faces": (("--dataset", "lfw", "--data-dir", "{data}/faces/lfw", "--lists", "{folder}"), ("accuracy", "auc")),
    "objects": (("--dataset", "voc", "--split", "test", "--data-dir", "{data}/voc2007"), ("map50", "ap")),
}


def write_images(folder: Path) -> dict[str, Path]:
    """Write the ten images: photos, a doubled one, crops of odd sizes, gray, transparent and flat ones."""
    photos = {name: np.asarray(Image.open(ROOT / f"docs/images/{name}.jpg")) for name in PHOTOS}
    coffee, cat, astronaut = photos.values()
    rows, columns = np.mgrid[0:90, 0:130]
    transparent = np.dstack([cat[100:190, 150:280], (rows + columns).astype(np.uint8)])
    arrays = {
        **photos,
        "doubled": coffee.repeat(2, 0).repeat(2, 1),  # longer than what the networks see by default
        "odd": coffee[33:154, 57:220],
        "row": cat[150:151, 100:141],
        "small": cat[120:127, 200:207],
        "gray": astronaut[60:181, 160:281, 1],
        "transparent": transparent,
        "flat": np.full((64, 48, 3), 90, np.uint8),
    }
    paths = {name: folder / f"{name}.png" for name in arrays}
    for name, array in arrays.items():
        Image.fromarray(array).save(paths[name])
    return paths


def faces() -> dict[str, NDArray[np.uint8]]:
    """Ten crops of the size of an aligned face, which the network takes as they are."""
    height, width = FACE_SIZE
    photo = np.asarray(Image.open(ROOT / "docs/images/astronaut.jpg"))
    return {f"{y}-{x}": photo[y : y + height, x : x + width] for y in range(0, 400, 80) for x in (100, 180)}


def hash_array(array: NDArray[Any]) -> str:
    """The SHA-256 of an array's type, shape and numbers."""
    header = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(header + np.ascontiguousarray(array).tobytes()).hexdigest()


def describe(array: NDArray[Any], shown: int = 5) -> dict[str, Any]:
    """The hash of an array, which is compared to the bit, and its first numbers for the reader."""
    return {"sha256": hash_array(array), "first": [round(float(value), 4) for value in array.ravel()[:shown]]}


def run(*words: object) -> None:
    """Run a pixeldiff command."""
    command = [sys.executable, "-m", "pixeldiff", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"error: pixeldiff {' '.join(map(str, words))} failed: {done.stderr}")


def edge_results(images: Mapping[str, Path], folder: Path, model: str) -> dict[str, Any]:
    """Maps through Python, PNGs and SVGs through the command."""
    from pixeldiff import EdgeDetector

    detector = EdgeDetector(model, threads=1)
    maps = {name: detector(path) for name, path in images.items()}
    drawn: dict[str, dict[str, str]] = {}
    for suffix in ("png", "svg"):
        out = folder / f"{model}-{suffix}"
        run("detect", *images.values(), "-o", out, "--model", model, "--format", suffix, "--threads", 1)
        drawn[suffix] = {name: hash_drawing(next(out.glob(f"{name}.*"))) for name in images}
    hashes = {
        name: {"sha256": hash_array(array), "mean": round(float(array.mean()), 6)} for name, array in maps.items()
    }
    return {"maps": hashes, **drawn}


def hash_drawing(path: Path) -> str:
    """The SHA-256 of what a file shows."""
    if path.suffix == ".svg":
        return hashlib.sha256(re.sub(r"<desc>.*?</desc>\s*", "", path.read_text()).encode()).hexdigest()
    with Image.open(path) as image:
        return hash_array(np.asarray(image))


def class_results(images: Mapping[str, Path], model: str) -> dict[str, Any]:
    from pixeldiff import Classifier

    classifier = Classifier(model, threads=1)
    batch = np.stack([classifier.prepare(path) for path in images.values()])
    return {name: describe(row) for name, row in zip(images, classifier.logits(batch), strict=True)}


def face_results(photo: Path) -> dict[str, Any]:
    """Embeddings of crops, and that of a photo in which the face is found and aligned first."""
    from pixeldiff import FaceEmbedder

    embedder = FaceEmbedder(FACE_NETWORK, threads=1)
    embeddings = {name: describe(embedder(crop)) for name, crop in faces().items()}
    return {"embeddings": embeddings, "aligned": {photo.stem: describe(embedder(photo))}}


def object_results(images: Mapping[str, Path]) -> dict[str, Any]:
    """Every box above a low threshold, best first: its class, score and corners."""
    from pixeldiff import ObjectDetector

    detector = ObjectDetector(OBJECT_DETECTOR, threads=1)
    results: dict[str, Any] = {}
    for name, path in images.items():
        found = detector(path, threshold=0.2)
        numbers = np.column_stack([found.scores, found.boxes])
        boxes = [
            [label, *(round(float(value), 4) for value in row)] for label, row in zip(found.names, numbers, strict=True)
        ]
        results[name] = {"sha256": hash_array(numbers), "boxes": boxes}
    return results


def score(task: str, model: str, data: Path, folder: Path) -> dict[str, float]:
    """Score a model with `pixeldiff eval`."""
    options, names = EVALUATIONS[task]
    file = folder / f"{model}.json"
    words = [word.format(data=data, folder=folder) for word in options]
    run("eval", task, *words, "--model", model, "--json", file, "--threads", 1)
    result = json.loads(file.read_text())["results"][0]
    return {name: result[name] for name in names}


def prepare_data(data: Path, folder: Path) -> None:
    """Unpack CIFAR-100 test, and list every sixth of LFW's pairs, 50 of each kind in each of the 10 folds."""
    subprocess.run([sys.executable, data / "cifar100/unpack", folder], check=True, capture_output=True)
    pairs = (data / "faces/lfw/pairs.txt").read_text().splitlines()[1:]
    (folder / "pairs.txt").write_text("\n".join(["10\t50", *pairs[::6]]) + "\n")


def record(data: Path | None) -> dict[str, Any]:
    """Compute everything; the scores only if there is a data folder."""
    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        folder = Path(temporary)
        images = write_images(folder)
        scores: dict[str, Any] = {}
        if data:
            models: dict[str, tuple[str, ...]] = {"faces": (FACE_NETWORK,), "objects": (OBJECT_DETECTOR,)}
            models |= {"classes": CLASSIFIERS, "edges": EDGE_NETWORKS}
            prepare_data(data, folder)
            scores = {
                task: {model: pool.submit(score, task, model, data, folder) for model in names}
                for task, names in models.items()
            }
        edges = {model: pool.submit(edge_results, images, folder, model) for model in EDGE_NETWORKS}
        classes = {model: pool.submit(class_results, images, model) for model in CLASSIFIERS}
        found_faces = pool.submit(face_results, images["astronaut"])
        objects = pool.submit(object_results, images)
        results = {
            "made_by": "python tools/reference.py --write",
            "isa": ISA,
            "images": {name: hash_array(np.asarray(Image.open(path))) for name, path in images.items()},
            "edges": {model: future.result() for model, future in edges.items()},
            "classes": {model: future.result() for model, future in classes.items()},
            "faces": found_faces.result(),
            "objects": objects.result(),
        }
        if scores:
            results["scores"] = {
                task: {model: future.result() for model, future in futures.items()} for task, futures in scores.items()
            }
        return results


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and text of a JSON value with its path."""
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(inner, f"{path}/{key}" if path else str(key))
    else:
        yield path, value


def compare(recorded: dict[str, Any], computed: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The differences, and notes on results behind ONNX Runtime that differ by less than the tolerance."""
    before, now = dict(leaves(recorded)), dict(leaves(computed))
    differences, notes = [], []
    for path in [*before, *(path for path in now if path not in before)]:
        old, new = before.get(path, "nothing"), now.get(path, "nothing")
        if old == new:
            continue
        line = f"{path}: {old} recorded, now {new}"
        loose = path.startswith(BEHIND_ONNX_RUNTIME)
        if loose and (path.endswith("/sha256") or close(old, new)):
            notes.append(line)
        else:
            differences.append(line)
    return differences, notes


def close(old: Any, new: Any) -> bool:
    numbers = all(isinstance(value, int | float) for value in (old, new))
    return numbers and math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def data_folder() -> Path | None:
    root = os.environ.get("PIXELDIFF_DATA")
    return Path(root) if root and Path(root).is_dir() else None


def main() -> None:
    parser = argparse.ArgumentParser(description="Reference results of the pretrained models.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="record the results")
    what.add_argument("--check", action="store_true", help="compare with the recorded results")
    given = parser.parse_args()
    data = data_folder()
    if data is None and given.write:
        raise SystemExit("error: the scores need data; set PIXELDIFF_DATA to the data folder")
    os.environ["PIXELDIFF_ISA"] = ISA
    results = record(data)
    if given.write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        return
    recorded = json.loads(RESULTS.read_text())
    if data is None:
        print("note: scores skipped, PIXELDIFF_DATA is not set to the data folder", file=sys.stderr)
        del recorded["scores"]
    differences, notes = compare(recorded, results)
    for line in notes:
        print(f"note: {line} (ONNX Runtime)", file=sys.stderr)
    for line in differences:
        print(line)
    print(f"{len(differences)} differences")
    raise SystemExit(bool(differences))


if __name__ == "__main__":
    main()
