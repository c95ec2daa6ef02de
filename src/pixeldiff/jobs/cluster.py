"""Many images on many machines: a plan's images through workers of Ray Data, and what became of each.

Ray Data does the work: workers are actors that open the network once, as many as there is need and room for, within
bounds; it holds back what would come too fast, and does again what is lost with a process or a machine. That is safe at
any time: a result is whole or not there, and the same bytes whoever makes it.

What a worker is given, and gives back, is one row: a chunk of images. A block of Ray's is one such row (its target
size is a byte), so that nothing has to divide blocks, which would need a CPU that the workers have taken.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import secrets
import socket
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from pixeldiff import __version__, addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import DiskFullError, MissingExtra, UserError
from pixeldiff.files import remove_stale_temp_files
from pixeldiff.jobs.manifest import SCHEMA
from pixeldiff.jobs.operation import Operation
from pixeldiff.jobs.plan import Job, Plan, read_chunk, read_part
from pixeldiff.tasks import find_task, load

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
_CPUS = 0.9  # of a worker: what is left over reads plans, which would wait for ever for a CPU of its own
_READER_CPUS = 0.01
_THREADS = 4  # of a worker; one is in the network, others read and write meanwhile
_STORE_BYTES = 2**28  # for rows, on a cluster of our own
_PATIENCE = 5  # seconds until an address counts as dead
_DEATHS = 2  # of workers over one image

# A Ray process that does not answer in time counts as dead, and its death ends the program that is connected. On one
# machine a process that is alive is only slow: the limits are minutes, not Ray's seconds.
_PATIENT = {
    "health_check_timeout_ms": 120_000,
    "health_check_failure_threshold": 10,
    "agent_register_timeout_ms": 300_000,
    "gcs_rpc_server_reconnect_timeout_s": 600,
}


@dataclass(frozen=True)
class Workers:
    """How many there may be, and what each takes."""

    least: int = 1
    most: int | None = None  # the CPUs there are
    memory: int = 10**9  # bytes, which are also the network's budget


@dataclass(frozen=True)
class Carried:
    """A network that travels as the content of its file; called, where it is to run, it is open."""

    task: str
    name: str
    content: bytes
    memory: int

    def __call__(self) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.name
            path.write_bytes(self.content)
            network = load(find_task(self.task).model)(path, threads=1, streams=1)
        if hasattr(network, "memory_budget"):
            network.memory_budget = self.memory
        return network


class Traveling:
    """An open network that, pickled, goes as what is carried and arrives open."""

    def __init__(self, network: Any, carried: Carried) -> None:
        self._network, self._carried = network, carried

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        return self._network(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrive, (self._carried,)


def _arrive(carried: Carried) -> Any:
    return carried()


@dataclass(frozen=True)
class Work:
    """What workers do."""

    operation: Operation[Any]
    overwrite: bool = False
    memory: int = 10**9  # bytes, the budget of the network


@dataclass(frozen=True)
class Fate:
    """A row of the manifest; the status `stop` means that no other image will fare better."""

    address: str
    size: int | None = None
    status: str = "done"
    result: str | None = None
    seconds: float | None = None
    error: str | None = None
    worker: str = ""


@contextlib.contextmanager
def connect(address: str | None) -> Iterator[int]:
    """The cluster at an address, else that of the environment, else one of our own on this machine; gives its CPUs."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise MissingExtra("cluster", "--cluster", error.name) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_hushed())
        if address or not ray.is_initialized():  # a program may have its own connection
            _start(ray, address or os.environ.get("RAY_ADDRESS"), stack)
            stack.callback(ray.shutdown)
        for name in ("ray", "ray.data"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.target_max_block_size = 1
        yield int(ray.cluster_resources().get("CPU", 1))


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """What Ray's processes and libraries print goes nowhere; what Python prints to stderr still arrives."""
    with contextlib.ExitStack() as stack:
        nothing = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nothing))
        try:
            number = os.dup(2)
        except OSError:  # a process without stderr
            yield
            return
        ours = stack.enter_context(open(number, "w", buffering=1, errors="backslashreplace"))
        stack.callback(os.dup2, number, 2)
        sys.stderr.flush()
        os.dup2(nothing.fileno(), 2)
        stack.enter_context(contextlib.redirect_stderr(ours))
        yield


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
    except Exception as error:  # Ray raises what it likes
        why = " ".join(str(error).split())[:200]
        if "AuthenticationError" in "".join(traceback.format_exception(error)):
            why = "it asks for a token; set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH if it is not in your home"
        raise UserError(f"cannot use the cluster {address or 'on this machine'} ({why})") from error
    if not ray.is_initialized():
        raise UserError("no cluster runs on this machine; start one: ray start --head, or leave the address out")


