"""`--cluster` of every command over images: its options, the run and its messages."""

from __future__ import annotations

import functools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff import addresses
from pixeldiff.cli import _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._options import CLUSTER, option
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import make_folder

if TYPE_CHECKING:
    from pixeldiff.cli._images import RunOptions
    from pixeldiff.jobs.operation import Operation

_NAMED = 100  # failures that are named in JSON; the manifest has all


@dataclass(frozen=True)
class Cluster:
    """Where to run, and on what."""

    address: str | None
    min_workers: int
    max_workers: int | None
    memory: int


class _Range(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """N or MIN:MAX."""

    name = "workers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        match = re.fullmatch(r"(\d{1,6})(?::(\d{1,6}))?", str(value))
        bounds = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        return bounds if 0 < bounds[0] <= bounds[1] else self.fail(f"{value} is neither N nor MIN:MAX", param, ctx)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as `cluster`, which is None without --cluster."""

    @option(
        CLUSTER,
        "--cluster",
        "address",
        is_flag=False,
        flag_value="",
        metavar="[HOST:PORT]",
        help="Run on a Ray cluster: at this address, at RAY_ADDRESS, or a new one on this machine.",
    )
    @option(CLUSTER, "--workers", type=_Range(), metavar="MIN:MAX", help="Number of workers. [default: 1 to its CPUs]")
    @option(
        CLUSTER,
        "--worker-memory",
        type=click.FloatRange(0.1, 1000),
        metavar="GB",
        help="Memory of each worker, GB. [default: 1]",
    )
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        address: str | None,
        workers: tuple[int, int] | None,
        worker_memory: float | None,
        **more: Any,
    ) -> Any:
        if address is None and (workers or worker_memory):
            raise UserError("--workers and --worker-memory need --cluster; add it, or omit them")
        min_workers, max_workers = workers or (1, None)
        cluster = Cluster(address or None, min_workers, max_workers, int((worker_memory or 1) * 10**9))
        return command(*arguments, cluster=None if address is None else cluster, **more)

    return wrapped


@dataclass
class _Totals:
    """What became of the images so far."""

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
            if error := row.get("error"):
                cause = re.sub(r"\s*\(.*?\)|\d+", "", error.replace(row["address"], ""))  # without what is of one image
                self.causes[cause.partition(";")[0].strip(" :")] += 1
                self.failed += [{"input": row["address"], "error": error}] * (len(self.failed) < _NAMED)
        self.first = self.first or (time.perf_counter(), self.statuses.total())

    def summary(self) -> dict[str, Any]:
        """Return the totals for JSON; the rate is that after the first results."""
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


def run(command: str, operation: Operation[Any], inputs: tuple[str, ...], options: RunOptions) -> int:
    """Run an operation on a cluster; return the exit code, 1 if some images failed."""
    try:
        from pixeldiff.jobs.cluster import Work, connect, run_cluster
        from pixeldiff.jobs.listing import find_jobs
        from pixeldiff.jobs.manifest import FOLDER, Manifest
    except ImportError as error:
        raise MissingExtra("cluster", "--cluster", error.name) from error
    cluster = options.cluster
    assert cluster is not None
    if len(inputs) != 1:
        raise UserError("--cluster takes one input; give a folder, a glob in quotes, or a list (.txt, .parquet)")
    if options.output is None or options.output == "-" or inputs[0] == "-":
        raise UserError("--cluster needs -o TARGET; give a folder or an address that all machines reach")
    source = inputs[0] if addresses.is_remote(inputs[0]) else os.path.abspath(inputs[0])
    out = addresses.parse(options.output)
    if not out.scheme:
        make_folder(Path(out.path))
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"
    folder = out / FOLDER
    manifest = Manifest(folder, operation.provenance, stamp)
    next(find_jobs(source, out, operation.ending))  # raises if there is nothing, before Ray is started
    bounds = (cluster.min_workers, cluster.max_workers, cluster.memory)
    work = Work(operation, source, out, options.overwrite, options.limit, *bounds)
    by_record = operation.ending(Path(source)) is None and not options.overwrite
    totals, begun = _Totals(), folder / f"begun-{stamp}"
    progress = report.hide_progress if options.quiet else report.show_progress
    with connect(cluster.address) as cpus, progress() as show:
        try:
            for rows in run_cluster(work, cpus, begun, manifest.same if by_record else ()):
                if stops := [row["error"] for row in rows if row["status"] == "stop"]:
                    raise UserError(f"{totals.statuses['done']} written, then stopped: {stops[0]}")
                manifest.add(rows)
                totals.add(rows)
                show(totals.statuses.total(), None)
        finally:  # a run that is stopped leaves its rows, too
            manifest.close()
            addresses.remove(begun)
    return _tell(command, totals, manifest, options)


def _tell(command: str, totals: _Totals, manifest: Any, options: RunOptions) -> int:
    summary = totals.summary()
    result = {"manifest": str(manifest.folder), **summary}
    _json.write(options.json_target, command, [result], totals.failed, options.overwrite)
    if options.json_target != _json.STDOUT and not options.quiet:
        report.say(_sentences(summary, str(manifest.folder)))
    report.remark(f"error: {number} x {cause}" for cause, number in summary["causes"].items())
    if summary["skipped"]:
        others = manifest.others.items()
        made = (
            f"warning: {n} results were made with other options ({by}); --overwrite replaces them" for by, n in others
        )
        report.remark(made, options.quiet)
    return 1 if summary["failed"] else 0


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
