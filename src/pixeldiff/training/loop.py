"""The one training loop: train(recipe, out) -> weights, whatever the task.

    out/checkpoint.pt        what resuming needs, replaced atomically
    out/metrics.jsonl        one line per logged step and evaluation; also tensorboard/ and previews/
    out/last.safetensors     the (averaged) weights; best.safetensors, and weights/<step>.safetensors at evaluations

Several processes: `torchrun --nproc-per-node 2 -m pixeldiff train ...`; each takes its part of every batch.
"""

from __future__ import annotations

import ctypes
import math
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from pixeldiff.errors import UserError
from pixeldiff.files import WriteError
from pixeldiff.training.journal import Journal
from pixeldiff.training.recipe import Recipe, Schedule, as_table
from pixeldiff.training.run import LAST, Positions, Processes, Run, clean, hold
from pixeldiff.training.tasks import TaskProtocol


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """The learning rate of step `step` of `steps`."""
    if step < schedule.warmup_steps:
        return lr * (step + 1) / schedule.warmup_steps
    if schedule.kind == "cosine":
        return lr * 0.5 * (1 + math.cos(math.pi * step / steps))
    epoch = step / steps * schedule.epochs
    return lr * schedule.factor ** sum(epoch >= milestone for milestone in schedule.milestones)


class Objective(nn.Module):
    """Model and loss as one module, so that compiling and DDP see the whole forward pass."""

    def __init__(self, model: nn.Module, task: TaskProtocol, bf16: bool) -> None:
        super().__init__()
        self.model, self.task, self.bf16 = model, task, bf16

    def forward(self, batch: Any) -> Tensor:
        with torch.autocast(next(self.model.parameters()).device.type, torch.bfloat16, enabled=self.bf16):
            loss: Tensor = self.task.loss(self.model, batch)
        return loss


def train(recipe: Recipe, out: str | Path, resume: bool = True) -> bool:
    """Train to the end of the recipe; whether the end was reached (a signal stops the run early, resumably)."""
    out = Path(out)
    processes = Processes()
    keep_memory()
    run = Run(recipe, out, processes.device)
    state = None
    with hold(out) if processes.rank == 0 else nullcontext():
        if processes.rank == 0:
            if not resume and any((out / name).exists() for name in (run.path.name, LAST)):
                raise UserError(f"{out} already holds a run; choose another --out or leave out --no-resume")
            state = run.read()
            clean(out)
            run.refuse_full_disk()
        return _train(run, processes, processes.share(state))


def _train(run: Run, processes: Processes, state: dict[str, Any] | None) -> bool:
    """Go on from `state`, or begin."""
    out, table = run.out, as_table(run.recipe)
    if state:
        run.restore(state)
    else:
        run.start()
    journal = Journal(out, run.step, run.steps) if processes.rank == 0 else None
    if journal and state:
        journal.advance(run.step, run.seconds)
        if any(state["recipe"][name] != table[name] for name in ("schedule", "optimizer", "loop", "evaluate")):
            journal.warn("resumed with another schedule, optimizer, loop or evaluate than before")
    try:
        with _Signals() as signals, _Batches(run, processes) as batches:
            finished = _steps(run, processes, batches, journal, signals)
    finally:
        if journal:
            journal.close()
    processes.close()
    return finished


