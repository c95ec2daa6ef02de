"""This machine: its cores and memory, and what a figure was measured on."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_budget() -> int:
    """For networks: a gigabyte, an eighth of a larger machine's memory, or half of a smaller one's."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX system
        return 10**9
    return min(max(10**9, memory // 8), memory // 2)


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A script in a new process that imports from where this one does: `-c` and `-m` alone would look into the current
    folder first, where any torch.py among somebody's images would be run."""
    import subprocess

    places = [place for place in sys.path if place]
    command = [sys.executable, "-c", f"import sys\nsys.path[:] = {places!r}\n{script}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commit(file: Path) -> str:
    """The commit of the clone that a file belongs to; "-dirty" if the clone has changes, empty outside of one."""
    import subprocess  # slow, and of no use to those who ask for cores

    describe = ["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"]
    try:  # the first command fails in an environment that lies inside somebody else's clone
        for command in (["ls-files", "--error-unmatch", file.name], describe):
            result = subprocess.run(["git", *command], cwd=file.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return result.stdout.strip()


def describe(threads: int, file: Path | None = None) -> dict[str, Any]:
    """What a figure was measured on; for a script of a clone also the commit, and how busy the machine was."""
    where = {"commit": commit(file), "load": round(os.getloadavg()[0], 2)} if file else {}
    return {
        **where,
        "cpu": _cpu_name(),
        "cores": cores(),
        "threads": threads,
        "system": platform.platform(),
        "python": platform.python_version(),
        **_versions("pixeldiff", "numpy", "onnxruntime"),
    }


def _versions(*names: str) -> dict[str, str]:
    """Of those that are installed."""
    import importlib.metadata

    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
