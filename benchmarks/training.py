"""Training speed: images per second of the loop against the plain loop, and what the data loader costs.

    PIXELDIFF_DATA=... python benchmarks/training.py [--model tiny] [--rounds 3] [--json training.json]

Both train on 320 x 320 windows of BSDS500 with the same code, loss and optimizer. "plain" is NCHW, one image per
step, float32, memory as the C library hands it out, autograd's own gradients. "ours" is channels_last, three images
per step, memory kept, the quicker gradient of radial kernels; "bf16" is that in bfloat16. Each variant runs in its
own process; the variants take turns, and medians over the rounds are reported. The loader's cost is the fraction of the
time that a step waits for its batch.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import torch

from pixeldiff.machine import describe

VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"batch_size": 1, "channels_last": False, "keep_memory": False, "own_gradient": False},
    "kept memory": {"batch_size": 1, "channels_last": False, "keep_memory": True, "own_gradient": False},
    "channels_last": {"batch_size": 1, "channels_last": True, "keep_memory": True, "own_gradient": False},
    "radial gradient": {"batch_size": 1, "channels_last": True, "keep_memory": True, "own_gradient": True},
    "ours": {"batch_size": 3, "channels_last": True, "keep_memory": True, "own_gradient": True},
    "bf16": {"batch_size": 3, "channels_last": True, "keep_memory": True, "own_gradient": True, "precision": "bf16"},
}


def measure(name: str, model: str, seconds: float) -> dict[str, float]:
    """Images per second and the loader's share of one variant, in this process."""
    from pixeldiff.nn.layers import PDConv2d
    from pixeldiff.training.batches import make_loader
    from pixeldiff.training.loop import Objective
    from pixeldiff.training.order import ResumableBatchSampler
    from pixeldiff.training.processes import keep_memory
    from pixeldiff.training.recipe import parse_recipe
    from pixeldiff.training.run import Run

    options = dict(VARIANTS[name])
    if options.pop("keep_memory"):
        keep_memory()
    if not options.pop("own_gradient"):
        PDConv2d._is_radial_depthwise = lambda self: False  # type: ignore[method-assign]
    recipe = parse_recipe(
        {
            "task": "edges",
            "model": {"name": model},
            "data": {"root": "BSDS500", "sources": [{"type": "bsds500", "split": "train"}]},
            "augment": {"hflip": True, "crop": 320, "pad": "reflect"},
            "schedule": {"samples": 10**6},
            "train": {**options, "workers": 1},
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Run(recipe, Path(folder), torch.device("cpu"))
    objective = Objective(run.model, run.task, recipe.train.precision == "bf16")
    batches = iter(
        make_loader(
            run.task.train_data, ResumableBatchSampler(len(run.task.train_data), recipe, 0, 10**6), recipe.train.workers
        )
    )
    waited = spent = 0.0
    images = 0
    for step in range(10**6):
        begin = time.perf_counter()
        batch = next(batches)
        loaded = time.perf_counter()
        objective(tuple(run.placed(part) for part in batch)).backward()
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        end = time.perf_counter()
        if step >= 2:  # the first steps start the worker and set up the kernels
            waited, spent, images = waited + loaded - begin, spent + end - begin, images + recipe.train.step_size
        if spent > seconds:
            break
    return {"images_per_second": images / spent, "loader_share": waited / spent}


def sample_cost_ms(count: int = 50) -> float:
    """CPU milliseconds to prepare one image, decoded already."""
    from pixeldiff.data.edges import READERS
    from pixeldiff.data.lists import find_root
    from pixeldiff.training.tasks.edge_pairs import Augment, EdgePairs
    from pixeldiff.training.tasks.edge_sources import Source, list_pairs

    torch.set_num_threads(1)
    pairs = list_pairs(find_root("BSDS500", READERS["bsds500"].origin), Source("bsds500", split="train"))
    entries = EdgePairs(pairs[:count], 0, Augment(crop=320, pad="reflect"))
    for warm in (True, False):
        begin = time.process_time()
        for index in range(count):
            entries[(int(warm), index)]
    return (time.process_time() - begin) / count * 1e3


@click.command()
@click.option("--model", default="tiny", show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="Per variant and round.")
@click.option("--json", "json_file", type=click.Path(path_type=Path))
@click.option("--variant", hidden=True)
def main(model: str, rounds: int, seconds: float, json_file: Path | None, variant: str | None) -> None:
    if variant:
        print(json.dumps(measure(variant, model, seconds)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name in VARIANTS:
            command = [sys.executable, __file__, "--model", model, "--seconds", str(seconds), "--variant", name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[name].append(json.loads(done.stdout))
    described = {**describe(torch.get_num_threads(), Path(__file__)), "torch": torch.__version__}
    result: dict[str, Any] = {"machine": described, "model": model, "window": 320, "rounds": rounds, "variants": {}}
    for name, rows in found.items():
        result["variants"][name] = {
            key: round(statistics.median(row[key] for row in rows), 4) for key in ("images_per_second", "loader_share")
        }
    speed = {name: row["images_per_second"] for name, row in result["variants"].items()}
    result["speedup"] = round(speed["ours"] / speed["plain"], 2)
    result["sample_cost_ms"] = round(sample_cost_ms(), 2)
    text = json.dumps(result, indent=1)
    if json_file:
        json_file.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
