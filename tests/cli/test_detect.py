"""`pixeldiff detect`: where results go, what is kept, every option, and every bad input of a careless day."""

import errno
import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector, cli
from pixeldiff.inference.sizes import DEFAULT_SIZE, input_size
from tests.conftest import BAD_IMAGES
from tests.extras import optional

guo_hall = optional("skimage.morphology").thin
loadmat = optional("scipy.io").loadmat


@pytest.fixture
def run(edge_weights, capsys):
    """Run the command in this process: (exit code, stdout, stderr)."""

    def call(*arguments, weights=edge_weights):
        chosen = [] if weights is None else ["--model", weights]
        with pytest.raises(SystemExit) as stop:
            cli.main(["detect", *map(str, (*arguments, *chosen))])
        return stop.value.code, *capsys.readouterr()

    return call


@pytest.fixture
def photo(tmp_path, rng):
    path = tmp_path / "photo.jpg"
    Image.fromarray(rng.integers(0, 256, (24, 33, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def album(tmp_path, rng):
    """Three images in a tree, a note and a hidden file."""
    folder = tmp_path / "album"
    for name in ("a.png", "b/c.JPG", "b/d/e.webp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(folder / name)
    (folder / "note.txt").write_text("not for us")
    (folder / ".hidden.png").write_text("nor this")
    return folder


def files(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_a_photo_gets_its_edges_beside_it(run, photo, edge_weights):
    code, out, err = run(photo)
    result = photo.with_name("photo.edges.png")
    assert (code, out, err) == (0, f"{result}\n", "")
    expected = np.round(255 * EdgeDetector(edge_weights)(photo))
    np.testing.assert_array_equal(np.asarray(Image.open(result)), expected)
    assert files(photo.parent) == ["photo.edges.png", "photo.jpg"]


def test_existing_results_are_kept_unless_overwritten(run, photo):
    result = photo.with_name("photo.edges.png")
    result.write_text("mine")
    code, out, _ = run(photo)
    assert (code, result.read_text()) == (0, "mine")
    assert out == f"{result} already exists, skipped (--overwrite replaces it)\n"
    assert run(photo, "--overwrite")[0] == 0
    assert Image.open(result).size == (33, 24)


def test_folder_is_mirrored(run, album, tmp_path):
    code, out, _ = run(album, "-o", tmp_path / "out")
    assert code == 0
    assert "3 images" in out
    assert files(tmp_path / "out") == ["a.edges.png", "b/c.edges.png", "b/d/e.edges.png"]


def test_links_that_lead_back_up_are_followed_once(run, album, tmp_path):
    for link in (album / "up", album / "b" / "up", album / "b" / "again"):
        link.symlink_to(album)
    (tmp_path / "elsewhere").mkdir()
    Image.open(album / "a.png").save(tmp_path / "elsewhere" / "f.png")
    (album / "z").symlink_to(tmp_path / "elsewhere")
    assert run(album, "-o", tmp_path / "out")[0] == 0
    assert files(tmp_path / "out") == ["a.edges.png", "b/c.edges.png", "b/d/e.edges.png", "z/f.edges.png"]


def test_videos_and_heic_in_a_folder_are_not_passed_over_in_silence(run, album, tmp_path):
    for name in ("clip.MP4", "b/IMG_1.HEIC", "b/IMG_2.heic"):
        (album / name).write_bytes(b"x")
    code, _, err = run(album, "-o", tmp_path / "out")
    assert code == 0
    assert "1 skipped (.mp4); give videos by name" in err
    assert "2 skipped (.heic); reading them needs pillow_heif; install it with: pip install 'pixeldiff[heic]'" in err
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "clip.mov").write_bytes(b"x")
    code, _, err = run(tmp_path / "clips")
    assert (code, "no images in" in err, "give videos by name" in err) == (2, True, True)


def test_second_run_over_a_folder_finds_nothing_new(run, album):
    run(album)
    first = files(album)
    assert len(first) == 8
    summary = json.loads(run(album, "--json", "-")[1])
    assert (summary["done"], summary["skipped"]) == (0, 3)
    assert files(album) == first
    # Results inside the searched folder are no input either.
    run(album, "-o", album / "out")
    assert json.loads(run(album, "-o", album / "out", "--json", "-")[1])["skipped"] == 3


def test_globs_and_images_named_twice(run, album, tmp_path):
    summary = json.loads(run(album / "**" / "*.*g", album / "a.png", "-o", tmp_path / "out", "--json", "-")[1])
    assert [entry["input"] for entry in summary["results"]] == [str(album / "a.png")]
    assert files(tmp_path / "out") == ["a.edges.png"]


def test_results_in_a_glob_of_the_shell_are_no_input(run, album):
    given = [str(path) for path in sorted(album.glob("[!.]*.png"))]
    run(*given)
    spread = [str(path) for path in sorted(album.glob("[!.]*.png"))]
    assert len(spread) > len(given)
    assert json.loads(run(*spread, "--json", "-")[1])["skipped"] == len(given)
    results = [one for one in spread if ".edges." in one]
    code, _, err = run(*results, *results)
    assert code == 2
    assert "results of pixeldiff" in err
    assert run(results[0])[0] == 0  # asked for by itself


@pytest.mark.parametrize("kind", ["png", "jpg", "webp"])
def test_a_users_photo_may_be_called_like_a_result(run, album, kind):
    Image.open(album / "a.png").save(album / "cliff.edges.jpg", exif=Image.Exif())
    Image.open(album / "a.png").save(album / "moving.objects.png")
    for _ in range(2):  # results are no inputs of the second run
        assert len(json.loads(run(album, "--format", kind, "--json", "-")[1])["results"]) == 5
    assert f"cliff.edges.edges.{kind}" in files(album)
    code, _, err = run(album / "cliff.jpg", album / "cliff.edges.jpg", "--format", "jpg", "--overwrite")
    assert (code, "cliff.jpg" in err) == (1, True)
    Image.open(album / "a.png").save(album / "cliff.png")
    code, _, err = run(album / "cliff.png", album / "cliff.edges.jpg", "--format", "jpg", "--overwrite")
    assert (code, "cliff.edges.jpg is the input itself, or another" in err) == (2, True)


@pytest.mark.usefixtures("closed_folders")
@pytest.mark.parametrize("given", ["album", "album/**/*.png", "album/**", "album/*/*.[Jj]*"])
def test_folders_that_cannot_be_read_are_named(run, album, given, monkeypatch):
    monkeypatch.chdir(album.parent)
    (album / "closed").mkdir()
    code, _, err = run(given, "-o", "out")
    assert code == 1
    assert "closed" in err
    assert "(Permission denied)" in err


def test_images_that_differ_in_their_suffix_only(run, tmp_path, photo):
    Image.open(photo).save(tmp_path / "photo.png")
    assert run(tmp_path)[0] == 0
    assert {"photo.jpg.edges.png", "photo.png.edges.png"} < set(files(tmp_path))


def test_a_glob_may_name_one_image(run, photo, tmp_path):
    assert run(tmp_path / "*.jpg", "-o", tmp_path / "x.png")[0] == 0
    Image.open(photo).save(tmp_path / "second.jpg")
    code, _, err = run(tmp_path / "*.jpg", "-o", tmp_path / "y.png")
    assert (code, "2 images; give a folder" in err) == (2, True)


def test_two_inputs_of_one_name_need_two_folders(run, photo, tmp_path):
    (tmp_path / "sub").mkdir()
    Image.open(photo).save(tmp_path / "sub" / "photo.jpg")
    code, _, err = run(photo, tmp_path / "sub" / "photo.jpg", "-o", tmp_path / "out")
    assert code == 2
    assert "would both become" in err


@pytest.mark.parametrize("suffix", ["png", "webp", "npy", "mat"])
def test_formats(suffix, run, photo, edge_weights):
    assert run(photo, "--format", suffix)[0] == 0
    path = photo.with_name(f"photo.edges.{suffix}")
    read = {"npy": np.load, "mat": lambda p: loadmat(p)["edges"]}.get(suffix, lambda p: np.asarray(Image.open(p)))
    expected = EdgeDetector(edge_weights)(photo)
    found = read(path)
    if suffix in ("npy", "mat"):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    else:
        np.testing.assert_array_equal(found if found.ndim == 2 else found[..., 0], np.round(255 * expected))


def test_options_of_the_map(run, photo, edge_weights):
    def saved(*options):
        assert run(photo, "-o", photo.with_name("x.npy"), "--overwrite", *options)[0] == 0
        return np.load(photo.with_name("x.npy"))

    plain = EdgeDetector(edge_weights)
    edges = plain(photo)
    middle = float(np.median(edges))
    np.testing.assert_allclose(saved("--background", "white"), 1 - edges, atol=1e-6)
    np.testing.assert_array_equal(saved("--threshold", middle), edges >= middle)
    thin = plain(photo, nms=True)
    np.testing.assert_allclose(saved("--nms"), thin, atol=1e-6)
    np.testing.assert_array_equal(saved("--nms", "--threshold", middle), guo_hall(thin >= middle))
    np.testing.assert_allclose(saved("--scales", "0.5,1,1.5"), plain(photo, scales=(0.5, 1, 1.5)), atol=1e-6)
    np.testing.assert_allclose(saved("--flip"), plain(photo, flip=True), atol=1e-6)
    np.testing.assert_allclose(saved("--threads", 1), edges, atol=1e-6)


def test_side_outputs_are_files_of_their_own(run, photo, edge_weights):
    assert run(photo, "--sides", "--format", "npy")[0] == 0
    maps = EdgeDetector(edge_weights)(photo, sides=True)
    names = [f"photo.edges.side_{k}.npy" for k in (1, 2, 3, 4)] + ["photo.edges.npy"]
    for name, expected in zip(names, maps, strict=True):
        np.testing.assert_allclose(np.load(photo.with_name(name)), expected, atol=1e-6)


def test_side_outputs_replace_nothing_unasked(run, photo):
    mine = photo.with_name("photo.edges.side_1.png")
    mine.write_bytes(b"mine")
    code, _, error = run(photo, "--sides")
    assert (code, mine.read_bytes()) == (2, b"mine")
    assert "--overwrite" in error
    assert run(photo, "--sides", "--overwrite")[0] == 0
    assert mine.read_bytes() != b"mine"


def test_json_summary(run, album, tmp_path):
    code, out, err = run(album, "-o", tmp_path / "out", "--json", "-")
    summary = json.loads(out)
    assert (code, err) == (0, "")
    assert summary["model"] == "small-random"
    assert (summary["version"], summary["command"], summary["failed"]) == (1, "detect", [])
    assert (summary["done"], summary["skipped"]) == (3, 0)
    assert summary["results"][0] == {
        "input": str(album / "a.png"),
        "status": "done",
        "outputs": [str(tmp_path / "out" / "a.edges.png")],
        "height": 20,
        "width": 30,
        "input_size": [20, 30],
    }


def test_json_into_a_file(run, album, photo, tmp_path):
    target = tmp_path / "summary.json"
    code, out, _ = run(album, "-o", tmp_path / "out", "--json", target)
    assert (code, "3 images" in out) == (0, True)
    assert [one["status"] for one in json.loads(target.read_text())["results"]] == ["done"] * 3
    before = target.read_text()
    code, _, err = run(photo, "--json", target)
    assert (code, "summary.json exists" in err, target.read_text()) == (2, True, before)
    assert not photo.with_name("photo.edges.png").exists(), "it is told before the work"
    code, out, _ = run(photo, "--json", target, "--overwrite")
    assert json.loads(target.read_text())["results"][0]["outputs"] == [str(photo.with_name("photo.edges.png"))]
    assert run(photo, "--json", tmp_path / "missing" / "x.json")[0] == 2


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_a_single_bad_image_is_one_line_and_exit_code_2(name, run, bad_images, tmp_path):
    code, out, err = run(bad_images / name, "-o", tmp_path / "out")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert name in err
    assert files(tmp_path / "out") == []


def test_bad_images_in_a_folder_are_named_and_do_not_stop_the_rest(run, bad_images, photo, tmp_path):
    code, out, err = run(bad_images, photo, tmp_path / "missing.jpg", "-o", tmp_path / "out", "--json", "-")
    assert code == 1
    assert all(name in err for name in (*BAD_IMAGES, "missing.jpg"))
    summary = json.loads(out)
    assert (summary["done"], len(summary["failed"])) == (1, len(BAD_IMAGES) + 1)
    assert all(Path(one["input"]).name in one["error"] for one in summary["failed"])
    assert files(tmp_path / "out") == ["photo.edges.png"]


def test_links_and_pipes_in_a_folder(run, photo):
    folder = photo.parent
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "nowhere.jpg").symlink_to("missing")
    (folder / "below").mkdir()
    (folder / "below/up").symlink_to("..")
    os.mkfifo(folder / "pipe.jpg")
    code, out, err = run(folder, "--json", "-")
    summary = json.loads(out)
    assert (code, summary["done"], len(summary["failed"])) == (1, 1, 3)
    assert [name in err for name in ("a.jpg", "b.jpg", "nowhere.jpg", "pipe.jpg")] == [True, True, True, False]


def test_names_as_long_as_the_system_bears(run, photo):
    long = photo.rename(photo.with_name("n" * (255 - len(".edges.png")) + ".jpg"))
    assert run(long)[0] == 0
    longer = photo.with_name("n" * (255 - len(".jpg")) + ".jpg")
    long.rename(longer)
    code, _, err = run(longer)
    assert (code, err.count("\n")) == (2, 1)
    assert "File name too long" in err


def test_mistakes_are_one_line_and_exit_code_2(run, photo, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad.onnx").write_text("x")
    mistakes = {
        "no file": [tmp_path / "missing.jpg"],
        "no file matches": [tmp_path / "*.xyz"],
        "no images in": [tmp_path / "empty"],
        "cannot write": [photo, "-o", tmp_path / "file" / "out"],
        "cannot write to": [photo, "-o", tmp_path / "file"],
        "does not fit": [photo, "-o", tmp_path / "x.png", "--format", "npy"],
        "missing.jpg; check the name": [tmp_path / "missing.jpg", "-o", tmp_path / "x.png"],
        "but there are several": [tmp_path, "-o", tmp_path / "x.png"],
        "x.bmp: results are not written as .bmp; use .png": [photo, "-o", tmp_path / "x.bmp"],
        "x.pdf: results are not written as .pdf; use .png": [photo, "-o", tmp_path / "x.pdf"],
        "give a folder": [photo, photo, "-o", tmp_path / "x.png"],
        "'bmp' is not one of": [photo, "--format", "bmp"],
        "a whole number of at least 16 or none": [photo, "--max-size", "3"],
        "invalid value 'big'": [photo, "--max-size", "big"],
        "formats png, webp, svg": [photo, "--format", "jpg", "--background", "transparent"],
        "formats png, jpg, webp": [photo, "-o", tmp_path / "x.npy", "--background", "photo"],
        "from 0 to 1 or none": [photo, "--threshold", "2"],
        "invalid value 'nan'": [photo, "--threshold", "nan"],
        "invalid value 'inf'": [photo, "--format", "svg", "--tolerance", "inf"],
        "- is stdin; give it alone": ["-"],
        "give it alone, and with -o FILE": ["-", photo, "-o", tmp_path],
        "or with -o - for stdout": ["-", "-o", tmp_path],
        "-o - is one file, but there are several": [photo, photo, "-o", "-"],
        "stdout holds one file": [photo, "-o", "-", "--json", "-"],
        "a file, not a folder": [photo, "-o", tmp_path / "file"],
    }
    for says, arguments in mistakes.items():
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), says
        assert says in err
    for says, options in {
        "no pretrained model": ["--model", "x"],
        "not a readable": ["--model", tmp_path / "bad.onnx"],
    }.items():
        code, _, err = run(photo, *options, weights=None)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
    assert not list(tmp_path.glob("*.edges.*"))


def piped(*arguments, content=b""):
    command = [sys.executable, "-m", "pixeldiff", "detect", *map(str, arguments)]
    return subprocess.run(command, input=content, capture_output=True, timeout=60)


def test_stdin_and_stdout(run, photo, edge_weights, tmp_path):
    run(photo, "-o", tmp_path / "x.png")
    expected = np.asarray(Image.open(tmp_path / "x.png"))
    own = ("--model", edge_weights)
    for arguments in (["-", "-o", "-"], [photo, "-o", "-"], ["-", "-o", tmp_path / "y.webp"]):
        result = piped(*arguments, *own, content=photo.read_bytes())
        assert (result.returncode, result.stderr) == (0, b"")
        if "y.webp" in str(arguments[-1]):
            assert result.stdout.decode() == f"{tmp_path / 'y.webp'}\n"
            assert Image.open(tmp_path / "y.webp").size == (33, 24)
        else:
            np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(result.stdout))), expected)
    jpeg = piped("-", "-o", "-", "--format", "jpg", *own, content=photo.read_bytes())
    assert Image.open(io.BytesIO(jpeg.stdout)).format == "JPEG"
    for content in (b"", b"text", photo.read_bytes()[:300]):
        bad = piped("-", "-o", "-", *own, content=content)
        assert (bad.returncode, bad.stdout, bad.stderr.count(b"\n")) == (2, b"", 1)
        assert b"standard input" in bad.stderr
    assert files(tmp_path) == ["photo.jpg", "x.png", "y.webp"]


