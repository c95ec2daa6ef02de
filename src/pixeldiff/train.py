"""The one training loop: train(recipe, out) -> weights, whatever the task.

A run is a pure function of its recipe. Step t takes pictures t * batch to (t + 1) * batch of an endless sequence of
shuffled epochs, and every random choice comes from the seed and the position in that sequence. So a checkpoint is
the weights, their average, the optimizer and t, and a run that was killed ends in the same bits as one that was not.

    out/checkpoint.pt        what resuming needs, replaced atomically
    out/metrics.jsonl        one line per logged step and evaluation; also tensorboard/ and previews/
    out/last.safetensors     the (averaged) weights; best.safetensors, and weights/<step>.safetensors at evaluations

Several processes: `torchrun --nproc-per-node 2 -m pixeldiff train ...`; each takes its part of every batch.
"""

from __future__ import annotations

import copy
import ctypes
import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from pixeldiff.checkpoint import load_model, save_model
from pixeldiff.errors import UserError
from pixeldiff.journal import Journal
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

    def __init__(self, length: int, recipe: Recipe, start: int, steps: int, rank: int = 0, world: int = 1) -> None:
        self.length, self.seed, self.start, self.steps = length, recipe.seed, start, steps
        self.batch, self.accumulate = recipe.loop.batch, recipe.loop.accumulate
        self.rank, self.world = rank, world
        self._epoch = -1
        if self.batch % (self.accumulate * world):
            raise UserError(
                f"loop.batch = {self.batch} does not divide into {world} processes x {self.accumulate} forward passes; "
                "change loop.batch or loop.accumulate"
            )

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
        if self._epoch != epoch:
            self._epoch = epoch
            self._permutation = np.random.default_rng((self.seed, epoch)).permutation(self.length)
        return self._permutation


class Objective(nn.Module):
    """Model and loss as one module, so that compiling and DDP see the whole forward pass."""

    def __init__(self, model: nn.Module, task: TaskProtocol, bf16: bool) -> None:
        super().__init__()
        self.model, self.task, self.bf16 = model, task, bf16

    def forward(self, batch: Any) -> Tensor:
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.task.loss(self.model, batch)
        return loss


class Processes:
    """This process among those that torchrun started, or alone."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        cuda = torch.cuda.is_available()
        self.device = torch.device(f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else "cpu")
        if self.world > 1 and not dist.is_initialized():
            # The others wait while the first process evaluates, so the patience is long.
            dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(hours=2))

    def agree(self, loss: float, stop: bool) -> tuple[float, bool]:
        """The mean loss over all processes, and whether any wants to stop."""
        if self.world == 1:
            return loss, stop
        values = torch.tensor([loss, float(stop)], device=self.device, dtype=torch.float64)
        dist.all_reduce(values)
        return values[0].item() / self.world, values[1].item() > 0

    def share(self, value: Any) -> Any:
        """What the first process has, everywhere."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def close(self) -> None:
        if self.world > 1:
            dist.destroy_process_group()


