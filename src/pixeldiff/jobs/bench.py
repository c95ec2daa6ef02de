"""Latency, throughput on a folder and peak memory of a network on this machine.

Networks that are compared run in turns, in short blocks, so that other load on the machine slows all of them alike. The
first run of a block is not counted.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from pixeldiff import image
from pixeldiff.errors import InputError, UserError
from pixeldiff.files import InputFiles, Job, find_files, plan_jobs
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.classes import Classifier
from pixeldiff.inference.edges import EdgeNetwork, Look
from pixeldiff.inference.faces import FaceEmbedder
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.inference.packed_file import PackedFile
from pixeldiff.jobs.detect import DetectEdges
from pixeldiff.jobs.local import run_job, work_through
from pixeldiff.jobs.operation import ModelSpec, Result
from pixeldiff.machine import run_python
from pixeldiff.parallel import split_threads
from pixeldiff.render.drawing import Drawing

SIZES = ((224, 224), (321, 481))  # height, width
LARGE = (3000, 4000)
_BLOCKS, _PER_BLOCK = 5, 5
_TURN = 50  # images
LARGEST = 2 * 10**6  # pixels of an image to time

Network = Callable[[FloatMap], object]  # takes a normalized batch


def synthetic_image(height: int, width: int, seed: int = 0) -> ImageArray:
    """Smooth blobs with noise: compresses and decodes about like a photo. Speed does not depend on the content."""
    rng = np.random.default_rng(seed)
    coarse = image.resize(rng.uniform(0, 255, (height // 24 + 2, width // 24 + 2, 3)), (height, width))
    return np.clip(coarse + rng.normal(0, 6, coarse.shape), 0, 255).astype(np.uint8)


def measure_edges(path: Path, threads: int, images: Path | None = None) -> dict[str, Any]:
    """Measure an edge network."""
    network = EdgeNetwork(path, threads)
    sizes = {f"{width}x{height}": (height, width) for height, width in (SIZES[1], LARGE)}
    return {
        "latency": {f"{w}x{h}": latency(network_of(network), _batch(network, (h, w))) for h, w in SIZES},
        "throughput": throughput(path, threads, images),
        "peak_memory_mb": {name: peak_memory_mb(path, threads, size) for name, size in sizes.items()},
    }


def measure_classes(path: Path, threads: int, images: Path | None = None) -> dict[str, Any]:
    """Measure the latency of a classifier on one image of its input size."""
    network = Classifier(path, threads)
    return _packed_latency(network.file, network.run)


def measure_faces(path: Path, threads: int, images: Path | None = None) -> dict[str, Any]:
    """Measure the latency of a face network on one aligned image, without the flipped one."""
    network = FaceEmbedder(path, threads)
    return _packed_latency(network.file, network.run)


def _packed_latency(file: PackedFile, run: Network) -> dict[str, Any]:
    height, width = file.preprocessing.size
    batch = file.preprocessing.normalize(synthetic_image(height, width)[None])
    return {"latency": {f"{width}x{height}": latency(run, batch)}}


def measure_objects(path: Path, threads: int, images: Path | None = None) -> dict[str, Any]:
    """Measure the latency of a detector on one image of its input size, 4:3."""
    detector = ObjectDetector(path, threads)
    batch, _ = detector.prepare(synthetic_image(3 * detector.size // 4, detector.size))
    return {"latency": {f"{batch.shape[3]}x{batch.shape[2]}": latency(detector.run, batch)}}


MEASURES: dict[str, Callable[[Path, int, Path | None], dict[str, Any]]] = {
    "edges": measure_edges,
    "classes": measure_classes,
    "faces": measure_faces,
    "objects": measure_objects,
}


def _batch(network: EdgeNetwork, size: tuple[int, int]) -> FloatMap:
    return image.normalize(synthetic_image(*size), network.mean, network.std)[None]


def network_of(network: EdgeNetwork) -> Network:
    return network.backend.run


def latency(network: Network, batch: FloatMap) -> dict[str, float]:
    """Return the milliseconds per run of a network on one batch: median, and the range of the middle 80%."""
    return latencies({"": network}, batch)[""]


def latencies(baselines: Mapping[str, Network], batch: FloatMap) -> dict[str, dict[str, float]]:
    """Return the milliseconds per run of each network on one batch: median, and the range of the middle 80%."""
    times: dict[str, list[float]] = {name: [] for name in baselines}
    for _ in range(_BLOCKS):
        for name, network in baselines.items():
            for run in range(_PER_BLOCK + 1):
                start = time.perf_counter()
                network(batch)
                if run:
                    times[name].append(1000 * (time.perf_counter() - start))
    return {name: _spread(runs) for name, runs in times.items()}


def _spread(times: list[float]) -> dict[str, float]:
    tenths = statistics.quantiles(times, n=10)
    values = {"median_ms": statistics.median(times), "p10_ms": tenths[0], "p90_ms": tenths[-1], "best_ms": min(times)}
    return {name: round(value, 2) for name, value in values.items()}


def throughput(model: str | Path, threads: int, folder: Path | None = None) -> dict[str, Any]:
    """Seconds for a folder of images, from file to file, beside the seconds of the network alone on the same pixels.

    Both use the cores in the same way, one stream of images per thread. `cpu_ratio` compares CPU time, which other
    load on the machine does not touch. Without a folder: 40 synthetic images.
    """
    with tempfile.TemporaryDirectory(prefix="pixeldiff-bench-") as place:
        folder = folder or _synthetic_folder(Path(place) / "images")
        files = find_files([str(folder)], image.SUFFIXES, "images")
        if not files.files:
            raise InputError(*files.missing.values())
        _check_large(files)
        jobs = plan_jobs(files, None, Path(place) / "edges", lambda _: "edges.png")
        whole, alone = _Clock(), _Clock()
        operation = DetectEdges(ModelSpec("edges", Path(model)), Look(), Drawing())
        with whole:
            each, streams = split_threads(threads, len(jobs))
            network = EdgeNetwork(model, each, streams=streams)
        done = 0

        def detect(job: Job) -> Result:
            return run_job(operation, network, job, overwrite=True)

        with ThreadPoolExecutor(streams) as workers:
            # In turns, so that other load on the machine meets both alike.
            for first in range(0, len(jobs), _TURN):
                with whole:
                    results = list(work_through(jobs[first : first + _TURN], detect, 2 * streams))
                good = [result.job.source for result in results if result.status == "done"]
                batches = [image.normalize(image.read(path), network.mean, network.std)[None] for path in good]
                with alone:
                    list(workers.map(network_of(network), batches))
                done += len(good)
    if not done:
        raise UserError(f"no image in {folder} could be read; give a folder of photos")
    return {
        "images": done,
        "seconds": round(whole.wall, 3),
        "network_seconds": round(alone.wall, 3),
        "images_per_second": round(done / whole.wall, 2),
        "ratio": round(whole.wall / alone.wall, 3),
        "cpu_ratio": round(whole.cpu / alone.cpu, 3),
    }


def _synthetic_folder(folder: Path) -> Path:
    folder.mkdir()
    for seed in range(40):
        Image.fromarray(synthetic_image(*SIZES[1], seed)).save(folder / f"{seed:02}.jpg", quality=90)
    return folder


def _check_large(files: InputFiles) -> None:
    """The network alone is timed on full images, and on many at once: photos of a camera would not fit in memory."""
    for path, _ in files.files:
        try:
            height, width = image.stored_size(path)
        except UserError:
            continue  # detecting will say what is wrong with it
        if (pixels := height * width) > LARGEST:
            raise UserError(
                f"{path} has {pixels / 1e6:.1f} megapixels; give images of at most {LARGEST / 1e6:.0f} to time"
            )


class _Clock:
    """Adds up the wall clock and the CPU time of the blocks it is used on."""

    def __init__(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self.wall -= time.perf_counter()
        self.cpu -= time.process_time()

    def __exit__(self, *_: object) -> None:
        self.wall += time.perf_counter()
        self.cpu += time.process_time()


def peak_memory_mb(model: str | Path, threads: int, size: tuple[int, int]) -> float | None:
    """Measure the peak memory of a new process that detects the edges of one image; None if the system cannot say."""
    script = (
        "import re, resource\n"
        "from pixeldiff.jobs.bench import synthetic_image\n"
        "from pixeldiff.detector import EdgeDetector\n"
        f"EdgeDetector({str(model)!r}, threads={threads}, max_size=None)(synthetic_image{size})\n"
        # Linux: getrusage would also count the process that started this one, from before the new program was loaded.
        "if sys.platform == 'linux':\n"
        "    print(int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 2**10)\n"
        "else:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)\n"
    )
    done = run_python(script)
    return round(float(done.stdout), 1) if done.returncode == 0 else None