def test_a_file_called_minus(run, photo, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photo.rename("-")
    assert run("./-", "-o", "x.png")[0] == 0
    assert Image.open("x.png").size == (33, 24)


def test_large_images_are_reduced_and_told(run, tmp_path, rng, edge_weights):
    for name, size in (("a.png", (30, 1100)), ("b.png", (30, 2000)), ("c.png", (30, 40))):
        Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / name)
    code, out, err = run(tmp_path / "a.png", "--json", "-")
    height, width = input_size((30, 1100))
    assert (json.loads(out)["results"][0]["input_size"], width) == ([height, width], DEFAULT_SIZE)
    told = f"shrunk 1100x30 to {width}x{height} for detection; --max-size none uses all pixels"
    assert err == f"note: {told}\n"
    code, _, err = run(tmp_path, "--overwrite", "--format", "npy")
    height, width = input_size((30, 2000))
    told = f"shrunk 2 images, up to 2000x30 to {width}x{height} for detection; --max-size none uses all pixels"
    assert err == f"note: {told}\n"
    for size, given in (("none", None), (600, 600)):
        code, _, err = run(tmp_path / "b.png", "--max-size", size, "--format", "npy", "--overwrite")
        assert (code, err) == (0, "")
        expected = EdgeDetector(edge_weights)(tmp_path / "b.png", max_size=given)
        np.testing.assert_allclose(np.load(tmp_path / "b.edges.npy"), expected, atol=1e-6)


