"""Training speed of the mixed binary layer against a plain float convolution of the same shape, in one run.

    python benchmarks/binary_layers.py [--quick] [--json FILE]

Forward and backward (to input and weights) of the whole layer, its batch norms and RPReLU included, against a bare
nn.Conv2d 3x3, both channels last. The layers take turns, so that a busy machine slows all of them alike; each time
is the smallest of the rounds, on the wall clock and (for machines that are never quiet) in CPU time.
The claim is a ratio of at most 2 for the mixed layer (ratio 0.2), 64 to 256 channels.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

# Waiting threads sleep: spinning ones charge every other process's time to the layer with the most operators.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import nn

from pixeldiff.files import atomic_write
from pixeldiff.machine import describe
from pixeldiff.nn.binary import BinaryPDCBlock

# channels, side, batch: about the same number of activations each.
SHAPES = ((64, 56, 8), (128, 28, 16), (256, 14, 32))


def layers(channels: int) -> dict[str, nn.Module]:
    """The layers compared, by the name in the JSON."""
    return {
        "conv": nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        "vanilla": BinaryPDCBlock(channels, channels, ratio=0.0),
        "mixed": BinaryPDCBlock(channels, channels),
        "mixed_angular": BinaryPDCBlock(channels, channels, kind="angular"),
        "mixed_radial": BinaryPDCBlock(channels, channels, kind="radial"),
    }


def step_ms(layer: nn.Module, x: torch.Tensor, gradient: torch.Tensor) -> tuple[float, float]:
    """Wall-clock and CPU time of one forward and backward pass."""
    start, cpu = time.perf_counter(), time.process_time()
    torch.autograd.grad(layer(x), (x, *layer.parameters()), gradient)
    return 1e3 * (time.perf_counter() - start), 1e3 * (time.process_time() - cpu)


def measure(channels: int, side: int, batch: int, rounds: int) -> dict[str, tuple[float, float]]:
    """The smallest times of each layer."""
    torch.manual_seed(0)
    shape = (batch, channels, side, side)
    x = torch.randn(shape).to(memory_format=torch.channels_last).requires_grad_()
    gradient = torch.randn(shape).to(memory_format=torch.channels_last)
    made = layers(channels)
    for layer in made.values():
        layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in made}
    for _ in range(rounds + 1):
        for name, layer in made.items():
            times[name].append(step_ms(layer, x, gradient))
    return {name: (min(w for w, _ in t[1:]), min(c for _, c in t[1:])) for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--json", type=Path, help="also write the results here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    result: dict[str, object] = {
        "machine": {**describe(options.threads, Path(__file__)), "torch": torch.__version__},
        "layers": [],
    }
    for channels, side, batch in SHAPES:
        times = measure(channels, side, batch, 5 if options.quick else 30)
        row: dict[str, object] = {"channels": channels, "side": side, "batch": batch}
        for i, clock in enumerate(("wall", "cpu")):
            row[f"{clock}_ms"] = {name: value[i] for name, value in times.items()}
            ratios = {name: value[i] / times["conv"][i] for name, value in times.items() if name != "conv"}
            row[f"{clock}_ratio"] = ratios
            result[f"mixed_{channels}_{clock}_ratio"] = ratios["mixed"]
            words = "  ".join(f"{name} {value:.2f}x" for name, value in ratios.items())
            print(f"{channels:3} channels, {side}x{side}, {clock}: conv {times['conv'][i]:.1f} ms  {words}", flush=True)
        result["layers"].append(row)  # type: ignore[attr-defined]
    if options.json:
        atomic_write(options.json, (json.dumps(result, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
