"""A training run of seconds, for the tests: its recipe, what it wrote, and how to stop it."""

import json
import os
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from pixeldiff.training import loop
from pixeldiff.training import run_logger as journal
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.recipe_file import tomllib

RECIPE = """
task = "edges"
seed = 3
[model]
name = "tiny"
width = 4
side_channels = 2
[data]
root = "{root}"
sources = [{{ type = "folders", images = "photos", labels = "edges" }}]
[augment]
hflip = true
crop = 16
[schedule]
name = "cosine"
samples = {samples}
warmup_steps = 2
[train]
batch_size = 2
grad_accum_steps = 2
ema_decay = 0.9
workers = {workers}
log_every = 1
checkpoint_minutes = {minutes}
"""


FOLDERS = {"type": "folders", "images": "photos", "labels": "edges"}
EPOCH = 16  # samples: eight images and their flips


def recipe_text(root: Path, epochs: float = 3, workers: int = 0, minutes: float = 5, **_: object) -> str:
    return RECIPE.format(root=root, samples=int(epochs * EPOCH), workers=workers, minutes=minutes)


def small_recipe(root: Path, **changes: object):
    table = tomllib.loads(recipe_text(root, **changes))
    for name, values in changes.items():
        if isinstance(values, dict):
            table[name] = {**table.get(name, {}), **values}
    return parse_recipe(table)


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in lines(out) if "loss" in line]


def assert_same_weights(one: Path, other: Path) -> None:
    a, b = load_file(one / "last.safetensors"), load_file(other / "last.safetensors")
    assert a.keys() == b.keys()
    for key in a:
        assert torch.equal(a[key], b[key]), key


def stop_after(recipe, out: Path, step: int) -> None:
    """Run until `step` is recorded, then get SIGTERM, as from a scheduler."""

    class Stopping(journal.RunLogger):
        def advance(self, now: int, seconds: float) -> None:
            super().advance(now, seconds)
            if now == step:
                os.kill(os.getpid(), signal.SIGTERM)

    original, loop.RunLogger = loop.RunLogger, Stopping
    try:
        assert not loop.train(recipe, out)
    finally:
        loop.RunLogger = original


def command(root: Path, out: str, launcher: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", *launcher, "pixeldiff", "train", str(root / "recipe.toml"), "-o", str(root / out)]
