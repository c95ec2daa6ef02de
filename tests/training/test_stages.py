"""The stages of a network: in order, each from the one before, resumed anywhere; and the words of `pixeldiff train`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pixeldiff.cli import main
from pixeldiff.errors import UserError
from pixeldiff.models.saving import read_metadata
from pixeldiff.training import loop
from pixeldiff.training.loop import train
from pixeldiff.training.recipe import read_recipe
from pixeldiff.training.recipe_file import read_file, tomllib
from pixeldiff.training.stages import plan
from pixeldiff.weights import sha256
from tests.training.small_run import assert_same_weights, recipe_text, stop_after
from tests.training.test_loop import QUIET

STAGES = """
[[stage]]
name = "first"
schedule.samples = 16
[[stage]]
name = "more"
augment.color_jitter = 0.2
[[stage]]
name = "final"
schedule.samples = 16
"""


@pytest.fixture
def recipe(root: Path) -> Path:
    path = root / "recipe.toml"
    path.write_text(recipe_text(root, epochs=0.75) + STAGES)
    return path


def call(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["train", *map(str, words)])
    return int(ended.value.code or 0)


def test_each_stage_starts_from_the_one_before(root: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(recipe, "-o", root / "run") == 0
    assert capsys.readouterr().out == f"done: {root / 'run/final/last.safetensors'}\n"
    folders = [root / "run" / name for name in ("first", "more", "final")]
    described = [read_metadata(folder / "last.safetensors") for folder in folders]
    assert [d["steps"] for d in described] == [4, 3, 4]
    assert [d["recipe"]["augment"]["color_jitter"] for d in described] == [0, 0.2, 0]
    assert [d.get("lineage", {}).get("init_from") for d in described] == [
        None,
        *(sha256(folder / "last.safetensors") for folder in folders[:2]),
    ]


def test_stopped_in_any_stage_it_ends_in_the_same_weights(root: Path, recipe: Path) -> None:
    file = read_file(recipe)
    assert call(recipe, "-o", root / "whole") == 0
    for k, name in enumerate(("first", "more", "final")):
        steps = plan(file, root / "parts")
        assert [folder.name for folder, _ in steps] == ["first", "more", "final"][max(k - 1, 0) :]
        for folder, one in steps:
            if folder.name == name:
                stop_after(one, folder, 1)
                break
            assert train(one, folder)
    assert call(recipe, "-o", root / "parts") == 0
    assert_same_weights(root / "whole/final", root / "parts/final")


def test_finished_stages_are_left_alone(root: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(recipe, "-o", root / "run") == 0
    before = {path: path.stat().st_mtime_ns for path in (*root.rglob("*.pt"), *root.rglob("*.safetensors"))}
    trained = []
    monkeypatch.setattr(
        loop, "train", lambda one, folder, *rest: trained.append(folder.name) or train(one, folder, *rest)
    )
    assert call(recipe, "-o", root / "run") == 0
    assert trained == ["final"]
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_one_stage(root: Path, recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(recipe, "--stage", "more", "-o", root / "run") == 2
    assert "run/first/last.safetensors" in capsys.readouterr().err
    assert call(recipe, "--stage", "first", "-o", root / "run") == 0
    assert sorted(path.name for path in (root / "run").iterdir() if (path / "last.safetensors").exists()) == ["first"]
    assert call(recipe, "--stage", "more", "-o", root / "run") == 0
    other = root / "run/first/last.safetensors"
    assert call(recipe, "--stage", "final", "--set", f"init_from={other}", "-o", root / "run") == 0
    assert read_metadata(root / "run/final/last.safetensors")["lineage"]["init_from"] == sha256(other)


def test_set_initial_is_for_the_first_stage(root: Path, recipe: Path) -> None:
    steps = plan(read_file(recipe), root / "run", changes=["init_from=tiny", "seed=8"])
    assert [one.init_from for _, one in steps] == [
        "tiny",
        *(str(root / "run" / name / "last.safetensors") for name in ("first", "more")),
    ]
    assert [one.seed for _, one in steps] == [8, 8, 8]


def test_a_mistake_in_the_last_stage_is_told_before_the_first(root: Path, recipe: Path) -> None:
    recipe.write_text(recipe.read_text() + "augment.crob = 3\n")
    with pytest.raises(UserError, match=r"unknown key augment\.crob; did you mean crop"):
        plan(read_file(recipe), root / "run")


@pytest.mark.parametrize(
    ("key", "names"),
    [
        ('data.sources = [{ type = "folders", images = "photos", labels = "nowhere" }]', "nowhere"),
        ('evaluate.sources = [{ type = "list", file = "gone.lst" }]', "gone.lst"),
    ],
)
def test_data_that_the_last_stage_lacks_is_told_before_the_first(
    root: Path, recipe: Path, capsys: pytest.CaptureFixture[str], key: str, names: str
) -> None:
    recipe.write_text(recipe.read_text() + key + "\n")
    assert call(recipe, "-o", root / "run") == 2
    told = capsys.readouterr().err
    assert "stage final: " in told
    assert names in told
    assert not (root / "run").exists()


def test_stages_go_on_where_the_folder_was_moved_to(root: Path, recipe: Path) -> None:
    """`init_from` names a file in the output folder; it counts as the same where its content is."""
    file = read_file(recipe)
    for folder, one in plan(file, root / "run")[:2]:
        if folder.name == "first":
            assert train(one, folder)
        else:
            stop_after(one, folder, 1)
    (root / "run").rename(root / "moved")
    ((folder, one), *_) = plan(file, root / "moved")
    assert train(one, folder)
    (root / "moved/first/last.safetensors").write_bytes((root / "moved/more/last.safetensors").read_bytes())
    (root / "moved").rename(root / "again")
    ((folder, one), *_) = plan(file, root / "again")
    with pytest.raises(UserError, match="another init_from"):
        train(one, folder)


def test_two_processes_train_all_stages(root: Path, recipe: Path) -> None:
    assert call(recipe, "-o", root / "one") == 0
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "pixeldiff"]
    done = subprocess.run(
        [sys.executable, *launcher, "train", str(recipe), "-o", str(root / "two")],
        env=QUIET,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    a, b = (load_file(root / name / "final/last.safetensors") for name in ("one", "two"))
    assert all(torch.allclose(a[key], b[key], atol=1e-4) for key in a)


def test_a_run_of_a_table_and_set(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = root / "table.toml"
    table.write_text(recipe_text(root, epochs=0.5) + '[variant.plain]\nmodel.pattern = "baseline"\n[variant.carv]\n')
    changes = ("--set", "seed=9", "--set", "schedule.samples=4")
    assert call(table, "--variant", "plain", *changes, "-o", root / "run") == 0
    described = read_metadata(root / "run/last.safetensors")
    assert (described["config"]["pattern"], described["recipe"]["seed"], described["steps"]) == ("v" * 16, 9, 1)
    capsys.readouterr()
    for words, says in (
        ((table,), "choose with --variant: plain, carv"),
        ((table, "--variant", "c17"), "no variant 'c17'; choose with --variant: plain, carv"),
        ((table, "--variant", "plain", "--set", "sed=1"), "unknown key 'sed' in the recipe; did you mean seed?"),
        (("edges/tyni",), "no recipe edges/tyni; there are classes/bipidinet18"),
        (("edges/tiny", "--stage", "last"), "choose with --stage: first, more, rotated, final"),
        (("edges/tiny", "--variant", "carv"), "edges/tiny has no variant 'carv'"),
    ):
        assert call(*words, "-o", root / "other") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert says in line
    assert not (root / "other").exists()


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["recipes", *words])
    assert not ended.value.code
    return capsys.readouterr().out


def test_recipes_are_listed_with_their_numbers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = listed(capsys)
    assert "edges/tiny " in text
    assert "stages: first, more, rotated, final" in text
    assert max(map(len, text.splitlines())) <= 100
    one = listed(capsys, "edges/patterns")
    assert "c16       ODS .767, OIS .786" in one
    assert one.splitlines()[-1] == "pixeldiff train edges/patterns --variant NAME -o DIR"
    content: dict[str, Any] = json.loads(listed(capsys, "--json", "-"))
    assert content["command"] == "recipes"
    by_name = {row["recipe"]: row for row in content["results"]}
    assert by_name["classes/cifar100"]["task"] == "classes"
    assert by_name["edges/nyud"]["variants"][0]["reference"] == read_recipe("edges/nyud", variant="rgb").reference
    listed(capsys, "edges/tiny", "--json", str(tmp_path / "tiny.json"))
    (row,) = json.loads((tmp_path / "tiny.json").read_text())["results"]
    assert row["stages"][0]["table"]["optimizer"] == {"lr": 0.004}


@pytest.mark.parametrize("name", ["edges/tiny", "edges/patterns", "edges/bsds500"])
def test_resolved_recipes_are_toml(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = read_file(name)
    tables = list({**file.variants, **file.stages}.values()) or [file.shared]
    assert [tomllib.loads(text) for text in listed(capsys, name, "--resolved").split("\n\n")] == tables


def test_listing_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None\nfrom pixeldiff.cli import main\nmain(['recipes'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "edges/tiny" in done.stdout) == (0, True), done.stderr
