"""The page: its arithmetic in node, and images dropped on it in Chromium, with a server and without.

Needs node, for the engine and the browser `make web` once (npm, emscripten), and chromium; skipped otherwise.
"""

import contextlib
import functools
import json
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

from pixeldiff import EdgeDetector, _native, image, machine, weights
from pixeldiff.edgemap import to_8_bit
from pixeldiff.inference.edge_file import read_edges
from pixeldiff.inference.edges import EdgeNetwork, detect_edges
from pixeldiff.inference.sizes import input_size, to_image_size
from pixeldiff.render.drawing import Drawing, render

WEB = Path(__file__).parents[2] / "web"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BUILT = (WEB / "engine.wasm", WEB / "threads/engine.js", WEB / "node_modules")
MISSING = [
    reason
    for reason, there in {
        "node is not installed": shutil.which("node"),
        "the page is not built; run make web, it needs emscripten and npm": all(path.exists() for path in BUILT),
        "chromium is not installed": CHROMIUM,
    }.items()
    if not there
]
if os.environ.get("PIXELDIFF_PAGE_TESTS") == "required":  # as CI sets it
    assert not MISSING, f"PIXELDIFF_PAGE_TESTS=required, but {'; '.join(MISSING)}"


def needs(*what):
    """Skip a test, or a file, where one of these is missing."""
    reasons = [reason for reason in MISSING if reason.startswith(what)]
    return pytest.mark.skipif(bool(reasons), reason="; ".join(reasons))


pytestmark = needs("node")
with_engine = needs("the page")
in_chromium = needs("the page", "chromium")


def node(script, *arguments):
    command = ["node", str(WEB / "test" / script), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    return run.stdout


def page_maps(what, array, dtype, tmp_path, *sizes, script="maps.mjs"):
    """An array after a function of the page's maps.js, or of its engine with script="wasm.mjs"."""
    array.tofile(tmp_path / "in")
    node(script, what, tmp_path / "in", tmp_path / "out", *array.shape[:2], *sizes)
    return np.fromfile(tmp_path / "out", dtype)


def soft_map(rng, height, width):
    """Make blurred noise with crests, plateaus and zeros."""
    coarse = rng.random((height // 5 + 2, width // 5 + 2), dtype=np.float32)
    return np.clip(1.6 * image.resize(coarse, (height, width)) - 0.4, 0, 1)


SIZES = [(1, 1), (1, 7), (7, 1), (3, 2), (33, 41), (121, 163)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_page_thins_as_the_command_does(height, width, rng, tmp_path):
    mask = (soft_map(rng, height, width) >= 0.4).astype(np.uint8)
    thinned = page_maps("thin", mask, np.uint8, tmp_path).reshape(height, width)
    assert np.array_equal(thinned, _native.thin(mask))


@with_engine
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_the_engine_of_the_page_suppresses_and_thins_as_the_command_does(height, width, rng, tmp_path):
    soft = soft_map(rng, height, width)
    crests = page_maps("nms", soft, np.float32, tmp_path, script="wasm.mjs").reshape(height, width)
    np.testing.assert_array_equal(crests, _native.nms(soft, 1))
    mask = (soft >= 0.4).astype(np.uint8)
    thinned = page_maps("thin", mask, np.uint8, tmp_path, script="wasm.mjs").reshape(height, width)
    np.testing.assert_array_equal(thinned, _native.thin(mask))


@with_engine
@pytest.mark.parametrize("size", [(121, 163), (300, 401), (512, 700)])
def test_thin_lines_of_downscaled_images_are_those_of_the_command(size, rng, tmp_path):
    soft = soft_map(rng, 121, 163)
    lines = page_maps("thinLines", soft, np.float32, tmp_path, *size, script="wasm.mjs").reshape(size)
    expected = to_image_size(soft[None], size, nms=True)[0]
    assert expected.any()
    assert np.mean(np.abs(lines - expected) > 1e-6) <= 1e-3


@pytest.mark.parametrize("size", [(1, 1), (16, 30), (50, 37), (120, 163)])
def test_sizes_of_the_page_are_those_of_the_command(size, rng, tmp_path):
    photo = rng.integers(0, 256, (121, 163, 4), dtype=np.uint8)
    small = page_maps("reduce", photo, np.uint8, tmp_path, *size).reshape(*size, 4)
    assert np.array_equal(small[..., :3], image.reduce(np.ascontiguousarray(photo[..., :3]), size))
    soft = rng.random((50, 37), dtype=np.float32)
    large = page_maps("resize", soft, np.float32, tmp_path, *size).reshape(size)
    np.testing.assert_allclose(large, image.resize(soft, size), rtol=0, atol=1e-6)


def test_the_page_rounds_by_the_same_rule(rng, tmp_path):
    soft = np.concatenate([rng.random(9745), (np.arange(255) + 0.5) / 255]).astype(np.float32).reshape(100, 100)
    assert np.array_equal(page_maps("to8Bit", soft, np.uint8, tmp_path).reshape(soft.shape), to_8_bit(soft))


def test_the_page_downscales_by_the_same_rule(rng):
    asked = [(int(h), int(w), size) for h, w in rng.integers(1, 6000, (60, 2)) for size in ("none", 32, 800)]
    asked += [(7, side, 800) for side in range(790, 1010)]
    seen = json.loads(node("maps.mjs", "inputSize", json.dumps(asked)))
    assert [tuple(one) for one in seen] == [
        input_size((h, w), None if size == "none" else size) for h, w, size in asked
    ]


@pytest.mark.parametrize("name", [*weights.shipped("edges"), "small-random"])
def test_the_page_folds_to_the_same_weights(name, edge_weights, tmp_path):
    path = edge_weights if name == "small-random" else weights.runtime_file(name)
    node("wasm.mjs", "weights", path, tmp_path / "out")
    assert np.array_equal(np.fromfile(tmp_path / "out", np.float32), read_edges(Path(path)).weights)


def test_the_page_names_what_is_wrong_with_a_network(edge_weights, tmp_path):
    content = edge_weights.read_bytes()
    wrong = {
        "cut short": content[:5000],
        "does not list its tensors": content.replace(b'\\"engine\\"', b'\\"enginX\\"'),
        "no tensor stem.weight": content.replace(b'"stem.weight":', b'"stem.veight":'),
        "no folding matrix": content.replace(b"[[1, 0, 0,", b"[[1,   0, "),
        "neither 3x3 nor radial": content.replace(b"[0, -1, 0, 0, 0, 0, 0, 0, 0]", b"[0, -2, 0, 0, 0, 0, 0, 0, 0]"),
        "not finite": content[:-4] + b"\0\0\xc0\x7f",
        "header": b"\2" + bytes(7) + b"{}",
        "cut": b"",
    }
    for reason, damaged in wrong.items():
        (tmp_path / "wrong").write_bytes(damaged)
        command = ["node", WEB / "test" / "wasm.mjs", "weights", tmp_path / "wrong", tmp_path / "out"]
        run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60)
        assert run.returncode == 1, reason
        assert run.stderr.startswith("its file is damaged")
        assert reason in run.stderr
        assert run.stderr.count("\n") == 1


@with_engine
@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 40), (16, 16), (33, 41), (121, 163)])
def test_the_engine_of_the_page_gives_the_same_map(height, width, edge_weights, rng, tmp_path):
    image = rng.integers(0, 256, (height, width, 4), dtype=np.uint8)
    image.tofile(tmp_path / "in")
    kernels = node("wasm.mjs", "edges", edge_weights, tmp_path / "in", tmp_path / "out", height, width)
    assert kernels.strip() == "wasm"
    found = np.fromfile(tmp_path / "out", np.float32).reshape(height, width)
    expected = EdgeDetector(edge_weights)(np.ascontiguousarray(image[..., :3]))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)