class Run:
    """The state of a run and the files it lives in."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device) -> None:
        self.recipe, self.out, self.device = recipe, out, device
        self.task: TaskProtocol = task_module(recipe.task).Task(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create_model(**recipe.model)
        if recipe.initial:
            _start_from(self.model, recipe.initial)
        self.model.to(device)
        if recipe.loop.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        options = recipe.optimizer
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), options.lr, options.betas, weight_decay=options.weight_decay
        )
        self.steps = max(1, math.ceil(recipe.schedule.epochs * len(self.task) / recipe.loop.batch))
        self.step = 0
        self.evaluated = 0  # the last step that was scored
        self.best = -math.inf
        self.seconds = 0.0

    @property
    def path(self) -> Path:
        return self.out / "checkpoint.pt"

    def save(self) -> None:
        """Write the checkpoint and the weights, each whole or not at all."""
        state = {
            "step": self.step,
            "evaluated": self.evaluated,
            "best": self.best,
            "seconds": self.seconds,
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
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        self.save_weights("last.safetensors")

    def save_weights(self, name: str) -> None:
        described = {
            "task": self.recipe.task,
            "recipe": as_table(self.recipe),
            "commit": _commit(),
            "steps": self.step,
            "wall_clock_hours": round(self.seconds / 3600, 4),
        }
        (self.out / name).parent.mkdir(exist_ok=True)
        save_model(self.average, self.out / name, described)

    def read(self) -> dict[str, Any] | None:
        """The checkpoint in `out`, if there is one and it is of this recipe."""
        if not self.path.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            old = state["recipe"]
        except Exception as error:  # torch.load raises whatever the damage happens to hit
            raise UserError(f"{self.path} is not a checkpoint of pixeldiff train ({error}); move it away") from error
        new = as_table(self.recipe)
        changed = [key for key in ("task", "model", "data", "loss", "seed") if old[key] != new[key]]
        changed += ["loop.batch"] if old["loop"]["batch"] != new["loop"]["batch"] else []
        if changed:
            raise UserError(f"{self.out} holds a run with another {' and '.join(changed)}; choose another --out")
        return state

    def restore(self, state: dict[str, Any]) -> None:
        self.step, self.evaluated, self.best = state["step"], state["evaluated"], state["best"]
        self.seconds = state["seconds"]
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])

    def update_average(self) -> None:
        """theta' <- d theta' + (1 - d) theta, with a shorter memory in the first steps."""
        decay = min(self.recipe.loop.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
            for held, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
                held.copy_(new)


def train(recipe: Recipe, out: str | Path, resume: bool = True) -> bool:
    """Train to the end of the recipe; whether the end was reached (a signal stops the run early, resumably)."""
    out = Path(out)
    processes = Processes()
    _keep_memory()
    run = Run(recipe, out, processes.device)
    state = None
    if processes.rank == 0:
        out.mkdir(parents=True, exist_ok=True)
        if not resume and run.path.exists():
            raise UserError(f"{out} already holds a run; choose another --out or leave out --no-resume")
        state = run.read()
    if state := processes.share(state):
        run.restore(state)
    journal = Journal(out, run.step, run.steps) if processes.rank == 0 else None
    if journal and state:
        journal.advance(run.step, run.seconds)
        if state["recipe"] != as_table(recipe):
            journal.warn("resumed with another schedule, optimizer or loop than before")
    try:
        finished = _steps(run, processes, journal)
    finally:
        if journal:
            journal.close()
    processes.close()
    return finished


def _steps(run: Run, processes: Processes, journal: Journal | None) -> bool:
    """The loop itself."""
    recipe, loop = run.recipe, run.recipe.loop
    positions = Positions(len(run.task), recipe, run.step, run.steps, processes.rank, processes.world)
    batches = iter(_loader(run.task, positions, loop.workers))
    objective: nn.Module = Objective(run.model, run.task, loop.bf16)
    if loop.compile:
        objective = torch.compile(objective)  # type: ignore[assignment]
    if processes.world > 1:
        objective = DistributedDataParallel(objective)
    signals = _Signals()
    began, saved = time.monotonic() - run.seconds, time.monotonic()
    recent: list[float] = []
    logged = run.seconds
    stop = False
    while run.step < run.steps and not stop:
        lr = learning_rate(recipe.schedule, recipe.optimizer.lr, run.step, run.steps)
        for group in run.optimizer.param_groups:
            group["lr"] = lr
        torch.manual_seed((recipe.seed + run.step) * processes.world + processes.rank)
        run.model.train()
        total = 0.0
        for k in range(loop.accumulate):
            last = k == loop.accumulate - 1
            with nullcontext() if last or processes.world == 1 else objective.no_sync():  # type: ignore[operator]
                batch = tuple(part.to(run.device, non_blocking=True) for part in next(batches))
                loss = objective(batch) / loop.accumulate
                loss.backward()
            total += loss.item()
        total, stop = processes.agree(total, bool(signals.seen))
        _check_finite(run, total, positions)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        run.update_average()
        run.seconds = time.monotonic() - began
        if journal is None:
            continue
        recent.append(total)
        journal.advance(run.step, run.seconds)
        if run.step % loop.log_steps == 0:
            rate = len(recent) * loop.batch / (run.seconds - logged)
            journal.record(loss=sum(recent) / len(recent), lr=lr, pictures_per_second=round(rate, 3))
            logged = run.seconds
            recent.clear()
        if loop.preview_steps and run.step % loop.preview_steps == 0:
            _preview(run, journal)
        if (loop.evaluate_steps and run.step % loop.evaluate_steps == 0) or run.step == run.steps:
            _evaluate(run, journal)
        if stop or run.step == run.steps or time.monotonic() - saved > 60 * loop.checkpoint_minutes:
            _survive(journal, run.save)
            saved = time.monotonic()
    return run.step == run.steps


def _check_finite(run: Run, loss: float, positions: Positions) -> None:
    """Stop before a broken step reaches the weights, and so any checkpoint."""
    gradients = [p.grad.norm() for p in run.model.parameters() if p.grad is not None]
    norm = torch.stack(gradients).norm().item() if gradients else 0.0
    if math.isfinite(loss) and math.isfinite(norm):
        return
    names = "; ".join(run.task.name(index) for _, index in positions.keys(run.step))
    what = f"the loss is {loss}" if not math.isfinite(loss) else f"the gradient's norm is {norm}"
    raise UserError(
        f"{what} at step {run.step}, so training stopped; the last checkpoint is untouched. The batch was: {names}. "
        "Look at these pictures and labels, or lower optimizer.lr"
    )


def _evaluate(run: Run, journal: Journal) -> None:
    scores = run.task.evaluate(run.average)
    run.evaluated = run.step
    _survive(journal, lambda: run.save_weights(f"weights/{run.step}.safetensors"))
    if not scores:
        return
    journal.record(**scores)
    first = next(iter(scores.values()))
    if first > run.best:
        run.best = first
        _survive(journal, lambda: run.save_weights("best.safetensors"))


def _preview(run: Run, journal: Journal) -> None:
    image = run.task.preview(run.average)
    if image is not None:
        journal.picture(image)


def _survive(journal: Journal, write: Any) -> None:
    """A full disk costs a warning: what was written before is still there, and the next try may succeed."""
    try:
        write()
    except (OSError, RuntimeError, SafetensorError) as error:  # torch reports a failed write as RuntimeError
        journal.warn(f"not saved ({' '.join(str(error).split())[:200]}); the previous files are kept, training goes on")


def _loader(task: TaskProtocol, positions: Positions, workers: int) -> DataLoader[Any]:
    return DataLoader(
        task,  # type: ignore[arg-type]
        batch_sampler=positions,
        collate_fn=task.collate,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_prepare_worker,
        pin_memory=torch.cuda.is_available(),
    )


def _prepare_worker(_: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the main process decides when to stop
    torch.set_num_threads(1)


class _Signals:
    """SIGTERM and SIGINT end the run after the step at hand; a second one ends it at once."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: Any) -> None:
        self.seen.append(number)
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)


def _start_from(model: nn.Module, source: str) -> None:
    try:
        model.load_state_dict(load_model(source).state_dict())
    except RuntimeError as error:
        raise UserError(f"initial = {source!r} holds weights of another network than [model]") from error


def _keep_memory() -> None:
    """Let glibc keep freed blocks: handing activations back to the system costs a fifth of each step on a CPU."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # not glibc
    m_trim_threshold, m_mmap_max = -1, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, 2**31 - 1)


def _commit() -> str:
    """The commit of the code that runs, if it runs from a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""
