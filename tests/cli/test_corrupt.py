"""`pixeldiff data corrupt` as a user runs it: names, folders, the sheet, what is kept, mistakes."""

import numpy as np
import pytest
from PIL import Image

from pixeldiff.cli import main
from pixeldiff.evaluation.corruptions import corrupt


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["data", "corrupt", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture
def photo(tmp_path, rng):
    path = tmp_path / "photo.png"
    Image.fromarray(rng.integers(0, 256, (20, 31, 3), dtype=np.uint8)).save(path)
    return path


def test_one_image_beside_itself(photo):
    assert run(photo, "--corruption", "fog", "--severity", 3, "--seed", 5) == 0
    result = np.asarray(Image.open(photo.with_name("photo.fog-3.png")))
    np.testing.assert_array_equal(result, corrupt(np.asarray(Image.open(photo)), 3, "fog", seed=5))


def test_a_folder_into_a_folder_keeps_what_exists(photo, tmp_path, capsys):
    Image.open(photo).convert("L").save(tmp_path / "gray.png")
    out = tmp_path / "out"
    assert run(tmp_path, "--corruption", "contrast", "-o", out) == 0
    assert sorted(p.name for p in out.iterdir()) == ["gray.contrast-1.png", "photo.contrast-1.png"]
    assert run(out, "--corruption", "fog") == 2  # results are no input
    assert len(list(out.iterdir())) == 2
    before = (out / "photo.contrast-1.png").read_bytes()
    (out / "photo.contrast-1.png").write_bytes(b"kept")
    assert run(photo, "--corruption", "contrast", "-o", out) == 0
    assert (out / "photo.contrast-1.png").read_bytes() == b"kept"
    assert "already exists, skipped" in capsys.readouterr().out
    assert run(photo, "--corruption", "contrast", "-o", out, "--overwrite") == 0
    assert (out / "photo.contrast-1.png").read_bytes() == before


def test_results_named_by_a_glob_are_no_input(photo, tmp_path):
    for _ in range(2):
        assert run(*tmp_path.glob("*.png"), "--corruption", "fog") == 0
        assert run(tmp_path / "*.png", "--corruption", "fog") == 0
    assert {p.name for p in tmp_path.iterdir()} == {"photo.png", "photo.fog-1.png"}
    assert run(tmp_path / "photo.fog-1.png", "--corruption", "snow") == 0, "named alone it is meant"
    assert (tmp_path / "photo.fog-1.snow-1.png").exists()


def test_a_folder_with_a_dot_and_names_too_long(photo, tmp_path, capsys):
    Image.open(photo).save(tmp_path / f"{'x' * 245}.png")
    assert run(tmp_path, "--corruption", "contrast", "-o", f"{tmp_path}/out.d/") == 1
    assert (tmp_path / "out.d/photo.contrast-1.png").exists()
    assert "File name too long" in capsys.readouterr().err


def test_images_that_differ_in_their_suffix_only(photo):
    Image.open(photo).save(photo.with_suffix(".bmp"))
    assert run(photo.parent, "--corruption", "contrast") == 0
    assert {p.name for p in photo.parent.glob("*-1.png")} == {"photo.bmp.contrast-1.png", "photo.png.contrast-1.png"}


def test_the_sheet_holds_all_kinds_and_severities(photo, tmp_path):
    sheet = tmp_path / "sheet.webp"
    assert run(photo, "--corruption", "all", "-o", sheet) == 0
    width, height = Image.open(sheet).size
    assert width > 5 * 31
    assert height > 15 * 20


def test_one_bad_file_does_not_stop_the_rest(photo, tmp_path, capsys):
    bad = tmp_path / "bad.jpg"
    bad.write_text("not an image")
    assert run(bad, photo, "--corruption", "snow", "-o", tmp_path / "out") == 1
    assert "bad.jpg" in capsys.readouterr().err
    assert (tmp_path / "out" / "photo.snow-1.png").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["photo.png", "--corruption", "rain"], "unknown --corruption 'rain'"),
        (["photo.png", "--corruption", "fog", "--severity", "6"], "severity"),
        (["missing.png", "--corruption", "fog"], "missing.png"),
        (["photo.png", "--corruption", "fog", "-o", "x.xyz"], "x.xyz"),
        ([".", "photo.png", "--corruption", "fog", "-o", "x.png"], "one file"),
        (["empty", "--corruption", "fog"], "no images in empty"),
        (["-", "--corruption", "fog", "-o", "x.png"], "stdin and stdout"),
        (["photo.png", "--corruption", "fog", "-o", "-"], "stdin and stdout"),
        (["missing.png", "--corruption", "fog", "-o", "x.png"], "no file missing.png"),
        (["photo.png", "--corruption", "fog", "-o", "photo.png", "--overwrite"], "photo.png"),
        (["wide.png", "--corruption", "contrast", "-o", "wide.webp"], "cannot write 17000x1 pixels as .webp"),
    ],
)
def test_mistakes_are_one_line(arguments, says, photo, tmp_path, monkeypatch, capsys):
    (tmp_path / "empty").mkdir()
    Image.open(photo).save(tmp_path / "photo.jpg")
    Image.new("RGB", (17000, 1)).save(tmp_path / "wide.png")
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1


def test_a_users_photo_may_be_called_like_a_result(photo):
    """It is an input, and no result replaces it; a result is passed over."""
    mine = photo.with_name("photo.fog-1.png")
    Image.open(photo).rotate(90).save(mine)
    before = mine.read_bytes()
    assert run(photo.parent, "--corruption", "snow") == 0
    assert run(photo.parent, "--corruption", "snow") == 0
    assert {p.name for p in photo.parent.glob("*.snow-1.png")} == {"photo.snow-1.png", "photo.fog-1.snow-1.png"}
    assert run(photo, mine, "--corruption", "fog", "--overwrite") == 2
    assert mine.read_bytes() == before