def start_own(ray: Any, stack: contextlib.ExitStack, **more: Any) -> None:
    """On loopback, without a dashboard: whoever reaches a cluster's ports may run programs on it."""
    from ray._private import ray_constants

    os.environ.setdefault(ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, "0")  # the processes of Ray read it ...
    ray_constants.ENABLE_RAY_CLUSTER = False  # ... and this one has
    if not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # for this run; Ray would leave one in the user's home
        stack.callback(lambda: [os.environ.pop(name, None) for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")])
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True))
    own = {"include_dashboard": False, "object_store_memory": _STORE_BYTES, "_temp_dir": folder}
    own["_system_config"] = _PATIENT
    for last in (False, False, True):
        try:
            ray.init(**own, **_QUIET, **more)
            return
        except Exception as error:
            ray.shutdown()
            if last or "timed out" not in str(error):  # it gives its parts 20 s, which a busy machine exceeds
                raise


def _probe(address: str) -> None:
    """A dead address is told at once; Ray itself would try for half a minute."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdecimal():
        raise UserError(f"--cluster {address}: give host:port of its head node, or --cluster as the last word")
    try:
        socket.create_connection((host, int(port)), _PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no cluster answers at {address} ({error}); is its head node up?") from error


def map_images(plan: Plan, work: Work, workers: Workers, cpus: int, marks: Address) -> Iterator[pa.Table]:
    """The fates of a plan's images, a chunk at a time, in the order in which they are ready. `marks` is a folder for
    notes on what has been begun."""
    import ray.data

    parts = [{"part": part.full} for part in plan.parts]
    rows = ray.data.from_items(parts, override_num_blocks=len(parts))
    rows = rows.map_batches(_read, batch_size=1, batch_format="pyarrow", num_cpus=_READER_CPUS)
    arguments = {"work": work, "written": plan.written, "marks": marks, "version": __version__}
    for batch in _mapped(rows, _Worker, arguments, workers, cpus):
        for content in batch["fates"]:
            yield pa.ipc.open_stream(content.as_buffer()).read_all()


def each(
    work: Callable[[_Item], _Result], items: Sequence[_Item], workers: Workers, cpus: int
) -> Iterator[tuple[_Item, _Result]]:
    """work(item) of each item on the cluster, as they are ready; an error of the work comes here."""
    import ray.data

    rows = ray.data.from_items([{"index": index} for index in range(len(items))], override_num_blocks=len(items))
    for batch in _mapped(rows, _Caller, {"work": work, "items": items}, workers, cpus):
        for index, content in zip(batch["index"].to_pylist(), batch["result"].to_pylist(), strict=True):
            result = pickle.loads(content)  # written by our own workers
            if isinstance(result, UserError):
                raise result
            yield items[index], result


def _mapped(rows: Any, worker: type, arguments: dict[str, Any], workers: Workers, cpus: int) -> Iterator[pa.Table]:
    import ray
    from ray.data import ActorPoolStrategy

    most = max(workers.least, workers.most or cpus)
    first = max(workers.least, min(most, cpus))  # what there is room for at once
    rows = rows.map_batches(
        worker,
        fn_constructor_kwargs=arguments,
        batch_size=1,
        batch_format="pyarrow",
        compute=ActorPoolStrategy(
            min_size=workers.least, max_size=most, initial_size=first, max_tasks_in_flight_per_actor=2
        ),
        num_cpus=_CPUS,
        memory=workers.memory,
    )
    try:
        yield from rows.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())[-300:]
        raise UserError(f"the cluster gave up ({why}); the same command goes on where it stopped") from error


def _read(parts: pa.Table) -> pa.Table:
    return pa.concat_tables([read_part(part) for part in parts["part"].to_pylist()])


class _Caller:
    """An actor that calls a function."""

    def __init__(self, work: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.work, self.items = work, items

    def __call__(self, rows: pa.Table) -> pa.Table:
        indices = rows["index"].to_pylist()
        return pa.table({"index": indices, "result": [pickle.dumps(self._call(index)) for index in indices]})

    def _call(self, index: int) -> Any:
        try:
            return self.work(self.items[index])
        except UserError as error:
            return error


class _Worker:
    """An actor: chunks of images to their fates."""

    def __init__(self, work: Work, written: float, marks: Address, version: str) -> None:
        import ray

        self.work, self.written, self.marks = work, written, marks
        self.name = f"{ray.util.get_node_ip_address()}:{os.getpid()}"
        self.gate, self.cleaned = threading.Lock(), set[Path]()
        self.pool = ThreadPoolExecutor(_THREADS)
        self.broken: str | None = None
        try:
            if version != __version__:
                raise UserError(f"a worker has pixeldiff {__version__}, this machine {version}; install one everywhere")
            self.network = work.operation.open(1, 1)
            if hasattr(self.network, "memory_budget"):
                self.network.memory_budget = work.memory
        except UserError as error:  # told by the driver, in one line
            self.broken = f"{error} (worker {self.name})"

    def __call__(self, rows: pa.Table) -> pa.Table:
        contents = [self._chunk(row["chunk"], read_chunk(row)) for row in rows.to_pylist()]
        return pa.table({"fates": contents})

    def _chunk(self, chunk: str, jobs: list[Job]) -> bytes:
        """The fates of a chunk. Where its mark is there already, a worker has died over it: then one by one."""
        mark = self.marks / chunk
        if self.broken:
            fates: Iterable[Fate] = [Fate(str(source), status="stop", error=self.broken) for source, _ in jobs]
        else:
            again = addresses.written_at(mark) is not None
            self._clean({Path(target.path).parent for _, target in jobs if target and not target.scheme}, again)
            if not again:
                addresses.write(mark, b"")
            attempt = partial(self._alone, mark) if again else self._one
            fates = list((map if again else self.pool.map)(attempt, *zip(*jobs, strict=True)))
            addresses.remove(mark)
        table = pa.Table.from_pylist([asdict(one) for one in fates], schema=SCHEMA)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_table(table)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def _clean(self, folders: set[Path], again: bool) -> None:
        """What dead processes have left unfinished."""
        new = folders if again else folders - self.cleaned
        remove_stale_temp_files(new)
        self.cleaned |= new

    def _alone(self, mark: Address, source: Address, target: Address | None) -> Fate:
        """An image of a chunk over which a worker has died: this one's fault, if another dies, and another."""
        own = f"{mark.name}.{zlib.crc32(source.full.encode(errors='surrogateescape')):08x}"
        tries = [self.marks / f"{own}.{attempt}" for attempt in range(_DEATHS)]
        left = [one for one in tries if addresses.written_at(one) is None]
        if not left:
            why = f"{source} has ended {_DEATHS} workers; scale it down, or give workers more memory"
            return Fate(str(source), status="failed", error=why, worker=self.name)
        addresses.write(left[0], b"")
        fate = self._one(source, target)
        for one in tries:
            addresses.remove(one)
        return fate

    def _one(self, source: Address, target: Address | None) -> Fate:
        start = time.perf_counter()
        fate = partial(Fate, str(source), worker=self.name)
        try:
            if target is not None and (there := addresses.written_at(target)) is not None:
                ours = there > self.written  # by an attempt of this run
                if ours or not self.work.overwrite:
                    return fate(status="done" if ours else "skipped", result=str(target))
            content = addresses.read(source)
            with self.gate:
                output = self.work.operation.run(self.network, content, str(source))
            result = _write(output.files, target) if target else json.dumps(dict(output.record))
            return fate(size=len(content), result=result, seconds=round(time.perf_counter() - start, 4))
        except DiskFullError as error:
            return fate(status="stop", error=str(error))
        except UserError as error:
            return fate(status="failed", error=str(error))
        except MemoryError:
            return fate(status="failed", error=f"{source} needs more memory than there is; scale it down first")
        except Exception as error:  # of a library, or a mistake of ours: other images still get their results
            return fate(status="failed", error=f"{source}: {type(error).__name__}: {error}")


def _write(files: Mapping[str, bytes], target: Address) -> str:
    """Files under their names; the one that stands for all is the last, so that all are there when it is."""
    stem, dot, suffix = target.path.rpartition(".")
    for infix, content in sorted(files.items(), reverse=True):  # "" is the last
        addresses.write(target.at(f"{stem}.{infix}{dot}{suffix}") if infix else target, content)
    return str(target)
