"""The wheel for Linux on ARM, made on another machine and run in an emulator.

    make dist PYTHONS=python3.12
    make dist-aarch64 PYTHON=python3.12

The source file in dist/ goes through a cross compiler. The stable ABI has the same headers everywhere, so that a Python
of this machine (3.12 or newer) will do. The wheel gets its tag, is looked at by the checkers of `make dist`, and
qemu-aarch64 runs it with Debian's Python: the map of an image is that of `make dist`, to a gray level, and the tests
of the kernels pass.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

from dist import DIST, ROOT, check, run, tool
from dist import WORK as MADE

WORK = ROOT / "build/aarch64"
COMPILER = "aarch64-linux-gnu-g++"
NEEDED = (COMPILER, "qemu-aarch64", "apt-get", "dpkg")
DEBIAN, PYTHON = "trixie", "3.13"  # a release of Debian and its Python
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = (
    f"python{PYTHON}-minimal libpython{PYTHON}-minimal libpython{PYTHON}-stdlib libc6 libstdc++6 libgcc-s1 zlib1g "
    "libexpat1 libffi8 libbz2-1.0 liblzma5"
).split()
IMAGE = "coffee"
COMPARE = """
import sys
import numpy as np
from PIL import Image
first, second = (np.asarray(Image.open(path)).astype(int) for path in sys.argv[1:])
most = np.abs(first - second).max()
print(f"aarch64 and this machine differ by at most {most} of 255, in {np.sum(first != second)} of {first.size} pixels")
sys.exit(int(most > 1))
"""


def build_wheel(source: Path, python: str) -> Path:
    """The wheel, with the tag of the oldest Linux it runs on."""
    run(python, "-m", "venv", WORK / "tools")
    inside = WORK / "tools/bin/python"
    run(inside, "-c", "import sys; sys.exit(sys.version_info < (3, 12) and 'PYTHON has to be 3.12 or newer')")
    run(inside, "-m", "pip", "install", "-q", "build", "scikit-build-core", "nanobind")
    cross = {
        "_PYTHON_HOST_PLATFORM": "linux-aarch64",
        "CMAKE_ARGS": "-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "CXX": COMPILER,
        "PIXELDIFF_RELEASE": "1",
    }
    run(inside, "-m", "build", "--wheel", "--no-isolation", "--outdir", WORK / "plain", source, env=cross)
    (plain,) = (WORK / "plain").glob("*.whl")
    for earlier in DIST.glob("*_aarch64.whl"):
        earlier.unlink()
    tool("auditwheel", "repair", "-w", DIST, plain)
    (wheel,) = DIST.glob("*_aarch64.whl")
    return wheel


def mirror() -> str:
    """Where this machine has Debian's packages from."""
    asked = (
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    )
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    if not found:
        sys.exit("aarch64: apt-get knows no packages of Debian here; run apt-get update first")
    return found[0]


def unpack_python() -> Path:
    """Debian's Python for ARM in a folder, from which the emulator takes its libraries."""
    apt, system = WORK / "apt", WORK / "system"
    for folder in (apt / "lists/partial", apt / "cache/archives/partial", apt / "debs", system / "usr/lib"):
        folder.mkdir(parents=True)
    (apt / "status").touch()
    (apt / "sources.list").write_text(f"deb [signed-by={KEYS}] {mirror()} {DEBIAN} main\n")
    (apt / "apt.conf").write_text(  # this machine's own lists stay as they are
        textwrap.dedent(f"""\
            APT::Architecture "arm64";
            APT::Architectures "arm64";
            APT::Sandbox::User "";
            Dir::Etc::SourceList "{apt}/sources.list";
            Dir::Etc::SourceParts "-";
            Dir::State::Lists "{apt}/lists";
            Dir::State::Status "{apt}/status";
            Dir::Cache "{apt}/cache";
        """)
    )
    for words in (("update",), ("download", *PACKAGES)):
        run("apt-get", "-q", *words, cwd=apt / "debs", env={"APT_CONFIG": str(apt / "apt.conf")})
    for package in (apt / "debs").iterdir():
        run("dpkg", "-x", package, system)
    (system / "lib").symlink_to("usr/lib")
    return system


def use(wheel: Path, source: Path, system: Path, expected: Path) -> None:
    """The wheel and what it needs, from the index; an image, compared with the map `expected`; the kernels' tests."""
    newest = re.search(r"manylinux_2_(\d+)_aarch64", wheel.name)
    assert newest
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in range(17, int(newest[1]) + 1)]
    site = WORK / "site"
    install = (sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary", ":all:", "--target", site)
    run(*install, "--python-version", PYTHON, *platforms, wheel, "pytest", "pytest-timeout")
    emulated = ("qemu-aarch64", "-L", system, system / f"usr/bin/python{PYTHON}", "-m")
    alone = {"PYTHONPATH": str(site), "PIXELDIFF_DATA": ""}
    run(*emulated, "pixeldiff", "detect", source / f"docs/images/{IMAGE}.jpg", "-o", WORK / "edges", env=alone)
    run(expected.parents[1] / "bin/python", "-c", COMPARE, WORK / f"edges/{IMAGE}.edges.png", expected)
    run(*emulated, "pytest", "-o", "timeout=1800", "tests/native", cwd=source, env=alone)


def main() -> None:
    parser = argparse.ArgumentParser(description="The wheel for Linux on ARM, cross-built and emulated.")
    parser.add_argument("--python", default=sys.executable, help="a Python of this machine, 3.12 or newer")
    options = parser.parse_args()
    if missing := [name for name in NEEDED if not shutil.which(name)]:
        sys.exit(f"aarch64: needs {', '.join(missing)}; Debian: apt install g++-aarch64-linux-gnu qemu-user")
    sources, maps = list(DIST.glob("*.tar.gz")), sorted(MADE.glob(f"use-*/edges/{IMAGE}.edges.png"))
    if len(sources) != 1 or not maps:
        sys.exit("aarch64: the source file and a map to compare with come from `make dist`; run that first")
    shutil.rmtree(WORK, ignore_errors=True)
    with tarfile.open(sources[0]) as archive:
        archive.extractall(WORK, filter="data")
    source = WORK / sources[0].name.removesuffix(".tar.gz")
    wheel = build_wheel(source, options.python)
    check(wheel)
    use(wheel, source, unpack_python(), maps[-1])
    tool("twine", "check", "--strict", wheel)


if __name__ == "__main__":
    main()
