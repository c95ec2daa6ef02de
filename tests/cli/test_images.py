"""A command over images is one operation and its options: threads, shards, lists, JSON, resuming come with them."""

import json
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pytest
from PIL import Image

from pixeldiff import image
from pixeldiff.cli import _report
from pixeldiff.cli._images import RunOptions, collect, run_images, run_options
from pixeldiff.cli._options import GroupedCommand
from pixeldiff.errors import InputError, OutputError, UserError
from pixeldiff.jobs.operation import Operation, Output
from pixeldiff.render.formats import encode_image


@dataclass(frozen=True)
class Invert(Operation[None]):
    """Invert the colors of an image."""

    provenance: str = "pixeldiff invert"

    def open(self, threads: int, streams: int) -> None:
        pass

    def ending(self, source: Path) -> str:
        return "inverted.png"

    def run(self, model: None, data: bytes, name: str) -> Output:
        pixels = image.as_8_bit(image.decode(data, name))
        return Output({"": encode_image(255 - pixels, ".png", self.provenance)}, {"mean": float(pixels.mean())})


@click.command(cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@run_options
def invert(inputs: tuple[str, ...], run: RunOptions) -> int:
    """Invert the colors of INPUTS."""
    return run_images("invert", Invert(), collect(inputs, run, formats=(".png",)), run)


def run(*words: object) -> int:
    code: int = invert.main([str(word) for word in words], standalone_mode=False)
    return code


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "_manifest" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def photos(tmp_path: Path, rng: np.random.Generator) -> Path:
    for k in range(9):
        path = tmp_path / "photos" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (7, 9, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def test_a_folder_with_json_and_resuming(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert run(photos, "-o", out, "--threads", 2, "--json", tmp_path / "r.json") == 0
    assert capsys.readouterr().out.startswith("9 images in ")
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [result["input"] for result in results] == sorted(str(path) for path in photos.rglob("*.png"))
    pixels = np.asarray(Image.open(photos / "a/0.png"))
    assert results[0] == {
        "input": str(photos / "a/0.png"),
        "status": "done",
        "outputs": [str(out / "a/0.inverted.png")],
        "mean": pixels.mean(),
    }
    np.testing.assert_array_equal(np.asarray(Image.open(out / "a/0.inverted.png")), 255 - pixels)
    before = contents(out)
    (out / "b/1.inverted.png").unlink()
    assert run(photos, "-o", out, "--json", "-") == 0
    statuses = [result["status"] for result in json.loads(capsys.readouterr().out)["results"]]
    assert (statuses.count("done"), statuses.count("skipped")) == (1, 8)
    assert contents(out) == before


def test_shards_together_are_the_whole(photos: Path, tmp_path: Path) -> None:
    assert run(photos, "-o", tmp_path / "whole") == 0
    sizes = []
    for shard in ("1/4", "2/4", "3/4", "4/4"):
        before = len(contents(tmp_path / "shards"))
        assert run(photos, "-o", tmp_path / "shards", "--shard", shard) == 0
        sizes.append(len(contents(tmp_path / "shards")) - before)
    assert sizes == [3, 2, 2, 2]
    assert contents(tmp_path / "shards") == contents(tmp_path / "whole")


def test_lists_and_limits(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "list.txt").write_text("b/3\na/0.png\n\nb/99.png\n")
    assert run(photos, "--list", tmp_path / "list.txt", "-o", tmp_path / "out") == 1
    assert sorted(contents(tmp_path / "out")) == ["a/0.inverted.png", "b/3.inverted.png"]
    assert capsys.readouterr().err.startswith("error: no image b/99.png")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paths.txt").write_text("photos/a/0.png\nphotos/b/1.png\n")
    assert run("--list", "paths.txt", "-o", "flat", "--limit", 1) == 0
    assert sorted(contents(tmp_path / "flat")) == ["0.inverted.png"]
    assert run("photos", "-o", "first", "--limit", 3) == 0
    assert len(contents(tmp_path / "first")) == 3


def test_quiet_prints_errors_only(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (photos / "bad.png").write_text("no image")
    assert run(photos, "-o", tmp_path / "out", "-q") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {photos}/bad.png ")
    assert printed.err.count("\n") == 1


def test_progress_is_shown(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[int, int | None]] = []

    class Bar:
        def __enter__(self) -> object:
            return lambda done, total: shown.append((done, total))

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(_report, "show_progress", Bar)
    assert run(photos, "-o", tmp_path / "out") == 0
    assert shown == [(done, 9) for done in range(1, 10)]


def test_mistakes(photos: Path, tmp_path: Path) -> None:
    for words, kind, names in (
        ((), click.UsageError, "INPUTS"),
        ((photos, "--shard", "3/2"), click.UsageError, "3/2"),
        ((photos, "--shard", "1/2", "--cluster", "-o", tmp_path / "out"), UserError, "--shard"),
        ((photos, "--workers", "2"), UserError, "--cluster"),
        ((tmp_path / "none.png",), InputError, "none.png"),
        ((photos, "-o", tmp_path / "x.png"), UserError, "x.png"),
        ((photos / "a/0.png", "-o", photos / "a/0.png", "--overwrite"), OutputError, "0.png"),
        (("-", "-o", tmp_path / "out"), UserError, "stdin"),
    ):
        with pytest.raises(kind, match=names):
            run(*words)


def test_help_lists_options_in_groups(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    titles = [line for line in capsys.readouterr().out.splitlines() if line.endswith(":") and line[0] != " "]
    assert titles == ["Input and output:", "Performance:", "Cluster:", "Options:"]
