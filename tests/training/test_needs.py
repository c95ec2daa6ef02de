"""Ancestry: a recipe trains what it needs and writes missing maps; weights name what they come from."""

import json
from pathlib import Path

import pytest

from pixeldiff.cli import main
from pixeldiff.errors import InputError
from pixeldiff.models.saving import read_metadata
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.recipe_file import read_file
from pixeldiff.training.stages import plan
from pixeldiff.weights import sha256
from tests.training.small_run import recipe_text

STUDENT = """
[[stage]]
name = "first"
init_from = "teacher.toml"
schedule.samples = 4
[[stage]]
name = "second"
schedule.samples = 4
data.sources = [{{ type = "folders", images = "photos", labels = "edges", maps = "maps", teacher = "{blend}" }}]
[[stage]]
name = "third"
schedule.samples = 4
data.sources = [{{ type = "pseudo-labels", images = "photos", maps = "more-maps", teacher = ":first" }}]
"""


@pytest.fixture
def recipes(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(root)
    (root / "teacher.toml").write_text(recipe_text(root, epochs=0.25))
    (root / "student.toml").write_text(recipe_text(root) + STUDENT.format(blend="teacher.toml"))
    return root


def train(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["train", *words])
    return int(ended.value.code or 0)


def test_one_command_from_empty_folders(recipes: Path) -> None:
    assert train("student.toml", "-o", "run") == 0
    weights = [recipes / f"run/{name}/last.safetensors" for name in ("needs/teacher", "first", "second", "third")]
    digests = [sha256(path) for path in weights]
    assert [read_metadata(path).get("lineage") for path in weights] == [
        None,
        {"init_from": digests[0]},
        {"init_from": digests[1], "maps maps": digests[0]},
        {"init_from": digests[2], "maps more-maps": digests[1]},
    ]
    assert json.loads((recipes / "maps/teacher.json").read_text())["sha256"] == digests[0]
    assert sorted(path.name for path in (recipes / "maps").glob("*.png")) == [f"{k}.png" for k in range(8)]

    before = {path: path.stat().st_mtime_ns for path in (recipes / "maps").iterdir()}
    (recipes / "maps/3.png").unlink()
    assert train("student.toml", "--stage", "second", "-o", "run") == 0
    after = {path: path.stat().st_mtime_ns for path in (recipes / "maps").iterdir()}
    assert [path.name for path in before if before[path] != after[path]] == ["3.png"]
    assert [sha256(path) for path in weights] == digests


def test_maps_of_another_teacher_are_not_taken(recipes: Path) -> None:
    (recipes / "maps").mkdir()
    (recipes / "maps/teacher.json").write_text('{"sha256": "0"}')
    assert train("student.toml", "-o", "run") == 2
    assert not (recipes / "run/second").exists()


def test_data_is_checked_before_the_maps_exist(recipes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for k in range(8):
        (recipes / f"edges/{k}.png").unlink()
    assert train("student.toml", "-o", "run") == 2
    assert "has no label" in capsys.readouterr().err
    assert not (recipes / "run").exists()


def test_wrong_needs_are_errors_before_training(recipes: Path) -> None:
    for blend, says in (("student.toml:first", "needs itself"), ("teacher.toml:x", "no variant 'x'")):
        (recipes / "student.toml").write_text(recipe_text(recipes) + STUDENT.format(blend=blend))
        with pytest.raises(InputError, match=says):
            plan(read_file("student.toml"), recipes / "run")
    table = {"task": "edges", "model": {"name": "tiny"}, "schedule": {"samples": 1}}
    for source in ({"type": "bsds500", "split": "train"}, {"type": "list", "file": "a.lst", "maps": "b"}):
        with pytest.raises(InputError, match="teacher"):
            parse_recipe({**table, "data": {"root": "x", "sources": [{**source, "teacher": "tiny"}]}})


def test_a_dry_run_shows_the_plan(recipes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("student.toml", "-o", "run", "--dry-run") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "run/needs/teacher: tiny, 4 samples in 1 steps, from scratch"
    assert lines[-1] == "run/third: tiny, 4 samples in 1 steps, from run/second/last.safetensors"
    assert not (recipes / "run").exists()
