"""`--cluster` of every command that works through images: its options, the run, and what is told of it."""

from __future__ import annotations

import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff import addresses
from pixeldiff.cli import _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._network import Open
from pixeldiff.cli._options import CLUSTER, option
from pixeldiff.errors import MissingExtra, UserError

if TYPE_CHECKING:
    from pixeldiff.cli._images import RunOptions
    from pixeldiff.jobs.cluster import Workers
    from pixeldiff.jobs.operation import Operation

_GIGABYTE = 10**9
_TOLD = 100  # failures that are named in JSON; the manifest has all


@dataclass(frozen=True)
class Cluster:
    """Where to run, and on what."""

    address: str | None
    least: int
    most: int | None
    memory: int

    @property
    def workers(self) -> Workers:
        from pixeldiff.jobs.cluster import Workers

        return Workers(self.least, self.most, self.memory)


class _Bounds(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """N or MIN:MAX."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        found = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", str(value))
        bounds = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
        return bounds if 0 < bounds[0] <= bounds[1] else self.fail(f"{value} is neither N nor MIN:MAX", param, ctx)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options; the command is given one `cluster`, None without it."""

    @option(
        CLUSTER,
        "--cluster",
        "address",
        is_flag=False,
        flag_value="",
        metavar="[HOST:PORT]",
        help="Run on a Ray cluster: at this address, at RAY_ADDRESS, or a new one on this machine.",
    )
    @option(CLUSTER, "--workers", type=_Bounds(), metavar="MIN:MAX", help="Number of workers. [default: 1 to its CPUs]")
    @option(
        CLUSTER,
        "--worker-memory",
        type=click.FloatRange(0.1, 1000),
        metavar="GB",
        help="Memory of each worker. [default: 1]",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        address: str | None,
        workers: tuple[int, int] | None,
        worker_memory: float | None,
        **given: Any,
    ) -> Any:
        cluster = None
        if address is not None:
            least, most = workers or (1, None)
            cluster = Cluster(address or None, least, most, int((worker_memory or 1) * _GIGABYTE))
        elif workers or worker_memory:
            raise UserError("--workers and --worker-memory need --cluster; add it, or omit them")
        return command(*arguments, cluster=cluster, **given)

    return wrapped


@contextmanager
def scatter(cluster: Cluster | None) -> Iterator[Any]:
    """For `eval`: what runs a function over items on the cluster; None without one."""
    if cluster is None:
        yield None
        return
    require()
    from pixeldiff.jobs.cluster import connect, each

    with connect(cluster.address) as cpus:
        yield functools.partial(each, workers=cluster.workers, cpus=cpus)


def traveling(opened: Open, cluster: Cluster | None) -> Any:
    """An open network, which may also be sent to a cluster."""
    if cluster is None:
        return opened.network
    from pixeldiff.jobs.cluster import Carried, Traveling

    content = opened.runs.read_bytes()
    carried = Carried(opened.task.name, opened.runs.name, content, cluster.memory)
    return Traveling(opened.network, carried)


def require() -> None:
    """What is not installed is told before anything else."""
    try:
        import pyarrow
        import ray
    except ImportError as error:
        raise MissingExtra("cluster", "--cluster", error.name) from error
    del pyarrow, ray


@dataclass
class Tally:
    """What has become of the images so far; no more than this is held."""

    images: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    failed: list[dict[str, str]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)
    first: tuple[float, int] | None = None  # when the first results came, and how many

    def add(self, rows: list[dict[str, Any]]) -> None:
        self.statuses.update(row["status"] for row in rows)
        self.workers.update(row["worker"] for row in rows if row["status"] == "done")
        for row in rows:
            if row["error"]:
                self.causes[_cause(row["error"], row["address"])] += 1
                if len(self.failed) < _TOLD:
                    self.failed.append({"input": row["address"], "error": row["error"]})
        self.first = self.first or (time.perf_counter(), self.statuses.total())

    def summary(self) -> dict[str, Any]:
        """For JSON: rates are those after the first results."""
        now = time.perf_counter()
        begun, before = self.first or (now, 0)
        rate = (self.statuses.total() - before) / (now - begun) if now - begun > 1e-3 else 0.0
        return {
            **{status: self.statuses[status] for status in ("done", "skipped", "failed")},
            "seconds": round(now - self.started, 3),
            "start_seconds": round(begun - self.started, 3),
            "images_per_second": round(rate, 3),
            "workers": dict(self.workers.most_common()),
            "causes": dict(self.causes.most_common(20)),
        }


def _cause(error: str, address: str) -> str:
    """An error without what is of one image only."""
    return re.sub(r"\s*\(.*?\)|\d+", "", error.replace(address, "")).partition(";")[0].strip(" :")


def single(inputs: tuple[str, ...], out: str | None) -> tuple[str, str]:
    """The SOURCE and the TARGET of a cluster run."""
    if len(inputs) != 1:
        raise UserError("--cluster takes one input: a folder, a glob in quotes, or a list (.txt, .parquet)")
    if out is None or out == "-" or inputs[0] == "-":
        raise UserError("--cluster needs -o TARGET, a folder or an address that all machines reach")
    return inputs[0], out


@dataclass(frozen=True)
class Task:
    """An operation and where it runs."""

    command: str
    operation: Operation[Any]
    source: str
    out: str
    overwrite: bool
    select: Callable[[Any], Any]


def run(command: str, operation: Operation[Any], inputs: tuple[str, ...], options: RunOptions) -> int:
    """Run an operation on a cluster; the exit code is 1 if some images failed."""
    cluster, json_target = options.cluster, options.json_target
    assert cluster is not None
    source, target = single(inputs, options.output)
    task = Task(command, operation, source, target, options.overwrite, options.select)
    require()
    from pixeldiff.jobs.cluster import Work, connect, map_images
    from pixeldiff.jobs.manifest import FOLDER, Manifest
    from pixeldiff.jobs.plan import find_jobs, write_plan

    out = addresses.parse(task.out)
    if not out.scheme:
        from pixeldiff.files import make_folder

        make_folder(Path(out.path))
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
    folder = out / FOLDER
    manifest = Manifest(folder, operation.provenance, stamp)
    tally = Tally()
    plans = folder / f"plan-{stamp}"
    with connect(cluster.address) as cpus, _removed(plans):
        jobs = _left(task.select(find_jobs(task.source, out, operation.ending)), manifest, task, tally)
        plan = write_plan(jobs, plans, max(cpus, cluster.least))
        work = Work(operation, task.overwrite, cluster.memory)
        try:
            _follow(map_images(plan, work, cluster.workers, cpus, plans / "begun"), plan.images, manifest, tally)
        finally:  # also what is stopped leaves its rows
            manifest.close()
    return _tell(task, tally, manifest, json_target)


@contextmanager
def _removed(folder: addresses.Address) -> Iterator[None]:
    try:
        yield
    finally:
        addresses.remove(folder)


def _left(jobs: Iterator[Any], manifest: Any, task: Task, tally: Tally) -> Iterator[Any]:
    """Without those whose result stands in the manifest already; a result in a file is looked for by the worker."""
    if task.operation.ending(Path(".jpg")) is not None or task.overwrite or not len(manifest.same):
        yield from jobs
        return
    import numpy as np

    from pixeldiff.jobs.manifest import digests

    for job in jobs:
        if np.isin(digests([str(job[0])]), manifest.same)[0]:
            tally.statuses["skipped"] += 1
        else:
            yield job


def _follow(fates: Iterator[Any], total: int, manifest: Any, tally: Tally) -> None:
    """Fates into the manifest and the tally as they come, with a bar on a terminal."""
    done = 0
    with report.show_progress() as progress:
        if total:
            for table in fates:
                rows = table.to_pylist()
                if stops := [row["error"] for row in rows if row["status"] == "stop"]:
                    raise UserError(f"{tally.statuses['done']} of {total} written, then stopped: {stops[0]}")
                manifest.add(table)
                tally.add(rows)
                done += len(rows)
                progress(done, total)


def _tell(task: Task, tally: Tally, manifest: Any, json_target: str | None) -> int:
    summary = tally.summary()
    failed = summary["failed"]
    result = {"manifest": str(manifest.folder), **summary}
    _json.write(json_target, task.command, [result], tally.failed, task.overwrite)
    if json_target != _json.STDOUT:
        report.say(_sentences(summary, str(manifest.folder)))
    report.remark(f"error: {number} x {cause}" for cause, number in summary["causes"].items())
    if summary["skipped"]:
        report.remark(
            f"warning: {rows} results were made with other options ({note}); --overwrite replaces results"
            for note, rows in manifest.others.items()
        )
    return 1 if failed else 0


def _sentences(summary: dict[str, Any], folder: str) -> Iterator[str]:
    done, workers = summary["done"], len(summary["workers"])
    parts = []
    if done:
        rate = summary["images_per_second"]
        each = f", {rate / workers:.1f}/s each of {workers} workers" if workers > 1 else ""
        parts.append(f"{done} image{'s' * (done != 1)} in {summary['seconds']:.1f} s ({rate:.1f}/s{each})")
    if summary["skipped"]:
        parts.append(f"{summary['skipped']} already exist, skipped (--overwrite replaces them)")
    if summary["failed"]:
        parts.append(f"{summary['failed']} failed")
    yield f"{', '.join(parts) or 'nothing to do'}; manifest: {folder}"
