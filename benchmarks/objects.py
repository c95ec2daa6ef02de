"""Boxes: a photograph and a folder against the network alone, differences against none, scoring of 1,000 images.

    python benchmarks/objects.py > benchmarks/results/boxes.json

Ratios of CPU time on one thread, in turns, of the quickest blocks: other load on the machine empties the caches.
Speed does not depend on the weights: they are random. Drawing is off, as with --no-draw.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from pixeldiff import image, machine
from pixeldiff.data.voc import CLASSES
from pixeldiff.export.objects import export_detector
from pixeldiff.files import Job
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.jobs.local import run_job
from pixeldiff.jobs.objects import FindObjects
from pixeldiff.jobs.operation import ModelSpec
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches
from pixeldiff.models import create_model
from pixeldiff.models.calibration import calibrate_batch_norm
from pixeldiff.models.detector import Detector
from pixeldiff.nn.layers import fuse

PHOTO = Path(__file__).parents[1] / "docs/images/coffee.jpg"
SIZE = (375, 500)  # height, width
IMAGES = 200
CANDIDATES = 20  # that random weights shall find in the photograph, about as many as trained ones


def cpu_ms(baselines: Mapping[str, Callable[[], object]], blocks: int = 40, runs: int = 5) -> dict[str, float]:
    """CPU milliseconds per run of each in its quickest block, in turns."""
    times: dict[str, list[float]] = {name: [] for name in baselines}
    for run in baselines.values():
        run()
    for _ in range(blocks):
        for name, run in baselines.items():
            start = time.process_time()
            for _ in range(runs):
                run()
            times[name].append(1000 * (time.process_time() - start) / runs)
    return {name: round(min(own), 3) for name, own in times.items()}


def make_detector(kind: str, ratio: float) -> Detector:
    torch.manual_seed(0)
    model = calibrate_batch_norm(create_model("ghostnet_objects", kind=kind, ratio=ratio))
    assert isinstance(model, Detector)
    with torch.no_grad():
        for output in model.outputs:
            output.weight.mul_(0.05)  # type: ignore[operator]  # scores differ then
    return model


def threshold_of(detector: ObjectDetector, path: Path) -> float:
    """What leaves CANDIDATES in the photograph."""
    photo, true = image.load_near(path, detector.size)
    _, scores = detector.run(detector.prepare(photo, true)[0])
    return float(np.sort(scores.ravel())[-CANDIDATES])


def photograph(detector: ObjectDetector, path: Path) -> dict[str, float]:
    """From the file to boxes, beside the network on the same pixels."""
    photo, true = image.load_near(path, detector.size)
    batch, _ = detector.prepare(photo, true)
    threshold = threshold_of(detector, path)
    times = cpu_ms({"network": lambda: detector.run(batch), "all": lambda: detector(path, threshold)})
    return {"network_ms": times["network"], "all_ms": times["all"], "ratio": round(times["all"] / times["network"], 3)}


def folder(detector: ObjectDetector, photo: Path, place: Path) -> dict[str, float]:
    """A folder as `pixeldiff objects --no-draw` works through it, in turns with the network on the same pixels."""
    jobs = []
    for seed in range(IMAGES):
        jobs.append(Job(place / f"{seed}.jpg", None))
        Image.fromarray(np.roll(image.read8(photo), 7 * seed, 1)).save(jobs[-1].source, quality=90)
    operation = FindObjects(ModelSpec("objects", Path(detector.name)), threshold_of(detector, photo), draws=False)
    whole, alone = [], []
    for first in range(0, IMAGES, 10):
        part = jobs[first : first + 10]
        start = time.process_time()
        for job in part:
            run_job(operation, detector, job, overwrite=True)
        whole.append(time.process_time() - start)
        seen = [image.load_near(job.source, detector.size) for job in part]
        batches = [detector.prepare(photo, true)[0] for photo, true in seen]
        start = time.process_time()
        for batch in batches:
            detector.run(batch)
        alone.append(time.process_time() - start)
    ratio = min(whole) / min(alone)
    return {
        "images": IMAGES,
        "all_s": round(sum(whole), 3),
        "network_s": round(sum(alone), 3),
        "ratio": round(ratio, 3),
    }


def differences(place: Path) -> dict[str, Any]:
    """Detectors with differences against one without: in torch as trained and fused, and in ONNX Runtime."""
    plain, x = make_detector("vanilla", 0.0), torch.randn(1, 3, 192, 256)
    results: dict[str, Any] = {}
    for kind in ("central", "angular"):
        model = make_detector(kind, 0.3)
        baselines = {"plain": plain, "trained": model, "fused": fuse(model)}
        with torch.inference_mode():
            deviation = max(float((a - b).abs().max()) for a, b in zip(model(x), baselines["fused"](x), strict=True))
            times = cpu_ms({name: functools.partial(own, x) for name, own in baselines.items()}, 60, 1)
        files: dict[str, Callable[[], object]] = {}
        for name, own in (("plain", plain), (kind, model)):
            export_detector(own, place / f"{name}.onnx", {"labels": list(CLASSES)})
            files[name] = functools.partial(ObjectDetector(place / f"{name}.onnx", threads=1).run, x.numpy())
        exported = cpu_ms(files, 60, 2)
        results[kind] = {
            "fused_deviation": deviation,
            "torch_ms": times,
            "fused_ratio": round(times["fused"] / times["plain"], 3),
            "onnx_ms": exported,
            "onnx_ratio": round(exported[kind] / exported["plain"], 3),
        }
    return results


def scoring(images: int = 1000, objects: int = 3, detections: int = 100) -> dict[str, float]:
    """VOC's and COCO's scores of so many images with as many detections as are kept."""
    rng = np.random.default_rng(0)

    def boxes(count: int) -> np.ndarray:
        corner = rng.uniform(0, 300, (count, 2))
        return np.concatenate([corner, corner + rng.uniform(10, 200, (count, 2))], 1)

    made = []
    for _ in range(images):
        truth = GroundTruth(boxes(objects), rng.integers(0, 20, objects), rng.uniform(size=objects) < 0.1)
        near = truth.boxes[rng.integers(0, objects, detections)] + rng.normal(0, 20, (detections, 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        labels = np.where(rng.uniform(size=detections) < 0.3, truth.labels[0], rng.integers(0, 20, detections))
        made.append((Detections(near, rng.uniform(size=detections), labels), truth))
    start = time.process_time()
    matches = Matches(20)
    for found, truth in made:
        matches.add(found, truth)
    matches.summary()
    return {"images": images, "detections": detections, "seconds": round(time.process_time() - start, 3)}


def main() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        compared = differences(place)
        detector = ObjectDetector(place / "central.onnx", threads=1)
        (place / "folder").mkdir()
        with Image.open(PHOTO) as photo:
            photo.convert("RGB").resize((SIZE[1], SIZE[0])).save(place / "photo.jpg", quality=90)
        results = {
            "machine": machine.describe(1, Path(__file__)),
            "photograph": photograph(detector, place / "photo.jpg"),
            "folder": folder(detector, place / "photo.jpg", place / "folder"),
            "differences": compared,
            "scoring": scoring(),
        }
    json.dump(results, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
