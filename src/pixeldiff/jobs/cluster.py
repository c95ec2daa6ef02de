"""Run an operation over many images on many machines with Ray Data.

Ray Data lists the images (a task), runs the operation (actors, each with an open model), holds back what comes too
fast, and repeats what is lost with a process or a machine. Repeating is safe: a result is complete or missing, and has
the same bytes whoever makes it. A row of Ray's is a chunk of images, and a block is one row (its target size is a
byte), so that nothing has to divide blocks, which would need a CPU that the workers have taken.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import tempfile
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff import __version__, addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import DiskFullError, MissingExtra, UserError
from pixeldiff.files import remove_stale_temp_files
from pixeldiff.jobs.listing import Job, find_jobs
from pixeldiff.jobs.manifest import digests
from pixeldiff.jobs.operation import Operation

Row = dict[str, Any]

CHUNK, LARGEST = 32, 1024  # images in a chunk: from seconds of work to a minute
_CPUS, _LISTING_CPUS = 0.9, 0.01  # of a worker; the listing takes what is left of a CPU, and never waits for one
_THREADS = 4  # of a worker; one is in the model, the others read and write
_DEATHS = 2  # of workers over one image
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}  # nothing is sent to Ray's makers
_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
# A Ray process that does not answer in time counts as dead, and its death ends the program that is connected. On one
# machine a process that is alive is only slow: the limits are minutes, not Ray's seconds.
_PATIENT = {
    "health_check_timeout_ms": 120_000,
    "health_check_failure_threshold": 10,
    "agent_register_timeout_ms": 300_000,
    "gcs_rpc_server_reconnect_timeout_s": 600,
}


@dataclass(frozen=True)
class Work:
    """What the workers do, and how many there are."""

    operation: Operation[Any]
    source: str
    out: Address
    overwrite: bool = False
    limit: int | None = None
    min_workers: int = 1
    max_workers: int | None = None  # by default as many as there are CPUs
    memory: int = 10**9  # bytes of a worker, also the budget of its model


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[int]:
    """Connect to the cluster at an address, else to RAY_ADDRESS, else to one on this machine, which is started if there
    is none; give the number of its CPUs."""
    os.environ |= _ENVIRONMENT | os.environ
    warnings.filterwarnings("ignore", module="ray")
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("cluster", "--cluster", error.name) from error
    with contextlib.ExitStack() as stack:
        if address or not ray.is_initialized():  # a program may have its own connection
            with _silenced():
                _start(ray, address or os.environ.get("RAY_ADDRESS"), stack)
            stack.callback(ray.shutdown)
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1
        yield int(ray.cluster_resources().get("CPU", 1))


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drop what Ray's C++ code prints on stderr while it starts."""
    with open(os.devnull, "w") as nothing:
        stderr = os.dup(2)
        os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _start(ray: Any, address: str | None, stack: contextlib.ExitStack) -> None:
    try:
        if address and address != "auto":
            _probe(address)
            ray.init(address=address, **_QUIET)
            return
        with contextlib.suppress(ConnectionError):
            ray.init(address="auto", **_QUIET)
            return
        if not address:
            start_own(ray, stack)
    except UserError:
        raise
    except Exception as error:  # Ray has many
        why = " ".join(str(error).split())[:200]
        if "AuthenticationError" in "".join(traceback.format_exception(error)):
            why = "it asks for a token: set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH if it is not in your home"
        raise UserError(f"cannot use the cluster {address or 'on this machine'} ({why})") from error
    if not ray.is_initialized():
        raise UserError("no cluster runs on this machine; start one with: ray start --head, or omit the address")


