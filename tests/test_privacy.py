"""Never a byte leaves this machine, or is left behind on it, unasked: seen from outside, in a fresh home."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import pixeldiff
from tests.extras import optional

httpx = optional("httpx")


ROOT = Path(__file__).parents[1]
QUIET_SECONDS = 12  # onnxruntime 1.31 looks its maker up some 9 s after it was imported

PYTHON = """
import sys, time
from pixeldiff import EdgeDetector, Classifier
from pixeldiff.compat.controlnet import PidiNetDetector
EdgeDetector("tiny")("photo.png")
Classifier("bipdc-cifar100")("photo.png")
PidiNetDetector.from_pretrained("tiny")("photo.png")
time.sleep(float(sys.argv[1]))
"""
DETECT = ("-m", "pixeldiff", "detect", "photo.png", "-o", "edges.png")
CLASSIFY = ("-m", "pixeldiff", "classify", "photo.png", "--model", "bipdc-cifar100")
SERVE = ("-m", "pixeldiff", "serve", "--port", "0")


class Guest:
    """A user of this machine with an empty home and temporary folder, and one image to work on."""

    def __init__(self, folder: Path) -> None:
        self.home, self.temporary, self.work = (folder / name for name in ("home", "tmp", "work"))
        for one in (self.home, self.temporary, self.work):
            one.mkdir()
        pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(self.work / "photo.png")
        # Nothing else of our own environment: CI and its like keep onnxruntime quiet by themselves.
        self.environment = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PYTHONUNBUFFERED": "1"}
        self.environment |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(pixeldiff.__file__).parents[1])}

    def start(self, *words: str, traced: Path | None = None) -> subprocess.Popen[str]:
        # -D: the signals we send reach the program, not strace.
        tracer = ("strace", "-D", "-f", "-e", "trace=connect,sendto,sendmsg,sendmmsg", "-o", traced) if traced else ()
        command = [*tracer, sys.executable, *words]
        return subprocess.Popen(command, cwd=self.work, env=self.environment, stdout=subprocess.PIPE, text=True)

    def left(self) -> list[str]:
        """What lies about that the user neither brought nor asked for."""
        folders = (self.home, self.temporary, self.work)
        found = {str(path.relative_to(folder.parent)) for folder in folders for path in folder.rglob("*")}
        return sorted(found - {"work/photo.png", "work/edges.png"})


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(tmp_path)


def ends_well(child: subprocess.Popen[str]) -> None:
    child.communicate(timeout=120)
    assert child.returncode == 0


def use_and_stop(server: subprocess.Popen[str], image: Path, seconds: float = 0) -> None:
    """One image through the server's API, then a while of silence, then Ctrl-C."""
    try:
        address = server.stdout.readline().strip()
        # The address is told a moment before it answers.
        with httpx.Client(transport=httpx.HTTPTransport(retries=6), trust_env=False, timeout=60) as client:
            assert client.post(f"{address}/api/edges", content=image.read_bytes()).status_code == 200
        time.sleep(seconds)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)


@pytest.mark.parametrize("words", [DETECT, CLASSIFY, ("-c", PYTHON, "0")], ids=["detect", "classify", "python"])
def test_nothing_is_left_behind(guest, words):
    ends_well(guest.start(*words))
    assert guest.left() == []


def test_the_server_leaves_nothing_behind(guest):
    use_and_stop(guest.start(*SERVE), guest.work / "photo.png")
    assert guest.left() == []


def test_nobody_is_called(guest, tmp_path):
    """No socket of the internet is used to send, not even to ask for an address; the server only answers."""
    if not shutil.which("strace") or subprocess.run(["strace", "-o", os.devnull, "true"]).returncode:
        pytest.skip("strace is not installed or may not trace here")
    traces = {name: tmp_path / f"{name}.trace" for name in ("detect", "classify", "python", "serve")}
    server = guest.start(*SERVE, traced=traces["serve"])
    python = guest.start("-c", PYTHON, str(QUIET_SECONDS), traced=traces["python"])
    use_and_stop(server, guest.work / "photo.png", QUIET_SECONDS)
    ends_well(python)
    ends_well(guest.start(*DETECT, traced=traces["detect"]))
    ends_well(guest.start(*CLASSIFY, traced=traces["classify"]))
    for name, trace in traces.items():
        lines = trace.read_text().splitlines()
        assert lines, name
        assert not [line for line in lines if "AF_INET" in line], name
    assert guest.left() == []


def test_onnxruntime_is_imported_in_one_place():
    """Where its telemetry is switched off before; a second place could come first."""
    folders = ("src", "tests", "tools", "benchmarks", "comfyui")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")] + [ROOT / "hubconf.py"]
    importing = re.compile(r"^\s*(import|from) onnxruntime\b", re.MULTILINE)
    assert [path.name for path in files if importing.search(path.read_text())] == ["onnx_session.py"]
