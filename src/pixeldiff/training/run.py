"""The state of a training run: what it has learned, where it is in the data, and the files it lives in.

A run is a pure function of its recipe. Step t takes images t * batch to (t + 1) * batch of an endless sequence of
shuffled epochs, and every random choice comes from the seed and the position in that sequence. So a checkpoint is
the weights, their average, the optimizer and t, and a run that was killed ends in the same bits as one that was not.
"""

from __future__ import annotations

import copy
import errno
import hashlib
import math
import shutil
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from pixeldiff.errors import OutputError, UserError
from pixeldiff.files import atomic_path
from pixeldiff.machine import commit
from pixeldiff.models import create_model, init_from
from pixeldiff.models.saving import load_model, read_metadata, save_model
from pixeldiff.training.optimizers import make_optimizer, state_copies
from pixeldiff.training.recipe import Recipe, as_table, parse_recipe
from pixeldiff.training.tasks import TaskProtocol, TrainData, task_module
from pixeldiff.weights import sha256, trained

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LAST = "last.safetensors"
CHECKPOINT = "checkpoint.pt"


class Run:
    """The state of a run and the files it lives in."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device) -> None:
        self.recipe, self.out, self.device = recipe, out, device
        self.task: TaskProtocol = task_module(recipe.task).Task(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create_model(**recipe.model).to(device)
        if recipe.loop.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.optimizer = make_optimizer(recipe.optimizer, self.model.parameters())
        self.steps = max(1, math.ceil(recipe.schedule.epochs * len(self.task.train_data) / recipe.loop.batch))
        self.step = 0
        self.best = -math.inf
        self.seconds = 0.0
        self.recent: list[float] = []  # losses since the last logged step, and the seconds then
        self.logged = 0.0
        self.commit = commit(Path(__file__))  # now: a clone may be updated while a run goes on
        self.entries = _digest(self.task.train_data)
        self.initial_sha256 = ""

    @property
    def path(self) -> Path:
        return self.out / CHECKPOINT

    def placed(self, part: Tensor) -> Tensor:
        """A part of a batch where and how the model wants it: one image left in NCHW makes its first layers NCHW."""
        wanted = torch.channels_last if self.recipe.loop.channels_last else torch.contiguous_format
        return part.to(
            self.device, non_blocking=True, memory_format=wanted if part.dim() == 4 else torch.preserve_format
        )

    def start(self) -> None:
        """Begin a new run: from the weights that the recipe names, if it does."""
        if self.recipe.initial:
            _init_from(self.model, self.recipe.initial)
            source = trained(self.recipe.initial)
            if source.resolve().parent in (self.out.resolve(), self.out.resolve() / "weights"):
                raise OutputError(f"initial = {self.recipe.initial!r} lies where this run writes; choose another --out")
            self.initial_sha256 = sha256(source)
            self.average.load_state_dict(self.model.state_dict())

    def save(self) -> None:
        """Write the weights, then the checkpoint, each whole or not at all: a finished run never lacks its weights."""
        self.save_weights(LAST)
        state = {
            "step": self.step,
            "best": self.best,
            "seconds": self.seconds,
            "recent": self.recent,
            "logged": self.logged,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "recipe": as_table(self.recipe),
            "entries": self.entries,
            "initial_sha256": self.initial_sha256,
        }
        with atomic_path(self.path, durable=True) as unfinished, unfinished.open("wb") as file:
            torch.save(state, file)

    def check_disk_space(self) -> None:
        """Now, not after hours: a checkpoint holds the weights, their average and moments, and stands beside it."""
        copies = 3 + state_copies(self.recipe.optimizer.name)  # of the weights; the optimizer's beside
        needed = copies * sum(tensor.nbytes for tensor in self.model.state_dict().values())
        if (free := shutil.disk_usage(self.out).free) < needed:
            raise UserError(
                f"{self.out} has room for {free / 1e6:.1f} MB, and a checkpoint of this run takes {needed / 1e6:.1f}; "
                "make room or choose another --out"
            )

    def save_weights(self, name: str) -> None:
        described = {
            "task": self.recipe.task,
            "preprocessing": self.task.preprocessing,
            "recipe": as_table(self.recipe),
            "commit": self.commit,
            "steps": self.step,
            "wall_clock_hours": round(self.seconds / 3600, 4),
        }
        if self.initial_sha256:
            described["initial_sha256"] = self.initial_sha256
        if self.task.labels:
            described["labels"] = list(self.task.labels)
        (self.out / name).parent.mkdir(exist_ok=True)
        save_model(self.average, self.out / name, described)

    def read(self) -> dict[str, Any] | None:
        """The checkpoint in `out`, if there is one; an error if what is there is not of this recipe and data."""
        if not self.path.exists():
            if (weights := self.out / LAST).exists():  # of this recipe: begun again, it ends in the same bits
                described = read_metadata(weights)
                self._compare(described.get("recipe", {}), described.get("initial_sha256", ""))
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            recipe = state["recipe"]
        except Exception as error:  # torch.load raises whatever the damage happens to hit
            raise UserError(f"{self.path} is not a checkpoint of pixeldiff train ({error}); move it away") from error
        state["recipe"] = self._compare(recipe, state.get("initial_sha256", ""))
        if state.get("entries", self.entries) != self.entries:  # older checkpoints do not say
            raise UserError(f"{self.out} holds a run on other images than are in the data now; choose another --out")
        return state

    def _compare(self, table: dict[str, Any], initial_sha256: str) -> dict[str, Any]:
        """The recipe of what is in `out`, complete; an error if it makes another run than this one."""
        try:
            old = as_table(parse_recipe(table))  # keys that are new since have defaults
        except UserError as error:
            raise UserError(f"{self.out} holds something else than runs ({error}); choose another --out") from error
        new = as_table(self.recipe)
        changed = [key for key in ("task", "model", "data", "loss", "seed") if old[key] != new[key]]
        if old["initial"] != new["initial"] and not self._starts_from(initial_sha256):
            changed.append("initial")
        parts = (("loop", "batch"), ("optimizer", "name"))
        changed += [f"{part}.{key}" for part, key in parts if old[part][key] != new[part][key]]
        if changed:
            raise UserError(f"{self.out} holds a run with another {' and '.join(changed)}; choose another --out")
        return old

    def _starts_from(self, initial_sha256: str) -> bool:
        """Whether the recipe's `initial` is this file: folders of runs are moved, and called from elsewhere."""
        try:
            return bool(self.recipe.initial) and sha256(trained(self.recipe.initial)) == initial_sha256
        except UserError:  # it is no longer there
            return False

    def restore(self, state: dict[str, Any]) -> None:
        self.initial_sha256 = state.get("initial_sha256", "")
        self.step, self.seconds = state["step"], state["seconds"]
        if state["recipe"]["evaluate"] == as_table(self.recipe)["evaluate"]:  # else there is no best score yet
            self.best = state["best"]
        self.recent, self.logged = state.get("recent", []), state.get("logged", self.seconds)  # older ones lack them
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        options = self.recipe.optimizer  # the rest of the run may have others; the loop sets lr at each step
        for group in self.optimizer.param_groups:
            group.update(betas=options.betas, weight_decay=options.weight_decay)

    def update_average(self) -> None:
        """theta' <- d theta' + (1 - d) theta, with a shorter memory in the first steps."""
        decay = min(self.recipe.loop.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
            for held, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
                held.copy_(new)


def _init_from(model: nn.Module, source: str) -> None:
    try:
        other = load_model(source)
    except UserError as error:
        raise UserError(
            f"initial = {source!r}: {error}; it names a pretrained model or weights trained before"
        ) from error
    try:
        init_from(model, other)
    except UserError as error:
        raise UserError(f"initial = {source!r} does not fit [model]: {error}") from error


def hold(out: Path) -> IO[bytes]:
    """Make the folder, and keep other processes from training in it as long as the file is open."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("wb")
    except OSError as error:
        raise UserError(f"cannot write into {out} ({error.strerror}); choose another --out") from error
    if fcntl is not None:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: data workers would hold that after a kill -9
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise UserError(f"another process trains in {out}; wait for it or choose another --out") from error
    return lock


def clean(out: Path) -> None:
    """Remove what a killed run left half written. Only where `hold` keeps others away."""
    for path in (*out.glob(".*.tmp"), *out.glob("weights/.*.tmp")):
        if path.is_file() and not path.is_symlink():  # we make no links
            path.unlink()


def _digest(train_data: TrainData) -> str:
    """What tells one training set from another: how many entries, and their names without folders."""
    names = hashlib.sha256()
    for index in range(len(train_data)):
        names.update(train_data.name(index).rpartition("/")[2].encode() + b"\n")
    return f"{len(train_data)} {names.hexdigest()}"
