"""The packed network for faces beside float32 ones of the same shape in ONNX Runtime, in one process; JSON out.

python benchmarks/faces.py [--width 1.0] [--threads 1] --json FILE

One aligned face of 112 x 96, full width. "float" is SphereFace's float network, "packed" the binary ones with random
weights (speed does not depend on them). Baselines run in turns; the times are CPU times of the process, which other
load on the machine hardly changes, and ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pixeldiff import image
from pixeldiff.export.packed import pack_model
from pixeldiff.files import atomic_write
from pixeldiff.inference.onnx_session import open_session
from pixeldiff.inference.packed import PackedNetwork
from pixeldiff.inference.packed_file import read_packed
from pixeldiff.machine import describe
from pixeldiff.models import create_model

BINARY = {"vanilla": 0.0, "central": 0.2, "angular": 0.2, "radial": 0.2}  # kind -> ratio
Contender = Callable[[], object]


def float_network(width: float, threads: int, folder: Path) -> Contender:
    model = create_model("sphereface20", width=width).eval()
    x = torch.randn(1, 3, *image.FACE)
    path = folder / "float.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), str(path), input_names=["x"], opset_version=17, dynamo=False)
    session = open_session(path, threads, None, installed=True)  # our own graph, with PReLU
    array = x.numpy()
    return lambda: session.run(None, {"x": array})


def packed_network(kind: str, width: float, threads: int, folder: Path) -> tuple[Contender, int]:
    """What runs it, and the bytes of its file."""
    torch.manual_seed(0)
    path = folder / f"{kind}.pdn"
    pack_model(create_model("sphereface20_bipdc", kind=kind, ratio=BINARY[kind], width=width), path)
    network = PackedNetwork(read_packed(path), threads)
    x = np.random.default_rng(0).normal(size=(1, *image.FACE, 3)).astype(np.float32)
    return lambda: network(x), path.stat().st_size


def cpu_times(baselines: dict[str, Contender], turns: int) -> dict[str, float]:
    """Median CPU milliseconds of a run, in turns."""
    times: dict[str, list[float]] = {name: [] for name in baselines}
    for turn in range(turns + 1):
        for name, run in baselines.items():
            start = time.process_time()
            run()
            if turn:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: round(statistics.median(own), 3) for name, own in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        baselines = {"onnxruntime_float32": float_network(options.width, options.threads, folder)}
        sizes = {}
        for kind in BINARY:
            baselines[kind], sizes[kind] = packed_network(kind, options.width, options.threads, folder)
        times = cpu_times(baselines, options.turns)
    report = {
        "machine": describe(options.threads, Path(__file__)),
        "width": options.width,
        "cpu_ms": times,
        "speedup": {kind: round(times["onnxruntime_float32"] / times[kind], 2) for kind in BINARY},
        "file_bytes": sizes,
    }
    text = json.dumps(report, indent=2)
    atomic_write(options.json, text.encode())
    print(text)


if __name__ == "__main__":
    main()
