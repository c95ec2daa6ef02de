"""The one training loop: train(recipe, out) -> weights, whatever the task.

A run is a pure function of its recipe. Step t takes pictures t * batch to (t + 1) * batch of an endless sequence of
shuffled epochs, and every random choice comes from the seed and the position in that sequence. So a checkpoint is
the weights, their average, the optimizer and t, and a run that was killed ends in the same bits as one that was not.

    out/checkpoint.pt        what resuming needs, replaced atomically
    out/metrics.jsonl        one line per logged step and evaluation
    out/last.safetensors     the (averaged) weights, also best.safetensors and weights/<step>.safetensors
"""

from __future__ import annotations

import copy
import json
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from pixeldiff.checkpoint import save_model
from pixeldiff.errors import UserError
from pixeldiff.models import create_model
from pixeldiff.recipe import Recipe, Schedule, as_table
from pixeldiff.tasks import TaskProtocol, task_module

Key = tuple[int, int]  # (epoch, index) of a sample


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`."""
    if step < schedule.warmup_steps:
        return lr * (step + 1) / schedule.warmup_steps
    if schedule.kind == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * step / steps))
    epoch = step / steps * schedule.epochs
    return lr * schedule.factor ** sum(epoch >= milestone for milestone in schedule.milestones)


class Positions:
    """The keys of each forward pass of this process, from step `start` on: a batch sampler without state."""

    def __init__(self, length: int, recipe: Recipe, start: int, steps: int, rank: int, world: int) -> None:
        self.length, self.seed, self.start, self.steps = length, recipe.seed, start, steps
        self.batch, self.accumulate = recipe.loop.batch, recipe.loop.accumulate
        self.rank, self.world = rank, world

    def __len__(self) -> int:
        return (self.steps - self.start) * self.accumulate

    def __iter__(self) -> Iterator[list[Key]]:
        part = self.batch // (self.world * self.accumulate)
        for step in range(self.start, self.steps):
            keys = self.keys(step)
            for k in range(self.accumulate):
                first = (k * self.world + self.rank) * part
                yield keys[first : first + part]

    def keys(self, step: int) -> list[Key]:
        """All pictures of a step, over all processes."""
        places = range(step * self.batch, (step + 1) * self.batch)
        return [(p // self.length, int(self._order(p // self.length)[p % self.length])) for p in places]

    def _order(self, epoch: int) -> np.ndarray:
        if getattr(self, "_epoch", None) != epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng((self.seed, epoch)).permutation(self.length)
        return self._permutation


class Objective(nn.Module):
    """Model and loss as one module, so that compiling and DDP see the whole step."""

    def __init__(self, model: nn.Module, task: TaskProtocol, bf16: bool) -> None:
        super().__init__()
        self.model, self.task, self.bf16 = model, task, bf16

    def forward(self, batch: Any) -> Tensor:
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.task.loss(self.model, batch)
        return loss


class Run:
    """The state of a run and the files it lives in."""

    def __init__(self, recipe: Recipe, out: Path) -> None:
        self.recipe, self.out = recipe, out
        self.task: TaskProtocol = task_module(recipe.task).Task(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create_model(**recipe.model)
        if recipe.loop.channels_last:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.model).requires_grad_(False)
        options = recipe.optimizer
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), options.lr, options.betas, weight_decay=options.weight_decay
        )
        self.steps = max(1, math.ceil(recipe.schedule.epochs * len(self.task) / recipe.loop.batch))
        self.step = 0
        self.seconds = 0.0
        self.best = -math.inf

    @property
    def path(self) -> Path:
        return self.out / "checkpoint.pt"

    def save(self) -> None:
        """Write the checkpoint and the weights; a full disk costs a warning, never the previous checkpoint."""
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "best": self.best,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "recipe": as_table(self.recipe),
        }
        temporary = self.path.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)
            self.save_weights(self.out / "last.safetensors")
        except (OSError, RuntimeError) as error:  # torch reports a failed write as RuntimeError
            temporary.unlink(missing_ok=True)
            self.log({"warning": f"checkpoint not written: {error}"})

    def save_weights(self, path: Path) -> None:
        described = {
            "recipe": as_table(self.recipe),
            "commit": _commit(),
            "steps": self.step,
            "wall_clock_hours": round(self.seconds / 3600, 4),
        }
        save_model(self.average, path, described)

    def resume(self) -> bool:
        """Take up the run in `out`, if there is one."""
        if not self.path.exists():
            return False
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        table = as_table(self.recipe)
        changed = [key for key in ("task", "model", "data", "loss", "seed") if state["recipe"][key] != table[key]]
        if changed:
            raise UserError(
                f"{self.out} holds a run of another recipe (its {', '.join(changed)} differ); choose another --out"
            )
        self.step, self.seconds, self.best = state["step"], state["seconds"], state["best"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        return True

    def update_average(self) -> None:
        """theta' <- d theta' + (1 - d) theta, with a shorter memory in the first steps."""
        decay = min(self.recipe.loop.ema, (1 + self.step) / (10 + self.step))
        for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(now.detach(), 1 - decay)
        for mean, now in zip(self.average.buffers(), self.model.buffers(), strict=True):
            mean.copy_(now)

    def log(self, values: dict[str, Any]) -> None:
        line = json.dumps({"step": self.step, "seconds": round(self.seconds, 1), **values})
        with (self.out / "metrics.jsonl").open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)


def train(recipe: Recipe, out: str | Path) -> Path:
    """Train to the end of the recipe, resuming what `out` holds; returns the file of the last weights."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    run = Run(recipe, out)
    if run.resume():
        run.log({"resumed": True})
    loop = recipe.loop
    positions = Positions(len(run.task), recipe, run.step, run.steps, 0, 1)
    loader = DataLoader(
        run.task,  # type: ignore[arg-type]
        batch_sampler=positions,  # type: ignore[arg-type]
        collate_fn=run.task.collate,
        num_workers=loop.workers,
        prefetch_factor=4 if loop.workers else None,
    )
    objective = Objective(run.model, run.task, loop.bf16)
    if loop.compile:
        objective = torch.compile(objective)  # type: ignore[assignment]
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))
    batches = iter(loader)
    began, saved = time.monotonic() - run.seconds, time.monotonic()
    recent: list[float] = []
    while run.step < run.steps and not stopped:
        for group in run.optimizer.param_groups:
            group["lr"] = learning_rate(recipe.schedule, recipe.optimizer.lr, run.step, run.steps)
        torch.manual_seed(hash((recipe.seed, run.step)))
        total = 0.0
        for _ in range(loop.accumulate):
            loss = objective(next(batches)) / loop.accumulate
            loss.backward()
            total += loss.item()
        if not math.isfinite(total):
            names = "; ".join(run.task.name(index) for _, index in positions.keys(run.step))
            raise UserError(f"the loss is {total} at step {run.step}; the batch was {names}")
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        run.update_average()
        run.seconds = time.monotonic() - began
        recent.append(total)
        if run.step % loop.log_steps == 0:
            lr = run.optimizer.param_groups[0]["lr"]
            run.log({"loss": round(sum(recent) / len(recent), 2), "lr": lr})
            recent.clear()
        if loop.evaluate_steps and run.step % loop.evaluate_steps == 0:
            (out / "weights").mkdir(exist_ok=True)
            run.save_weights(out / "weights" / f"{run.step}.safetensors")
        if time.monotonic() - saved > 60 * loop.checkpoint_minutes:
            run.save()
            saved = time.monotonic()
    run.save()
    return out / "last.safetensors"


def _commit() -> str:
    """The commit of the code that runs, if it runs from a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else ""