def test_images_too_large_for_their_result_are_told_before_the_network_runs(run, tmp_path):
    Image.new("L", (70_000, 1)).save(tmp_path / "long.png")
    for says, options in {
        "webp files have at most 16383": ["--format", "webp"],
        "jpg files have at most 65500": ["-o", tmp_path / "x.jpg"],
        "thin lines and svg files have at most 65535": ["--nms"],
        "svg files have at most 65535 pixels": ["--format", "svg"],
    }.items():
        code, _, err = run(tmp_path / "long.png", *options)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
        assert "long.png" in err
    assert files(tmp_path) == ["long.png"]


def test_a_full_disk_ends_a_folder_run_with_a_count(run, album, tmp_path, monkeypatch, rng):
    for k in range(30):
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(album / f"{k}.png")
    replace, left = os.replace, [0, 0]

    def filling(source, target):
        left.pop() if left else None
        if not left:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", filling)
    code, out, err = run(album, "-o", tmp_path / "out", "--threads", 1)
    assert (code, err.count("\n")) == (2, 1)
    assert "1 of 33 written, then stopped: cannot write" in err
    assert "the disk is full" in err
    assert "32 not written" in out
    assert len(files(tmp_path / "out")) == 1


def test_other_options_than_those_of_a_kept_result_are_told(run, photo, album):
    command = "pixeldiff detect --model small-random"
    for suffix in ("png", "webp", "jpg", "svg"):
        result = photo.with_name(f"photo.edges.{suffix}")
        extra = {"png": "", "svg": " --nms --format svg"}.get(suffix, f" --format {suffix}")
        assert run(photo, "--format", suffix)[2] == ""
        assert run(photo, "--format", suffix)[2] == ""  # kept, and it is what was asked for
        code, out, err = run(photo, "--format", suffix, "--nms", "--threshold", "0.5")
        assert (code, out) == (0, f"{result} already exists, skipped (--overwrite replaces it)\n")
        kept = f"warning: {result} made with other options ({command}{extra}), skipped; --overwrite replaces results"
        assert err == kept + "\n"
        assert run(photo, "--format", suffix, "--nms", "--threshold", "0.5", "--overwrite")[2] == ""
        assert "--threshold 0.5" in run(photo, "--format", suffix)[2]
    assert run(photo, "--format", "png", "--overwrite")[2] == ""
    assert f"({command})" in run(photo, "--format", "png16")[2]  # the same suffix, other levels
    assert run(photo, "--format", "png16", "--overwrite")[2] == ""
    assert run(photo, "--format", "png16")[2] == ""
    assert f"({command} --format png16)" in run(photo)[2]
    run(album)
    code, out, err = run(album, "--background", "white", "--json", "-")
    assert err.count("\n") == 1
    assert "a.edges.png and 2 more made with other options" in err
    assert json.loads(out)["results"][0]["made_by"] == command


