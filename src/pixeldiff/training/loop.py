"""The one training loop of all tasks: train(recipe, out) writes weights.

    out/checkpoint.pt        what resuming needs, replaced atomically
    out/metrics.jsonl        one line per logged step and evaluation; also tensorboard/ and previews/
    out/last.safetensors     the (averaged) weights; best.safetensors, and weights/<step>.safetensors at evaluations

Several processes: `torchrun --nproc-per-node 2 -m pixeldiff train ...`; each takes its part of every batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pixeldiff.errors import OutputError, UserError
from pixeldiff.training.batches import Batches
from pixeldiff.training.order import ResumableBatchSampler
from pixeldiff.training.processes import Processes, keep_memory
from pixeldiff.training.recipe import Recipe, as_table
from pixeldiff.training.run import LAST, Run, lock_run_dir, remove_temp_files
from pixeldiff.training.run_logger import RunLogger
from pixeldiff.training.schedule import learning_rate
from pixeldiff.training.signals import Signals
from pixeldiff.training.tasks import TaskProtocol


class Objective(nn.Module):
    """Model and loss as one module, so that compiling and DDP cover the whole forward pass."""

    def __init__(self, model: nn.Module, task: TaskProtocol, bf16: bool) -> None:
        super().__init__()
        self.model, self.task, self.bf16 = model, task, bf16

    def forward(self, batch: Any) -> Tensor:
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.task.loss(self.model, batch)
        return loss


def train(recipe: Recipe, out: str | Path, resume: bool = True, processes: Processes | None = None) -> bool:
    """Train to the end of the recipe; return whether the end was reached (a signal stops the run early, resumably)."""
    if processes is None:
        with Processes() as processes:
            return train(recipe, out, resume, processes)
    out = Path(out)
    keep_memory()
    run = Run(recipe, out, processes.device)
    state = None
    with lock_run_dir(out) if processes.rank == 0 else nullcontext():
        if processes.rank == 0:
            if not resume and any((out / name).exists() for name in (run.path.name, LAST)):
                raise OutputError(f"{out} already holds a run; choose another output folder, or resume it")
            state = run.read()
            remove_temp_files(out)
            run.check_disk_space()
        return _train(run, processes, processes.broadcast(state))


def _train(run: Run, processes: Processes, state: dict[str, Any] | None) -> bool:
    """Resume from `state`, or start."""
    out, table = run.out, as_table(run.recipe)
    if state:
        run.restore(state)
    else:
        run.start()
    logger = RunLogger(out, run.step, run.steps) if processes.rank == 0 else None
    if logger and state:
        logger.advance(run.step, run.seconds)
        if any(state["recipe"][name] != table[name] for name in ("schedule", "optimizer", "train", "evaluate")):
            logger.warn("resumed with another schedule, optimizer, train or evaluate than before")
    try:
        with Signals() as signals, Batches(run, processes) as batches:
            finished = _steps(run, processes, batches, logger, signals)
    finally:
        if logger:
            logger.close()
    return bool(processes.broadcast(finished))  # whether the first process could write all files


def _steps(run: Run, processes: Processes, batches: Batches, logger: RunLogger | None, signals: Signals) -> bool:
    """Run the loop; return whether the end was reached and saved."""
    objective = _objective(run, processes)
    record = RunRecorder(run, logger) if logger else None
    began = time.monotonic() - run.seconds
    stop = False
    while run.step < run.steps and not stop:
        lr = learning_rate(run.recipe.schedule, run.recipe.optimizer.lr, run.step, run.steps)
        for group in run.optimizer.param_groups:
            group["lr"] = lr
        torch.manual_seed((run.recipe.seed + run.step) * processes.world + processes.rank)
        run.model.train()
        loss, stop = processes.all_reduce(_add_gradients(objective, run, batches), bool(signals.received))
        _check_finite(run, loss, batches.sampler)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        run.update_average()
        run.seconds = time.monotonic() - began
        if record:
            record.after_step(loss, lr, stop)
    return run.step >= run.steps and (record is None or record.saved)


def _objective(run: Run, processes: Processes) -> nn.Module:
    """Make model and loss, compiled and distributed as the recipe and the number of processes require."""
    model, several = run.model, processes.world > 1
    if several and run.device.type == "cuda":  # on a CPU each process has its own statistics
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    objective: nn.Module = Objective(model, run.task, run.recipe.train.precision == "bf16")
    if run.recipe.train.compile:
        # With sizes left open, inductor fails on binary convolutions of stride 2 (torch 2.13).
        objective = torch.compile(objective, dynamic=False)  # type: ignore[assignment]
    return DistributedDataParallel(objective) if several else objective


def _add_gradients(objective: nn.Module, run: Run, batches: Batches) -> float:
    """Run the forward and backward passes of one step; return the mean loss of this process."""
    total, passes = 0.0, batches.sampler.passes
    for k in range(passes):
        waits = isinstance(objective, DistributedDataParallel) and k < passes - 1  # the last pass adds up all processes
        with objective.no_sync() if waits else nullcontext():  # type: ignore[operator]
            batch = tuple(run.placed(part) for part in batches.take())
            loss = objective(batch) / passes
            loss.backward()
        total += loss.item()
    return total


def _check_finite(run: Run, loss: float, sampler: ResumableBatchSampler) -> None:
    """Stop before a broken step reaches the weights, and so any checkpoint."""
    gradients = [p.grad.norm() for p in run.model.parameters() if p.grad is not None]
    norm = torch.stack(gradients).norm().item() if gradients else 0.0
    if math.isfinite(loss) and math.isfinite(norm):
        return
    names = "; ".join(run.task.train_data.name(index) for _, index in sampler.keys(run.step))
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
    raise UserError(
        f"{what} at step {run.step}, so training stopped; the last checkpoint is untouched. The batch was: {names}. "
        "Check these images and labels, or lower optimizer.lr"
    )


class RunRecorder:
    """Write log lines, previews, scores and checkpoints between steps, in the first process."""

    def __init__(self, run: Run, logger: RunLogger) -> None:
        self.run, self.logger, self.settings = run, logger, run.recipe.train
        self.saved, self.saved_at = True, time.monotonic()
        if run.step >= run.steps and not (run.out / LAST).exists():
            run.save_weights(LAST)  # deleted since

    def after_step(self, loss: float, lr: float, stop: bool) -> None:
        """Do what is due after a step; `stop` and the last step save a checkpoint at once."""
        run, settings = self.run, self.settings
        end = run.step == run.steps
        run.recent.append(loss)
        self.logger.advance(run.step, run.seconds)
        if end or run.step % settings.log_every == 0:
            self.log(lr)
        paused = time.monotonic()
        if settings.preview_every and run.step % settings.preview_every == 0:
            self.preview()
        if end or (settings.eval_every and run.step % settings.eval_every == 0):
            self.evaluate()
        if end or stop or time.monotonic() - self.saved_at > 60 * settings.checkpoint_minutes:
            self.save()
        run.logged += time.monotonic() - paused  # the rate is that of the steps

    def log(self, lr: float) -> None:
        run = self.run
        rate = len(run.recent) * self.settings.step_size / (run.seconds - run.logged)
        self.logger.record(loss=sum(run.recent) / len(run.recent), lr=lr, images_per_second=round(rate, 3))
        run.recent, run.logged = [], run.seconds

    def preview(self) -> None:
        image = self.run.task.preview(self.run.average)
        if image is not None:
            self.logger.image(image)

    def evaluate(self) -> None:
        run = self.run
        self._survive(lambda: run.save_weights(f"weights/{run.step}.safetensors"))  # first: scoring may fail
        scores = run.task.evaluate(run.average)
        if not scores:
            return
        self.logger.record(**scores)
        first = next(iter(scores.values()))
        if first > run.best and self._survive(lambda: run.save_weights("best.safetensors")):
            run.best = first

    def save(self) -> None:
        run = self.run
        self.saved, self.saved_at = self._survive(run.save), time.monotonic()
        if not run.path.exists():
            self.logger.warn(f"no checkpoint could be written into {run.out} yet: stopping now loses the run")

    def _survive(self, write: Callable[[], None]) -> bool:
        """Write, or warn on a full disk: the previous files are still there, and the next try may succeed."""
        try:
            write()
            return True
        except (OutputError, OSError, RuntimeError, SafetensorError) as error:  # RuntimeError: a failed write of torch
            reason = " ".join(str(error).split())[:200]
            self.logger.warn(f"not saved ({reason}); the previous files are kept, training continues")
            return False
