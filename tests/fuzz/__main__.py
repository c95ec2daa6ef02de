"""Fuzzing as a program: damaged files to every reader, each case in a child with limits of memory and time.

    python -m tests.fuzz --count 100000 --seed 0              # a table by format; exit code 1 if anything is bad
    python -m tests.fuzz --seed 0 --only mat-123              # one case again, with its traceback

A case is its seed, format and number, whatever else runs. Verdicts: ok (read), refused (UserError); and bad ones:
foreign (any other exception), memory, hang, crash (a signal). Files of bad cases stay in --keep.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import NamedTuple

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import torch

from pixeldiff.errors import UserError
from tests.fuzz.corpus import Format, formats
from tests.fuzz.mutate import damage

GOOD = ("refused", "ok")
BAD = ("foreign", "memory", "hang", "crash")
MOST_BYTES = 2 * 10**9
CPU_SECONDS, WALL_SECONDS = 10, 120
BATCH = 200  # cases of one child, so that nothing that leaks adds up


class Case(NamedTuple):
    seed: int
    format: str
    number: int

    def content(self) -> bytes:
        rng = Random(f"{self.seed} {self.format} {self.number}")
        entry = formats()[self.format]
        return damage(rng.choice(entry.seeds), rng, entry.aimed)


class Result(NamedTuple):
    case: Case
    verdict: str
    detail: str
    peak: int  # bytes of memory


def set_timers(cpu: float, wall: float) -> None:
    """Seconds until this process dies of a signal; 0 is never."""
    signal.setitimer(signal.ITIMER_PROF, cpu)
    signal.setitimer(signal.ITIMER_REAL, wall)


def judge(path: Path, entry: Format, begin: Callable[[], None] = lambda: None) -> tuple[str, str]:
    """The worst that the format's readers make of a file, `begin` before each; else ok if one of them can read it."""
    verdicts = []
    for reader in entry.readers:
        begin()
        try:
            reader(path)
            verdicts.append(("ok", ""))
        except UserError as error:
            cause = error.__cause__ or error.__context__
            verdicts.append(("memory" if isinstance(cause, MemoryError) else "refused", str(error)))
        except MemoryError as error:
            verdicts.append(("memory", repr(error)))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            verdicts.append(("foreign", f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"[:300]))
    return max(verdicts, key=lambda verdict: (*GOOD, *BAD).index(verdict[0]))


def run_here(cases: Iterable[Case], folder: Path, report: int) -> None:
    """Cases one after another in this child; it dies of a timer's signal where one hangs."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    faulthandler.disable()
    warnings.simplefilter("ignore")
    allowed = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + 2 * MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for case in cases:
        entry = formats()[case.format]
        own = folder / "case"
        own.mkdir()
        for name, content in {**entry.companions, entry.file: case.content()}.items():
            (own / name).write_bytes(content)
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
        verdict, detail = judge(own / entry.file, entry, lambda: set_timers(CPU_SECONDS, WALL_SECONDS))
        set_timers(0, 0)
        status = Path("/proc/self/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
        if peak > MOST_BYTES:
            verdict, detail = "memory", f"{peak} bytes"
        shutil.rmtree(own)
        os.write(report, (json.dumps([verdict, detail, peak]) + "\n").encode())
        if peak > MOST_BYTES // 2:  # what stays of it is not the next one's
            return


def run_batch(cases: list[Case]) -> list[Result]:
    """The cases in a child, and in a new one after each that ended it."""
    results: list[Result] = []
    while rest := cases[len(results) :]:
        reading, writing = os.pipe()
        with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
            if not (child := os.fork()):
                try:
                    run_here(rest, Path(folder), writing)
                    os._exit(0)
                finally:
                    os._exit(1)
            os.close(writing)
            with open(reading, "rb") as lines:
                for case, line in zip(rest, lines.read().splitlines(), strict=False):
                    results.append(Result(case, *json.loads(line)))
            ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended and len(results) < len(cases):
            name = signal.Signals(-ended).name if ended < 0 else f"exit code {ended}"
            hang = ended in (-signal.SIGPROF, -signal.SIGALRM)
            results.append(Result(cases[len(results)], "hang" if hang else "crash", name, 0))
    return results


def plan(seed: int, count: int, names: Iterable[str]) -> list[list[Case]]:
    """Cases by the formats' shares, in batches."""
    chosen = {name: formats()[name].share for name in names}
    total = sum(chosen.values())
    cases = [Case(seed, name, k) for name, share in chosen.items() for k in range(-(-count * share // total))]
    Random(seed).shuffle(cases)
    return [cases[start : min(start + BATCH, count)] for start in range(0, count, BATCH)]


def run(seed: int, count: int, names: Iterable[str], jobs: int, keep: Path | None = None) -> list[Result]:
    torch.set_num_threads(1)  # a fork has no pool
    formats()
    results: list[Result] = []
    with get_context("fork").Pool(jobs) as pool:
        for batch in pool.imap_unordered(run_batch, plan(seed, count, names)):
            results += batch
            for bad in (result for result in batch if result.verdict in BAD):
                print(f"{bad.case.format}-{bad.case.number} {bad.verdict}: {bad.detail}", flush=True)
                if keep:
                    keep.mkdir(parents=True, exist_ok=True)
                    name = f"{seed}-{bad.case.format}-{bad.case.number}-{formats()[bad.case.format].file}"
                    (keep / name).write_bytes(bad.case.content())
    return results


def table(results: list[Result]) -> str:
    counts: dict[str, Counter[str]] = {}
    for result in results:
        counts.setdefault(result.case.format, Counter())[result.verdict] += 1
    counts = dict(sorted(counts.items())) | {"all": sum(counts.values(), Counter())}
    rows = [f"{'format':12}" + "".join(f"{word:>9}" for word in (*GOOD, *BAD))]
    rows += [f"{name:12}" + "".join(f"{own[word]:9}" for word in (*GOOD, *BAD)) for name, own in counts.items()]
    highest = max(results, key=lambda result: result.peak)
    where = f"{highest.case.format}-{highest.case.number}"
    return "\n".join((*rows, f"highest memory {highest.peak / 1e6:.0f} MB ({where})"))


def again(seed: int, name: str) -> None:
    """One case in this process, its traceback shown."""
    kind, _, number = name.rpartition("-")
    entry, case = formats()[kind], Case(seed, kind, int(number))
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {**entry.companions, entry.file: case.content()}.items():
            (Path(folder) / file).write_bytes(content)
        for reader in entry.readers:
            try:
                print("ok", reader(Path(folder) / entry.file) is not None)
            except Exception:
                traceback.print_exc()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Damaged files to every reader.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--formats", nargs="+", choices=list(formats()), default=list(formats()))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--keep", default="fuzz-findings", help="folder of the files of bad cases; '' keeps none")
    parser.add_argument("--only", metavar="FORMAT-NUMBER")
    given = parser.parse_args()
    if given.only:
        again(given.seed, given.only)
        return 0
    start = time.perf_counter()
    results = run(given.seed, given.count, given.formats, given.jobs, Path(given.keep) if given.keep else None)
    print(table(results))
    print(f"{len(results) / (time.perf_counter() - start):.0f} cases per second")
    return int(any(result.verdict in BAD for result in results))


if __name__ == "__main__":
    sys.exit(main())