def test_backgrounds(run, photo, edge_weights):
    def saved(name, *options):
        assert run(photo, "-o", photo.with_name(name), "--overwrite", *options)[0] == 0
        return Image.open(photo.with_name(name))

    edges = EdgeDetector(edge_weights)(photo)
    gray = np.round(255 * edges)
    for name in ("x.png", "x.webp"):
        drawn = np.asarray(saved(name, "--background", "transparent").convert("RGBA"))
        np.testing.assert_array_equal(drawn[..., 3], gray)
        assert (drawn[gray > 0][:, :3] == 0).all()
    np.testing.assert_allclose(np.asarray(saved("x.png", "--background", "white")), 255 - gray, atol=1)
    image = np.asarray(Image.open(photo)).astype(float)
    opacity = gray[..., None] / 255
    drawn = np.asarray(saved("x.png", "--background", "photo"))
    np.testing.assert_allclose(drawn, image * (1 - opacity) + np.array((255, 0, 255)) * opacity, atol=1)
    drawn = np.asarray(saved("x.png", "--background", "photo", "--threshold", "0.5"))
    np.testing.assert_array_equal(drawn[edges < 0.5], image[edges < 0.5])
    assert saved("x.jpg", "--background", "photo").mode == "RGB"


def test_deep_png(run, photo, edge_weights):
    assert run(photo, "-o", photo.with_name("x.png"), "--format", "png16")[0] == 0
    expected = np.round(65535 * EdgeDetector(edge_weights)(photo))
    found = np.asarray(Image.open(photo.with_name("x.png")))
    np.testing.assert_allclose(found, expected, atol=1)
    assert run(photo, "--format", "png16", "--json", "-")[0] == 0
    assert photo.with_name("photo.edges.png").exists()


