"""What a command does with one image: an `Operation`, which the local runner and Ray run alike.

operation.open(threads, streams) -> model      once per process
operation.run(model, data, name) -> Output     for each image; up to `streams` calls at once
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pixeldiff.errors import DiskFullError, InputError, UserError
from pixeldiff.files import STREAM, Job
from pixeldiff.inference.backends import DEFAULT_DEVICE
from pixeldiff.tasks import find_task, load

if TYPE_CHECKING:
    from pixeldiff.jobs.video import Clip

Model = TypeVar("Model")
Status = Literal["done", "skipped", "failed", "full", "stopped"]


@dataclass(frozen=True)
class Output:
    """What an operation makes of one image."""

    files: Mapping[str, bytes] = field(default_factory=dict)  # "" is the main file, "side_1" photo.edges.side_1.png
    record: Mapping[str, Any] = field(default_factory=dict)  # goes to --json and to the manifest of a cluster
    note: str = ""  # what a user may not expect


class Operation(Protocol[Model]):
    """What a command does with one image. Operations are pickled to reach the workers of a cluster."""

    parts: tuple[str, ...] = ("",)  # the keys of `Output.files`, the main file last
    needs_record: bool = False  # whether the record is needed for an image whose files exist

    @property
    def provenance(self) -> str:
        """The command line that makes such results."""
        ...

    def open(self, threads: int, streams: int) -> Model:
        """Open what `run` needs; up to `streams` calls run at once, with `threads` threads each."""
        ...

    def ending(self, source: Path) -> str | None:
        """Return what follows the name of an image in the name of its result ("edges.png"); None without files."""
        ...

    def run(self, model: Model, data: bytes, name: str) -> Output:
        """Make the output of an image from the content of its file; errors begin with `name`."""
        ...

    def run_video(self, model: Model, source: Path, target: Path, streams: int, progress: Any) -> Clip:
        """Make the result of a video; only operations that take videos have this."""
        raise InputError(f"{source} is a video; give images")


@dataclass(frozen=True)
class ModelSpec:
    """A weights file that an operation opens. It takes the content along when it is pickled."""

    task: str
    path: Path
    device: str = DEFAULT_DEVICE  # only edge networks run on others
    content: bytes | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return self.path.stem

    def open(self, threads: int, streams: int) -> Any:
        """Open the model."""
        placed = {} if self.device == DEFAULT_DEVICE else {"device": self.device}
        model = partial(load(find_task(self.task).model), threads=threads, streams=streams, **placed)
        if self.content is None:
            return model(self.path)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.path.name
            path.write_bytes(self.content)
            return model(path)

    def __reduce__(self) -> tuple[Any, ...]:
        content = self.path.read_bytes() if self.content is None else self.content
        return ModelSpec, (self.task, Path(self.path.name), self.device, content)


@dataclass(frozen=True)
class Result:
    """What became of a job: done, skipped (its files exist), failed, full (the disk), or stopped (by the user)."""

    job: Job
    status: Status
    error: str | None = None
    files: tuple[Path, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""  # what a user may not expect
    made_by: str = ""  # the command behind an existing result, if it is another one


def name_parts(target: Path, parts: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """Yield each part of a result and its file: photo.edges.png for "", photo.edges.side_1.png for "side_1"."""
    for part in parts:
        yield part, target.with_name(f"{target.stem}.{part}{target.suffix}") if part and target != STREAM else target


def attempt(job: Job, work: Callable[[Job], Result]) -> Result:
    """Return work(job); an error becomes a result with a message of one line."""
    try:
        return work(job)
    except DiskFullError as error:
        return Result(job, "full", str(error))
    except UserError as error:
        return Result(job, "failed", str(error))
    except MemoryError:
        return Result(job, "failed", f"{job.source} needs more memory than there is; scale it down first")
    except BrokenPipeError:  # the reader of stdout is gone; the command line knows what to do
        raise
    except OSError as error:
        return Result(job, "failed", f"cannot write {job.target} ({error.strerror or error}); choose another place")
    except Exception as error:  # of a library, or a mistake in pixeldiff: the other images still get their results
        return Result(job, "failed", f"{job.source}: {type(error).__name__}: {error}")
