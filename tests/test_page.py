"""The page in a real Chromium, with a server and without: a picture dropped on it gives the detector's own map.

Needs chromium (Debian's package), node and `make web` once; skipped otherwise.
"""

import functools
import os
import shutil
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pixeldiff import EdgeDetector

WEB = Path(__file__).parents[1] / "web"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="web/node_modules is missing; run make web once"),
]


@pytest.fixture
def picture(tmp_path, rng):
    image = Image.fromarray(rng.integers(90, 130, (121, 163, 3), dtype=np.uint8))
    ImageDraw.Draw(image).ellipse((30, 20, 120, 100), fill=(220, 40, 30))
    image.save(tmp_path / "picture.png")
    return tmp_path / "picture.png"


@pytest.fixture
def server(edge_onnx):
    """The address of `pixeldiff serve`."""
    command = [sys.executable, "-m", "pixeldiff", "serve", "--port", "0", "--weights", str(edge_onnx)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield child.stdout.readline().strip() + "/"
    child.terminate()
    child.wait(30)


@pytest.fixture
def static(edge_onnx, tmp_path):
    """The address of a plain file server with the built page."""
    site = tmp_path / "site"
    environment = os.environ | {"PIXELDIFF_WEIGHTS": str(edge_onnx.parent), "PIXELDIFF_WEB_OUT": str(site)}
    subprocess.run(["npm", "run", "--silent", "build"], cwd=WEB, env=environment, check=True, capture_output=True)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{files.server_address[1]}/"
        files.shutdown()


@pytest.mark.parametrize("mode", ["server", "static"])
def test_a_dropped_picture_gives_the_same_map(mode, request, picture, edge_onnx, tmp_path):
    address = request.getfixturevalue(mode)
    script = ["node", str(WEB / "test" / "drop.mjs"), CHROMIUM, address, str(picture), str(tmp_path / "map")]
    run = subprocess.run(script, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    content = (tmp_path / "map").read_bytes()
    width, height = np.frombuffer(content[:8], "<u4")
    found = np.frombuffer(content[8:], np.uint8).reshape(height, width)
    expected = 255 * EdgeDetector(edge_onnx)(picture)
    assert np.abs(found - expected).max() <= 2