def test_jpeg(run, photo, edge_weights):
    expected = 255 * EdgeDetector(edge_weights)(photo)
    for name in ("x.jpg", "x.JPEG"):
        assert run(photo, "-o", photo.with_name(name))[0] == 0
        found = Image.open(photo.with_name(name))
        assert (found.format, found.mode) == ("JPEG", "L")
        assert np.abs(np.asarray(found) - expected).mean() < 3


def test_weights_of_the_torch_world(run, photo, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from pixeldiff.export.onnx import export_onnx
    from pixeldiff.models import create_model
    from pixeldiff.models.saving import save_model

    model = create_model("tiny", width=4, side_channels=2)
    save_model(model, tmp_path / "net.safetensors", {"task": "edges"})
    export_onnx(model, tmp_path / "net.onnx", {})
    out = tmp_path / "x.npy"
    assert run(photo, "-o", out, "--model", tmp_path / "net.safetensors", weights=None)[0] == 0
    np.testing.assert_allclose(np.load(out), EdgeDetector(tmp_path / "net.onnx")(photo), atol=1e-4)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "net.pth").write_bytes(b"any")
    code, _, err = run(photo, "--model", tmp_path / "net.pth", weights=None)
    assert (code, err.count("\n")) == (2, 1)
    assert "pip install 'pixeldiff[train]'" in err


def test_image_is_never_its_own_result(run, photo):
    Image.open(photo).save(photo.with_suffix(".png"))
    before = photo.with_suffix(".png").read_bytes()
    for name in (photo.with_suffix(".png"), photo.parent / "*.png"):
        assert run(name, "-o", photo.with_suffix(".png"), "--overwrite")[0] == 2
    assert photo.with_suffix(".png").read_bytes() == before


def test_mat_needs_no_scipy(run, photo, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    assert run(photo, "--format", "mat")[0] == 0


def test_the_command_runs_in_a_process_of_its_own_without_torch(photo, edge_weights):
    script = (
        "import sys, pixeldiff.cli\n"
        f"try: pixeldiff.cli.main(['detect', {str(photo)!r}, '--nms', '--model', {str(edge_weights)!r}])\n"
        "except SystemExit as stop: code = stop.code\n"
        "slow = {'torch', 'scipy', 'matplotlib', 'rich', 'onnx', 'skimage', 'av', 'importlib.metadata'}\n"
        "heavy = slow & set(sys.modules)\n"
        "sys.exit(f'code {code}, imported {heavy}' if code or heavy else 0)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
