"""Is anything slower than it was? Ratios of two baselines of the same run against recorded floors.

    make bars            # or: python benchmarks/bars.py [--json bars.json]

A ratio says how many times quicker ours is. Baselines take turns on one thread and CPU time is compared, so that the
machine and its other work matter little. benchmarks/floors.json keeps the floors, some two thirds of what was
measured; below one of them the exit code is 1. No data set is needed: the image is the repository's own. Needs the
extra `train`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import edges_engine  # noqa: E402
import edges_eval  # noqa: E402
import packed  # noqa: E402

import training  # noqa: E402

FLOORS = HERE / "floors.json"
IMAGE = HERE.parent / "docs/images/coffee.jpg"


def engine(turns: int = 7) -> float:
    """Our engine and ONNX Runtime on tiny."""
    from pixeldiff.jobs.bench import synthetic_image

    with tempfile.TemporaryDirectory() as folder:
        _, trained, graph = edges_engine.files("tiny", Path(folder))
        runs = edges_engine.baselines(trained, graph, 1)
        image = synthetic_image(321, 481).astype(np.float32).transpose(2, 0, 1)[None] / 255
        return edges_engine.compare(runs, np.ascontiguousarray(image), turns)["onnxruntime"]["cpu_ratio"]


def packed_layers(turns: int = 40) -> float:
    """A packed 1-bit layer of 256 channels and the float one in ONNX Runtime."""
    x = torch.randn(1, 256, 14, 14, generator=torch.Generator().manual_seed(0))
    with tempfile.TemporaryDirectory() as folder:
        session = packed.session_of(torch.nn.Conv2d(256, 256, 3, padding=1), x, 1, Path(folder) / "layer.onnx")
        return packed.IN_A_ROW * ratio(session, packed.packed_layer(256, 14, 0.0, 1), turns)


def matching(turns: int = 1) -> float:
    """Matching carried from threshold to threshold, and started afresh at each: tiny's map against those of small."""
    from pixeldiff import EdgeDetector, _native
    from pixeldiff.edgemap import nms, to_8_bit

    image, other = (EdgeDetector(name, threads=1)(IMAGE)[100:260, 150:390] for name in ("tiny", "small"))
    truths = np.stack([_native.thin((other >= level).view(np.uint8)) for level in (0.3, 0.6)])
    given = (to_8_bit(nms(image)), truths, edges_eval.radius_of(image))
    return ratio(lambda: edges_eval.count_afresh(*given), lambda: edges_eval.count_all(*given), turns)


def loop(rounds: int = 3) -> float:
    """Steps of tiny as the training loop takes them, and plain ones; each in a process of its own."""

    def rate(variant: str) -> float:
        command = [sys.executable, __file__, "--steps", variant]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    return statistics.median(rate("ours") / rate("plain") for _ in range(rounds))


def steps(variant: str, count: int = 4) -> float:
    """Images per CPU second of a variant of benchmarks/training.py, on random windows."""
    from pixeldiff.models import create_model
    from pixeldiff.nn.layers import PDConv2d
    from pixeldiff.training.processes import keep_memory

    options: dict[str, Any] = training.VARIANTS[variant]
    torch.set_num_threads(1)
    if options["keep_memory"]:
        keep_memory()
    if not options["own_gradient"]:
        PDConv2d._is_radial_depthwise = lambda self: False  # type: ignore[method-assign]
    layout = torch.channels_last if options["channels_last"] else torch.contiguous_format
    model = create_model("tiny").to(memory_format=layout)  # type: ignore[call-overload]
    images = torch.rand(options["batch"], 3, 320, 320).to(memory_format=layout)

    def step() -> None:
        loss = torch.nn.functional.softplus(model(images)).mean()
        loss.backward()

    step()
    start = time.process_time()
    for _ in range(count):
        step()
    return float(options["batch"] * count / (time.process_time() - start))


def ratio(slow: Callable[[], object], quick: Callable[[], object], turns: int) -> float:
    """Median over turns of how many times quicker, in CPU time, the second one is."""
    slow(), quick()
    found = []
    for _ in range(turns):
        own, _ = edges_eval.cpu_seconds(slow)
        other, _ = edges_eval.cpu_seconds(quick)
        found.append(own / other)
    return statistics.median(found)


BARS: dict[str, Callable[[], float]] = {
    "engine against ONNX Runtime": engine,
    "packed against float": packed_layers,
    "matching carried against afresh": matching,
    "training loop against plain": loop,
}


def judge(found: dict[str, float], floors: dict[str, float]) -> list[str]:
    """The bars that are not reached."""
    return [f"{name}: {value:.2f} < {floors[name]:.2f}" for name, value in found.items() if value < floors[name]]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios against recorded floors.")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", choices=training.VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps:
        print(steps(options.steps))
        return
    torch.set_num_threads(1)
    floors = json.loads(FLOORS.read_text())
    found = {}
    for name, measure in BARS.items():
        found[name] = round(measure(), 3)
        print(f"{name}: {found[name]:.2f} times quicker, floor {floors[name]:.2f}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    missed = judge(found, floors)
    sys.exit(f"bars: below the floor: {'; '.join(missed)}; find out which change did it" if missed else 0)


if __name__ == "__main__":
    main()
