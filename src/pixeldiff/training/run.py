"""The state of a training run: weights, place in the data, and files.

A run is a pure function of its recipe. A step takes the next images of an endless sequence of shuffled epochs (see
`order`), and every random choice comes from the seed and the position in that sequence. So a checkpoint is the weights,
their average, the optimizer and the step, and a run that was killed ends in the same bits as one that was not.
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

from pixeldiff.errors import DiskFullError, InputError, OutputError, UserError
from pixeldiff.files import atomic_path
from pixeldiff.machine import commit
from pixeldiff.models import create_model, init_from
from pixeldiff.models.saving import load_model, read_metadata, save_model
from pixeldiff.training.lineage import lineage
from pixeldiff.training.optimizers import make_optimizer, state_copies
from pixeldiff.training.recipe import Recipe, as_table, parse_recipe
from pixeldiff.training.tasks import TaskProtocol, TrainData, task_module
from pixeldiff.weights import sha256, training_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LAST = "last.safetensors"
CHECKPOINT = "checkpoint.pt"


class Run:
    """The state of a run and its files."""

    def __init__(self, recipe: Recipe, out: Path, device: torch.device) -> None:
        self.recipe, self.out, self.device = recipe, out, device
        self.task: TaskProtocol = task_module(recipe.task).Task(recipe)
        torch.manual_seed(recipe.seed)
        self.model = create_model(**recipe.model).to(device)
        if recipe.train.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.optimizer = make_optimizer(recipe.optimizer, self.model.parameters())
        self.steps = recipe.steps
        self.step = 0
        self.best = -math.inf
        self.seconds = 0.0
        self.recent: list[float] = []  # losses since the last logged step, and the seconds then
        self.logged = 0.0
        self.commit = commit(Path(__file__))  # now: a clone may be updated while a run goes on
        self.entries = _digest(self.task.train_data)
        self.lineage: dict[str, str] = {}  # sha256 of the weights that the run comes from

    @property
    def path(self) -> Path:
        return self.out / CHECKPOINT

    def placed(self, part: Tensor) -> Tensor:
        """Move a part of a batch to the device, in the memory layout of the model."""
        wanted = torch.channels_last if self.recipe.train.channels_last else torch.contiguous_format
        return part.to(
            self.device, non_blocking=True, memory_format=wanted if part.dim() == 4 else torch.preserve_format
        )

    def start(self) -> None:
        """Start a new run, from the weights that the recipe names, if any."""
        if self.recipe.init_from:
            _init_from(self.model, self.recipe.init_from)
            source = training_file(self.recipe.init_from)
            if source.resolve().parent in (self.out.resolve(), self.out.resolve() / "weights"):
                raise OutputError(
                    f"init_from = {self.recipe.init_from!r} is where this run writes; choose another output folder"
                )
            self.average.load_state_dict(self.model.state_dict())
        self.lineage = lineage(self.recipe)

    def save(self) -> None:
        """Write the weights, then the checkpoint, each atomically, so that a finished run has its weights."""
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
            "lineage": self.lineage,
        }
        with atomic_path(self.path, durable=True) as unfinished, unfinished.open("wb") as file:
            torch.save(state, file)

    def check_disk_space(self) -> None:
        """Check that a checkpoint (weights, average, state of the optimizer) fits beside the one it replaces."""
        copies = 3 + state_copies(self.recipe.optimizer.name)  # of the weights; the optimizer's beside
        needed = copies * sum(tensor.nbytes for tensor in self.model.state_dict().values())
        if (free := shutil.disk_usage(self.out).free) < needed:
            raise DiskFullError(
                f"{self.out} has space for {free / 1e6:.1f} MB, and a checkpoint of this run takes {needed / 1e6:.1f}; "
                "free some space or choose another output folder"
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
        if self.lineage:
            described["lineage"] = self.lineage
        if self.task.labels:
            described["labels"] = list(self.task.labels)
        (self.out / name).parent.mkdir(exist_ok=True)
        save_model(self.average, self.out / name, described)

    def read(self) -> dict[str, Any] | None:
        """Read the checkpoint in `out`, if any; an error if it is not of this recipe and data."""
        if not self.path.exists():
            if (weights := self.out / LAST).exists():  # of this recipe: begun again, it ends in the same bits
                described = read_metadata(weights)
                self._compare(described.get("recipe", {}), described.get("lineage", {}))
            return None
        try:
            state: dict[str, Any] = torch.load(self.path, map_location="cpu", weights_only=True)
            recipe = state["recipe"]
        except Exception as error:  # torch.load raises whatever the damage happens to hit
            raise InputError(f"{self.path} is not a checkpoint of pixeldiff train ({error}); move it away") from error
        state["recipe"] = self._compare(recipe, state.get("lineage", {}))
        if state.get("entries", self.entries) != self.entries:  # older checkpoints do not say
            raise OutputError(
                f"{self.out} holds a run on other images than are in the data now; choose another output folder"
            )
        return state

    def _compare(self, table: dict[str, Any], lineage: dict[str, str]) -> dict[str, Any]:
        """Return the complete recipe of what is in `out`; an error if it makes another run than this one."""
        try:
            parsed = parse_recipe(table)  # keys that are new since have defaults
        except UserError as error:
            raise OutputError(
                f"{self.out} does not hold a run of this version ({error}); choose another output folder"
            ) from error
        old, new = as_table(parsed), as_table(self.recipe)
        for table in (old, new):  # maps say who made them; runs are moved, and named from elsewhere
            for source in table["data"].get("sources", ()):
                source.pop("teacher", None)
        changed = [key for key in ("task", "model", "data", "augment", "loss", "seed") if old[key] != new[key]]
        if old["init_from"] != new["init_from"] and not self._starts_from(lineage.get("init_from", "")):
            changed.append("init_from")
        if parsed.train.step_size != self.recipe.train.step_size:
            changed.append("train.batch_size * train.grad_accum_steps")
        if parsed.optimizer.name != self.recipe.optimizer.name:
            changed.append("optimizer.name")
        if changed:
            raise OutputError(
                f"{self.out} holds a run with another {' and '.join(changed)}; choose another output folder"
            )
        return old

    def _starts_from(self, digest: str) -> bool:
        """Check whether the recipe's `init_from` is this file: folders of runs are moved, and named from elsewhere."""
        try:
            return bool(self.recipe.init_from) and sha256(training_file(self.recipe.init_from)) == digest
        except UserError:  # it is no longer there
            return False

    def restore(self, state: dict[str, Any]) -> None:
        self.lineage = state.get("lineage", {})
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
        """Update the average, theta' <- d theta' + (1 - d) theta, with a smaller d in the first steps."""
        decay = min(self.recipe.train.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for mean, now in zip(self.average.parameters(), self.model.parameters(), strict=True):
                mean.lerp_(now, 1 - decay)
            for held, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
                held.copy_(new)


def _init_from(model: nn.Module, source: str) -> None:
    try:
        other = load_model(source)
    except UserError as error:
        raise InputError(f"init_from = {source!r}: {error}; expected a pretrained model or a weights file") from error
    try:
        init_from(model, other)
    except UserError as error:
        raise InputError(f"init_from = {source!r} does not fit [model]: {error}") from error


def lock_run_dir(out: Path) -> IO[bytes]:
    """Make the folder, and keep other processes from training in it while the returned file is open."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = (out / ".lock").open("wb")
    except OSError as error:
        raise OutputError(f"cannot write into {out} ({error.strerror}); choose another output folder") from error
    if fcntl is not None:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock: data workers would hold that after a kill -9
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise OutputError(
                    f"another process trains in {out}; wait for it or choose another output folder"
                ) from error
    return lock


def remove_temp_files(out: Path) -> None:
    """Remove the half-written files of a killed run. Only while `lock_run_dir` holds the lock."""
    for path in (*out.glob(".*.tmp"), *out.glob("weights/.*.tmp")):
        if path.is_file() and not path.is_symlink():  # we make no links
            path.unlink()


def _digest(train_data: TrainData) -> str:
    """Identify a training set by the number and the names of its entries, without folders."""
    names = hashlib.sha256()
    for index in range(len(train_data)):
        names.update(train_data.name(index).rpartition("/")[2].encode() + b"\n")
    return f"{len(train_data)} {names.hexdigest()}"