def start_own(ray: Any, stack: contextlib.ExitStack, **more: Any) -> None:
    """Start a cluster on loopback, without a dashboard: whoever reaches its ports may run programs on it."""
    from ray._private import ray_constants

    os.environ |= _ENVIRONMENT | os.environ
    os.environ.setdefault(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, "0")  # for Ray's processes, and for this one
    ray_constants.ENABLE_RAY_CLUSTER = False
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this run; Ray would leave one in the user's home
        stack.callback(lambda: [os.environ.pop(name, None) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")])
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    settings = {"include_dashboard": False, "object_store_memory": 2**28, "_temp_dir": folder} | _QUIET | more
    for last in (False, False, True):
        try:
            ray.init(**settings, _system_config=_PATIENT)
            return
        except Exception as error:
            ray.shutdown()
            if last or "timed out" not in str(error):  # Ray gives its processes 20 s, which a busy machine exceeds
                raise


def _probe(address: str) -> None:
    """Raise if nothing answers at an address; Ray itself would try for half a minute."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UserError(f"invalid --cluster {address}; give HOST:PORT of the head node, or put --cluster last")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no cluster answers at {address} ({error}); is its head node up?") from error


def run_cluster(work: Work, cpus: int, begun: Address, settled: Any = ()) -> Iterator[list[Row]]:
    """Yield rows of the manifest as they are ready, a chunk of images at a time. `begun` is a folder for notes on the
    chunks that workers have begun; images without files whose digest is in `settled` are skipped."""
    import ray.data

    addresses.write(begun / "start", b"")
    started = addresses.written_at(begun / "start") or 0.0
    max_workers = max(work.min_workers, work.max_workers or cpus)
    rows = ray.data.from_items([{"cpus": cpus}], override_num_blocks=1)
    rows = rows.map_batches(
        _list_chunks,
        fn_kwargs={"work": work, "settled": settled},
        batch_size=1,
        batch_format="pyarrow",
        num_cpus=_LISTING_CPUS,
    )
    rows = rows.map_batches(
        _Worker,
        fn_constructor_kwargs={"work": work, "started": started, "begun": begun, "version": __version__},
        batch_size=1,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(
            min_size=work.min_workers,
            max_size=max_workers,
            initial_size=max(work.min_workers, min(max_workers, cpus)),
            max_tasks_in_flight_per_actor=2,
        ),
        num_cpus=_CPUS,
        memory=work.memory,
    )
    try:
        for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from (json.loads(text) for text in batch["rows"].to_pylist())
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[-300:]
        raise UserError(f"the cluster gave up ({why}); to resume, run the same command again") from error


def chunked(jobs: Iterator[Any], workers: int) -> Iterator[list[Any]]:
    """Divide jobs into chunks that grow from one job: all workers soon have some, and many jobs make few chunks."""
    total = 0
    while chunk := list(islice(jobs, min(LARGEST, max(1, min(CHUNK, total // (4 * workers)), total // 1024)))):
        yield chunk
        total += len(chunk)


def _list_chunks(rows: Any, work: Work, settled: Any) -> Iterator[Any]:
    """List the source, as a task of Ray; an error becomes a row."""
    import pyarrow as pa

    def as_table(name: str, content: Any) -> Any:
        return pa.table({"name": [name], "jobs": [json.dumps(content)]})

    jobs = islice(find_jobs(work.source, work.out, work.operation.ending), work.limit)
    try:
        for number, chunk in enumerate(chunked(jobs, max(rows["cpus"].to_pylist()[0], work.min_workers))):
            skip = np.isin(digests([str(source) for source, _ in chunk]), settled)
            entries = [
                [source.full, target.full if target else None, bool(skipped)]
                for (source, target), skipped in zip(chunk, skip, strict=True)
            ]
            yield as_table(f"{number:09d}", entries)
    except UserError as error:
        yield as_table("error", str(error))


class _Worker:
    """An actor of Ray: chunks of images to rows of the manifest."""

    def __init__(self, work: Work, started: float, begun: Address, version: str) -> None:
        import ray

        self.work, self.started, self.begun = work, started, begun
        self.name = f"{ray.util.get_node_ip_address()}:{os.getpid()}"
        self.gate, self.cleaned, self.error = threading.Lock(), set[Path](), ""
        self.pool = ThreadPoolExecutor(_THREADS)
        try:
            if version != __version__:
                raise UserError(f"a worker has pixeldiff {__version__}, not {version}; install the same everywhere")
            self.model = work.operation.open(1, 1)
            if hasattr(self.model, "memory_budget"):
                self.model.memory_budget = work.memory
        except UserError as error:
            self.error = f"{error} (worker {self.name})"

    def __call__(self, batch: Any) -> Any:
        import pyarrow as pa

        chunks = zip(batch["name"].to_pylist(), map(json.loads, batch["jobs"].to_pylist()), strict=True)
        return pa.table({"rows": [json.dumps(self._run_chunk(name, jobs)) for name, jobs in chunks]})

    def _run_chunk(self, name: str, entries: Any) -> list[Row]:
        """Return the rows of a chunk. If a worker has died over it, its images are run one by one."""
        if self.error or name == "error":
            return [{"address": "", "status": "stop", "error": self.error or entries, "worker": self.name}]
        jobs: list[Job] = [
            (addresses.parse(source), addresses.parse(target) if target else None)
            for source, target, skip in entries
            if not skip
        ]
        skipped = [addresses.parse(source) for source, _, skip in entries if skip]
        mark = self.begun / name
        died = addresses.written_at(mark) is not None
        self._clean({Path(target.path).parent for _, target in jobs if target and not target.scheme}, died)
        if not died:
            addresses.write(mark, b"")
        run = partial(self._run_alone, mark) if died else self._run
        rows = list((map if died else self.pool.map)(lambda job: run(*job), jobs))
        addresses.remove(mark)
        return rows + [{"address": str(address), "status": "skipped"} for address in skipped]

    def _clean(self, folders: set[Path], again: bool) -> None:
        remove_stale_temp_files(folders if again else folders - self.cleaned)
        self.cleaned |= folders

    def _run_alone(self, mark: Address, source: Address, target: Address | None) -> Row:
        """Run an image of a chunk over which a worker died; a second and third death are this image's fault."""
        name = f"{mark.name}.{zlib.crc32(source.full.encode(errors='surrogateescape')):08x}"
        deaths = [self.begun / f"{name}.{attempt}" for attempt in range(_DEATHS)]
        unused = [death for death in deaths if addresses.written_at(death) is None]
        if not unused:
            why = f"{source} has ended {_DEATHS} workers; scale it down, or give workers more memory"
            return {"address": str(source), "status": "failed", "error": why, "worker": self.name}
        addresses.write(unused[0], b"")
        row = self._run(source, target)
        for death in deaths:
            addresses.remove(death)
        return row

    def _run(self, source: Address, target: Address | None) -> Row:
        start = time.perf_counter()
        row: Row = {"address": str(source), "status": "done", "worker": self.name}
        try:
            if target is not None and (written := addresses.written_at(target)) is not None:
                by_this_run = written > self.started
                if by_this_run or not self.work.overwrite:
                    return row | {"status": "done" if by_this_run else "skipped", "result": str(target)}
            data = addresses.read(source)
            with self.gate:
                output = self.work.operation.run(self.model, data, str(source))
            if target is not None:
                _write(output.files, target)
                row["result"] = str(target)
            row["record"] = json.dumps(dict(output.record)) if output.record else None
            return row | {"size": len(data), "seconds": round(time.perf_counter() - start, 4)}
        except DiskFullError as error:
            return row | {"status": "stop", "error": str(error)}
        except UserError as error:
            return row | {"status": "failed", "error": str(error)}
        except MemoryError:
            why = f"{source} needs more memory than there is; scale it down first"
            return row | {"status": "failed", "error": why}
        except Exception as error:  # of a library, or a mistake in pixeldiff: other images still get their results
            return row | {"status": "failed", "error": f"{source}: {type(error).__name__}: {error}"}


def _write(files: Mapping[str, bytes], target: Address) -> None:
    """Write the files of a result, the main one last: when it exists, all do."""
    stem, dot, suffix = target.path.rpartition(".")
    for part, content in sorted(files.items(), reverse=True):
        addresses.write(target.at(f"{stem}.{part}{dot}{suffix}") if part else target, content)