def _steps(run: Run, processes: Processes, batches: _Batches, journal: Journal | None, signals: _Signals) -> bool:
    """The loop itself."""
    recipe, loop = run.recipe, run.recipe.loop
    model = run.model
    if processes.world > 1 and run.device.type == "cuda":  # on a CPU each process has its own statistics
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    objective: nn.Module = Objective(model, run.task, loop.bf16)
    if loop.compile:
        # With sizes left open, inductor fails on binary convolutions of stride 2 (torch 2.13).
        objective = torch.compile(objective, dynamic=False)  # type: ignore[assignment]
    if processes.world > 1:
        objective = DistributedDataParallel(objective)
    if journal and run.step >= run.steps and not (run.out / LAST).exists():
        run.save_weights(LAST)  # somebody took them away
    began, saved = time.monotonic() - run.seconds, time.monotonic()
    stop, saved_last = False, True
    while run.step < run.steps and not stop:
        lr = learning_rate(recipe.schedule, recipe.optimizer.lr, run.step, run.steps)
        for group in run.optimizer.param_groups:
            group["lr"] = lr
        torch.manual_seed((recipe.seed + run.step) * processes.world + processes.rank)
        run.model.train()
        total = 0.0
        passes = batches.positions.passes
        for k in range(passes):
            last = k == passes - 1
            with nullcontext() if last or processes.world == 1 else objective.no_sync():  # type: ignore[operator]
                batch = tuple(run.placed(part) for part in batches.take())
                loss = objective(batch) / passes
                loss.backward()
            total += loss.item()
        total, stop = processes.agree(total, bool(signals.seen))
        _check_finite(run, total, batches.positions)
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.step += 1
        run.update_average()
        run.seconds = time.monotonic() - began
        if journal is None:
            continue
        run.recent.append(total)
        journal.advance(run.step, run.seconds)
        if run.step % loop.log_steps == 0 or run.step == run.steps:
            rate = len(run.recent) * loop.batch / (run.seconds - run.logged)
            journal.record(loss=sum(run.recent) / len(run.recent), lr=lr, pictures_per_second=round(rate, 3))
            run.recent, run.logged = [], run.seconds
        paused = time.monotonic()
        if loop.preview_steps and run.step % loop.preview_steps == 0:
            _preview(run, journal)
        if (loop.evaluate_steps and run.step % loop.evaluate_steps == 0) or run.step == run.steps:
            _evaluate(run, journal)
        if stop or run.step == run.steps or time.monotonic() - saved > 60 * loop.checkpoint_minutes:
            saved_last = _survive(journal, run.save)
            if not run.path.exists():
                journal.warn(f"no checkpoint could be written into {run.out} yet: a stop now loses the run; make room")
            saved = time.monotonic()
        run.logged += time.monotonic() - paused  # the rate is that of the steps
    return run.step >= run.steps and saved_last


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
    _survive(journal, lambda: run.save_weights(f"weights/{run.step}.safetensors"))  # first: scoring may fail
    scores = run.task.evaluate(run.average)
    if not scores:
        return
    journal.record(**scores)
    first = next(iter(scores.values()))
    if first > run.best and _survive(journal, lambda: run.save_weights("best.safetensors")):
        run.best = first


def _preview(run: Run, journal: Journal) -> None:
    image = run.task.preview(run.average)
    if image is not None:
        journal.picture(image)


def _survive(journal: Journal, write: Any) -> bool:
    """A full disk costs a warning: what was written before is still there, and the next try may succeed."""
    try:
        write()
        return True
    except (WriteError, OSError, RuntimeError, SafetensorError) as error:  # RuntimeError: a failed write of torch
        journal.warn(f"not saved ({' '.join(str(error).split())[:200]}); the previous files are kept, training goes on")
        return False


class _Samples:
    """A task's samples for the loader. A user's mistake is a value: raised in a worker it would be a traceback."""

    def __init__(self, task: TaskProtocol) -> None:
        self.task = task

    def __len__(self) -> int:
        return len(self.task)

    def __getitem__(self, key: tuple[int, int]) -> Any:
        try:
            return self.task[key]
        except UserError as error:
            return error

    def collate(self, samples: list[Any]) -> Any:
        wrong = [sample for sample in samples if isinstance(sample, UserError)]
        return wrong[0] if wrong else self.task.collate(samples)


def make_loader(task: TaskProtocol, positions: Positions, workers: int) -> DataLoader[Any]:
    """Batches as tuples of tensors, or the UserError that made one impossible."""
    samples = _Samples(task)
    return DataLoader(
        samples,  # type: ignore[arg-type]
        batch_sampler=positions,
        collate_fn=samples.collate,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
        worker_init_fn=_prepare_worker,
        pin_memory=torch.cuda.is_available(),
    )


class _Batches:
    """The run's batches in order. Its workers end with it, whatever happens: they ignore signals and are waited for."""

    def __init__(self, run: Run, processes: Processes) -> None:
        self.positions = Positions(len(run.task), run.recipe, run.step, run.steps, processes.rank, processes.world)
        self._iterator: Any = iter(make_loader(run.task, self.positions, run.recipe.loop.workers))

    def take(self) -> Any:
        batch = next(self._iterator)
        if isinstance(batch, UserError):
            raise batch
        return batch

    def __enter__(self) -> _Batches:
        return self

    def __exit__(self, *_: object) -> None:
        iterator, self._iterator = self._iterator, None
        if hasattr(iterator, "_shutdown_workers"):  # by name: the traceback of an error may still hold the iterator
            iterator._shutdown_workers()


def _prepare_worker(_: int) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # the main process decides when to stop
    torch.set_num_threads(1)


class _Signals:
    """SIGTERM and SIGINT end the run after the step at hand; a second SIGINT (Ctrl-C) ends it at once.

    A second SIGTERM does not: torchrun passes its own on to processes that were sent one already.
    """

    def __enter__(self) -> _Signals:
        self.seen: list[int] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self.before = {n: signal.signal(n, self._note) for n in (signal.SIGTERM, signal.SIGINT)}
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.seen.append(number)
        if number == signal.SIGINT:
            signal.signal(number, self.before.get(number, signal.SIG_DFL))

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)


def keep_memory() -> None:
    """Let glibc keep freed blocks: handed back to the system, the maps of a wide network come again as page faults."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return  # not glibc
    m_trim_threshold, m_mmap_max = -1, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)  # never, also above 2 GB
