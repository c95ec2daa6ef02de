"""The light tests with several Pythons, dependencies and compilers; a table of what passed.

    make matrix PYTHONS="python3.10 python3.11 python3.12 python3.13"

Every Python is built for with g++ and tested with the newest dependencies and with the lowest that pyproject.toml
allows; the first and the last one also with clang++. A wheel of the stable ABI is built once and serves all later ones.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build/matrix"
TESTS = (
    "tests/native",
    "tests/metrics",
    "tests/test_detector.py",
    "tests/inference/test_packed.py",
    "tests/test_image.py",
)
VERSIONS = (
    "from importlib.metadata import version; print(*(f'{n} {version(n)}' for n in ('numpy', 'pillow')), sep=', ')"
)
PAGE = """# What was tried

Wheels of commit {commit} on {system}, built and tested by

    make matrix PYTHONS="{pythons}"

The tests are those of the light rooms ({tests}), once with the newest versions of the dependencies, once with the
lowest that are allowed. Skipped are those that compare with what only extras install.

| Python | wheel | compiler | dependencies | result |
|---|---|---|---|---|
{rows}
"""


def run(*words: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": "", **env}, capture_output=True, text=True)


def version(python: str) -> tuple[int, int]:
    done = run(python, "-c", "import sys; print(*sys.version_info[:2])")
    if done.returncode:
        sys.exit(f"matrix: {python} does not run; leave it out of PYTHONS or install it")
    major, minor = done.stdout.split()
    return int(major), int(minor)


def build(python: str, compiler: str) -> Path | str:
    """The wheel, or the last line that the compiler said."""
    stable = version(python) >= (3, 12)
    folder = WORK / f"{compiler}-{'stable' if stable else '.'.join(map(str, version(python)))}"
    if not list(folder.glob("*.whl")):
        done = run(python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT, CXX=compiler)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return next(folder.glob("*.whl"))


def lowest() -> list[str]:
    """The dependencies of the plain install, each pinned to its lower bound."""
    block = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M)
    assert block
    return [line.replace(">=", "==", 1) for line in re.findall(r'"(.*)",', block[1])]


def try_out(python: str, wheel: Path, pins: list[str], place: Path) -> tuple[str, str]:
    """What was installed, and what pytest says in its last line, in an environment of this wheel alone."""
    run(python, "-m", "venv", "--clear", place)
    inside = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = (inside, "-m", "pip", "install", "-q", "--only-binary", ":all:")
    done = run(*install, wheel, *pins, "pytest", "pytest-timeout", "pytest-xdist")
    if done.returncode:
        absent = re.search(r"No matching distribution found for (\S+)", done.stderr)
        why = f"no wheel of {absent[1]} for this Python" if absent else done.stderr.strip().splitlines()[-1]
        return "", f"not installed: {why}"
    had = run(inside, "-c", VERSIONS).stdout.strip()
    done = run(inside, "-m", "pytest", "-n", "2", *TESTS, PIXELDIFF_DATA="")
    return had, re.sub(r" in .*", "", done.stdout.strip().splitlines()[-1])


def measure(pythons: list[str], compilers: list[str]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for python in pythons:
        name = ".".join(map(str, version(python)))
        for compiler in compilers:
            if compiler != compilers[0] and python not in (pythons[0], pythons[-1]):
                continue
            wheel = build(python, compiler)
            for words, pins in (("newest", []), ("lowest", lowest())):
                place = WORK / f"venv-{name}-{words}"
                tag, had, said = "", "", f"not built: {wheel}"
                if isinstance(wheel, Path):
                    tag = "-".join(wheel.stem.split("-")[2:4])
                    had, said = try_out(python, wheel, pins, place)
                rows.append((name, tag, compiler, f"{words}: {had}" if had else words, said))
                print(*rows[-1], sep=" | ", flush=True)
                shutil.rmtree(place, ignore_errors=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="The light tests with several Pythons, dependencies and compilers.")
    parser.add_argument("--python", action="append", help="again for more, oldest first")
    parser.add_argument(
        "--compiler", action="append", help="again for more; all but the first for the outer Pythons only"
    )
    parser.add_argument("--page", type=Path, help="the Markdown page to write")
    options = parser.parse_args()
    pythons = options.python or [sys.executable]
    compilers = [one for one in options.compiler or ["g++", "clang++"] if shutil.which(one)]
    shutil.rmtree(WORK, ignore_errors=True)
    rows = measure(pythons, compilers)
    if options.page:
        system = f"{os.uname().sysname} {os.uname().machine}" if hasattr(os, "uname") else sys.platform
        commit = run("git", "describe", "--always").stdout.strip()
        names = " ".join("python" + ".".join(map(str, version(python))) for python in pythons)
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        options.page.write_text(
            PAGE.format(commit=commit, system=system, pythons=names, tests=", ".join(TESTS), rows=table)
        )
    bad = [row for row in rows if "passed" not in row[-1] or re.search("failed|error", row[-1])]
    sys.exit(f"matrix: {len(bad)} of {len(rows)} combinations do not pass; see above" if bad else 0)


if __name__ == "__main__":
    main()