@pytest.fixture
def photo(tmp_path, rng):
    drawing = Image.fromarray(rng.integers(90, 130, (445, 600, 3), dtype=np.uint8))
    ImageDraw.Draw(drawing).ellipse((110, 75, 440, 370), fill=(220, 40, 30))
    drawing.save(tmp_path / "image.png")
    return tmp_path / "image.png"


@pytest.fixture
def server(edge_weights):
    """Run `pixeldiff serve` and yield its address."""
    pytest.importorskip("fastapi")
    command = [sys.executable, "-m", "pixeldiff", "serve", "--port", "0", "--model", str(edge_weights)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield child.stdout.readline().strip() + "/"
    child.terminate()
    child.wait(30)


class Files(SimpleHTTPRequestHandler):
    """Serve files with further headers, and record which were requested."""

    def __init__(self, *given, headers, asked, **named):
        self.further, self.asked = headers, asked
        super().__init__(*given, **named)

    def end_headers(self):
        for name, value in self.further.items():
            self.send_header(name, value)
        super().end_headers()

    def log_request(self, *_):
        self.asked.append(self.path)


@pytest.fixture
def site(edge_weights, tmp_path):
    """Build the page into a folder."""
    out = tmp_path / "site"
    environment = os.environ | {"PIXELDIFF_WEIGHTS": str(edge_weights.parent), "PIXELDIFF_WEB_OUT": str(out)}
    subprocess.run(["npm", "run", "--silent", "build"], cwd=WEB, env=environment, check=True, capture_output=True)
    return out


@contextlib.contextmanager
def served(site, **headers):
    """Serve a folder; yield the address and the paths that were requested."""
    asked: list[str] = []
    handler = functools.partial(Files, directory=site, headers=headers, asked=asked)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as files:
        threading.Thread(target=files.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{files.server_address[1]}/", asked
        files.shutdown()


ISOLATED = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


@pytest.fixture
def static(site):
    with served(site) as (address, _):
        yield address


@pytest.fixture
def isolated(site):
    with served(site, **ISOLATED) as (address, _):
        yield address


def shown(address, photo, tmp_path, **settings):
    """Return the gray levels that the page shows for an image, and its message."""
    message = node("drop.mjs", CHROMIUM, address, photo, tmp_path / "map", json.dumps(settings))
    content = (tmp_path / "map").read_bytes()
    width, height = np.frombuffer(content[:8], "<u4")
    return np.frombuffer(content[8:], np.uint8).reshape(height, width), message


@in_chromium
@pytest.mark.parametrize("mode", ["server", "static", "isolated"])
def test_a_dropped_image_gives_the_same_map(mode, request, photo, edge_weights, tmp_path):
    address = request.getfixturevalue(mode)
    detector = EdgeDetector(edge_weights)
    found, _ = shown(address, photo, tmp_path)
    assert np.abs(found - to_8_bit(detector(photo)).astype(int)).max() <= 1
    if mode == "server":
        assert (tmp_path / "map.png").read_bytes() == render(detect_edges(EdgeNetwork(edge_weights), photo), Drawing())
    else:
        assert np.array_equal(Image.open(tmp_path / "map.png").convert("L"), found)
    found, message = shown(address, photo, tmp_path, max_size="512", nms=True)
    close = np.abs(found - 255 * detector(photo, max_size=512, nms=True)) <= 2
    assert np.mean(close) >= 0.999  # another rounding before can move a crest
    assert "shrunk to 512 × 380" in message
    found, _ = shown(address, photo, tmp_path, nms=True, threshold="40")
    lines = detector(photo, nms=True, threshold=0.4)
    assert np.mean(found == 255 * lines) >= 0.999
    assert lines.any()


@in_chromium
def test_threads_of_an_isolated_page_change_no_bit(site, photo, edge_weights, tmp_path):
    found = []
    for headers in ({}, ISOLATED):
        with served(site, **headers) as (address, asked):
            shown(address, photo, tmp_path)
        threads = "/threads/engine.wasm" in asked
        assert threads == bool(headers and machine.cores() > 1)
        assert ("/engine.wasm" in asked) != threads
        loaded = sum((site / path[1:]).stat().st_size for path in set(asked) if path != "/")
        assert loaded < 1.5e6
        found.append(np.fromfile(tmp_path / "map.numbers", np.float32).reshape(445, 600))
    assert np.array_equal(*found)
    np.testing.assert_allclose(found[0], EdgeDetector(edge_weights)(photo), rtol=0, atol=2e-5)


@in_chromium
def test_the_static_page_takes_a_photo_of_12_megapixels(static, edge_weights, rng, tmp_path):
    photo = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((4000, 3000))
    photo.save(tmp_path / "photo.jpg", quality=95, subsampling=0)
    found, message = shown(static, tmp_path / "photo.jpg", tmp_path)
    assert "4000 × 3000" in message
    assert "shrunk to 800 × 600" in message
    expected = 255 * EdgeDetector(edge_weights)(tmp_path / "photo.jpg")
    assert np.mean(np.abs(found - expected) <= 2) >= 0.999


@in_chromium
def test_thin_lines_of_a_large_photo_are_wide_on_the_page_and_thin_in_the_file(static, edge_weights, rng, tmp_path):
    photo = Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).resize((1540, 903))
    photo.save(tmp_path / "photo.png")
    found, _ = shown(static, tmp_path / "photo.png", tmp_path, nms=True, max_size="512")
    expected = to_8_bit(EdgeDetector(edge_weights)(tmp_path / "photo.png", nms=True, max_size=512))
    saved = np.asarray(Image.open(tmp_path / "map.png").convert("L"))
    assert saved.shape == expected.shape
    assert np.mean(np.abs(saved - expected.astype(int)) <= 2) >= 0.999
    # One pixel of three would not be seen when the browser scales the image down.
    blocks = np.pad(saved, ((0, 0), (0, 2))).reshape(301, 3, 514, 3)
    assert np.array_equal(found, blocks.max(axis=(1, 3)))


@in_chromium
def test_controls_are_disabled_after_a_rejected_image(server, tmp_path):
    Image.new("RGB", (32, 32)).save(tmp_path / "icon.png", "ICO")  # the browser shows it, the server does not take it
    command = ["node", WEB / "test" / "drop.mjs", CHROMIUM, server, tmp_path / "icon.png", tmp_path / "map"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200)
    assert run.returncode == 1
    assert "not an image of a known format" in run.stderr
    assert "controls" not in run.stderr
