"""`pixeldiff data pseudo-label`: what is written, kept, gone on with, and said of images that fail."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector, cli
from pixeldiff.edgemap import to_8_bit


@pytest.fixture
def run(edge_weights, capsys):
    def call(*arguments, weights=edge_weights):
        with pytest.raises(SystemExit) as stop:
            cli.main(["data", "pseudo-label", *map(str, arguments), "--teacher", str(weights)])
        return stop.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def photos(tmp_path, rng):
    for name in ("a.jpg", "b/c.png", "b/d.webp"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 33, 3), dtype=np.uint8)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_labels_are_the_maps_at_three_scales_and_mirrored(run, photos, tmp_path, edge_weights) -> None:
    code, out, err = run(photos, "-o", tmp_path / "maps", "--json", tmp_path / "done.json")
    assert (code, err) == (0, "")
    assert out.startswith("3 images in ")
    assert files(tmp_path / "maps") == ["a.png", "b/c.png", "b/d.png"]
    detector = EdgeDetector(edge_weights)
    for name, scales, flip in (("a", (0.5, 1, 1.5), True), ("b/c", (0.5, 1, 1.5), True)):
        image = next(photos.glob(f"{name}.*"))
        expected = to_8_bit(detector(image, scales=scales, flip=flip))
        assert np.abs(np.asarray(Image.open(tmp_path / f"maps/{name}.png")).astype(int) - expected).max() <= 1
    report = json.loads((tmp_path / "done.json").read_text())
    assert report["command"] == "data pseudo-label"
    assert (report["done"], len(report["results"]), report["failed"]) == (3, 3, [])
    code, out, _ = run(photos, "-o", tmp_path / "maps")
    assert (code, out) == (0, "3 already exist, skipped (--overwrite replaces them)\n")
    _, _, err = run(photos, "-o", tmp_path / "maps", "--no-flip", "--scales", "1")
    assert "made with other options (pixeldiff data pseudo-label --teacher small-random --scales 0.5,1,1.5" in err
    run(photos, "-o", tmp_path / "maps", "--no-flip", "--scales", "1", "--overwrite")
    plain = to_8_bit(detector(photos / "a.jpg"))
    assert np.abs(np.asarray(Image.open(tmp_path / "maps/a.png")).astype(int) - plain).max() <= 1


def test_large_images_have_labels_of_the_size_that_was_seen(run, photos, tmp_path) -> None:
    Image.fromarray(np.zeros((10, 1600, 3), np.uint8)).save(photos / "wide.png")
    run(photos, "-o", tmp_path / "maps")
    assert Image.open(tmp_path / "maps/wide.png").size == (800, 5)


def test_a_list_says_which(run, photos, tmp_path) -> None:
    (tmp_path / "some.txt").write_text("b/d\na.jpg\nnone\n\n")
    code, _, err = run(photos, "-o", tmp_path / "maps", "--list", tmp_path / "some.txt")
    assert code == 1
    assert files(tmp_path / "maps") == ["a.png", "b/d.png"]
    assert "no image none, which" in err


def test_bad_images_are_named_and_the_others_labeled(run, photos, bad_images, tmp_path) -> None:
    for bad in ("cut.jpg", "empty.png", "text.jpg"):
        (photos / bad).write_bytes((bad_images / bad).read_bytes())
    code, out, err = run(photos, "-o", tmp_path / "maps")
    assert code == 1
    assert "3 images" in out
    assert "3 failed" in out
    assert all(bad in err for bad in ("cut.jpg", "empty.png", "text.jpg"))
    assert files(tmp_path / "maps") == ["a.png", "b/c.png", "b/d.png"]


def test_mistakes_are_one_line(run, photos, tmp_path) -> None:
    for arguments, says in (
        ((photos, "-o", photos), "among the images"),
        ((tmp_path / "no", "-o", tmp_path / "maps"), "no file"),
        ((tmp_path, "-o", tmp_path / "maps", "--list", tmp_path / "no.txt"), "no list"),
        ((photos, "-o", tmp_path / "maps", "--scales", "1,2x"), "expected one or more numbers"),
        ((photos, "-o", tmp_path / "maps", "--scales", "0,1"), "each a number above 0"),
    ):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert says in err
    (tmp_path / "empty").mkdir()
    assert run(tmp_path / "empty", "-o", tmp_path / "maps")[0] == 2
    assert "are no teachers" in run(photos, "-o", tmp_path / "maps", weights=tmp_path / "their.pth")[2]


def test_killed_and_given_again_nothing_is_torn(photos, tmp_path, edge_weights, rng) -> None:
    pixels = rng.integers(0, 256, (96, 128, 3), dtype=np.uint8)
    for k in range(30):
        Image.fromarray(pixels).save(photos / f"{k}.png")
    command = [sys.executable, "-m", "pixeldiff", "data", "pseudo-label", photos, "-o", tmp_path / "maps"]
    process = subprocess.Popen([*map(str, command), "--teacher", str(edge_weights)])
    while not (tmp_path / "maps").exists() or len(files(tmp_path / "maps")) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {
        name: (tmp_path / "maps" / name).stat().st_mtime_ns for name in files(tmp_path / "maps") if name[0] != "."
    }
    assert 0 < len(before) < 33
    subprocess.run([*map(str, command), "--teacher", str(edge_weights)], check=True)
    now = files(tmp_path / "maps")
    assert len(now) == 33, "leftovers are gone, too"
    for name in now:
        Image.open(tmp_path / "maps" / name).load()
    assert all((tmp_path / "maps" / name).stat().st_mtime_ns == time_ns for name, time_ns in before.items())
