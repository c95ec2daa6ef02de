"""Recipes: parsing, what is refused and how, inheritance, and every shipped file."""

import dataclasses
import json
import math
from pathlib import Path

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import create_model, model_config
from pixeldiff.training.recipe import Recipe, as_table, parse_recipe, read_recipe
from pixeldiff.training.recipe_file import changed, names, read_file, tomllib

MINIMAL = {"task": "edges", "model": {"name": "tiny"}, "data": {"root": "x", "sources": ["train"]}}
FILES = [read_file(name) for name in names()]
SHIPPED = [
    *((file.name, {"run": run}) for file in FILES for run in file.runs),
    *((file.name, {"stage": stage}) for file in FILES for stage in file.stages),
    *((file.name, {}) for file in FILES if not file.runs and not file.stages),
]


def build(recipe: Recipe) -> None:
    with torch.device("meta"):  # shapes without weights
        create_model(**recipe.model)


@pytest.mark.parametrize(("name", "part"), SHIPPED, ids=["-".join([name, *part.values()]) for name, part in SHIPPED])
def test_shipped_recipe_builds(name: str, part: dict[str, str]) -> None:
    recipe = read_recipe(name, **part)
    assert recipe.task == name.partition("/")[0], "folders are tasks"
    assert recipe.paper, "each recipe names the published number it is for"
    build(recipe)


def test_defaults_are_the_papers() -> None:
    recipe = parse_recipe(MINIMAL)
    assert (recipe.optimizer.lr, recipe.optimizer.betas, recipe.optimizer.weight_decay) == (0.005, (0.9, 0.99), 1e-4)
    assert (recipe.schedule.epochs, recipe.schedule.milestones, recipe.schedule.factor) == (20, (10, 16), 0.1)
    assert (recipe.loss.eta, recipe.loss.balance, recipe.loop.batch) == (0.3, 1.1, 24)


def test_as_table_round_trip() -> None:
    recipe = parse_recipe({**MINIMAL, "seed": 7, "schedule": {"epochs": 3, "milestones": [1, 2.5]}})
    assert parse_recipe(json.loads(json.dumps(as_table(recipe)))) == recipe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sed": 1}, ["sed", "did you mean seed"]),
        ({"optimizer": {"learning": 1}}, ["optimizer.learning", "lr"]),
        ({"loss": {"ete": 0.3}}, ["loss.ete", "did you mean eta"]),
        ({"optimizer": {"lr": "big"}}, ["optimizer.lr", "number", "big"]),
        ({"loop": {"batch": 2.5}}, ["loop.batch", "whole number"]),
        ({"loop": {"batch": True}}, ["loop.batch", "whole number"]),
        ({"loop": {"compile": 1}}, ["loop.compile", "true or false"]),
        ({"loop": {"batch": 5, "accumulate": 2}}, ["loop.batch", "multiple"]),
        ({"optimizer": {"betas": [0.9]}}, ["optimizer.betas", "list of 2"]),
        ({"schedule": {"kind": "linear"}}, ["schedule.kind", "cosine"]),
        ({"schedule": {"epochs": 0}}, ["schedule.epochs"]),
        ({"data": {"root": "x"}}, ["data.sources"]),
        ({"data": {"root": "x", "sources": []}}, ["data.sources"]),
        ({"data": {"root": "x", "sources": "train"}}, ["data.sources", "list"]),
        ({"data": {"root": "x", "sources": ["a"], "scales": [0]}}, ["scales"]),
        ({"data": {"root": "x", "sources": ["a"], "color": 0.6}}, ["data.color", "0.6"]),
        ({"model": {"width": 3}}, ["[model]", "name"]),
        ({"model": "tiny"}, ["model", "table"]),
        ({"loop": 3}, ["loop", "table"]),
        ({"task": "edge"}, ["edge", "edges"]),
        ({"loss": {"eta": 0}}, ["loss.eta"]),
        ({"loop": {"ema": 1}}, ["loop.ema"]),
        ({"evaluate": {"every": 0}}, ["evaluate.every"]),
        ({"model": {"name": "tiny", "widht": 3}}, ["model.widht", "did you mean width"]),
        ({"model": {"name": "tiny", "cdcm": "false"}}, ["model.cdcm", "true or false"]),
        ({"model": {"name": "tiny", "width": "20"}}, ["model.width", "whole number"]),
        ({"model": {"name": "small-ish"}}, ["small-ish", "small-l"]),
        ({"loop": {"log_steps": 0}}, ["loop.log_steps"]),
        ({"loop": {"workers": -1}}, ["loop.workers"]),
        ({"optimizer": {"lr": -1}}, ["optimizer.lr"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**32}, ["seed", "4294967296"]),
        ({"schedule": {"epochs": math.inf}}, ["schedule.epochs"]),
        ({"model": {"name": "resnet18_cifar"}}, ["resnet18_cifar", "edges", "tiny"]),
        ({"task": "classes", "data": {"root": "x"}}, ["tiny", "classes", "bipidinet18"]),
        ({"data": {"root": "x", "sources": ["a"], "crop": 4}}, ["data.crop", "at least 8"]),
        ({"data": {"root": "x", "sources": ["a"], "fill": True}}, ["data.fill", "data.crop"]),
        ({"evaluate": {"max_dist": -1.0}}, ["evaluate.max_dist"]),
        ({"data": {"root": "x", "sources": ["a"], "scales": [math.nan]}}, ["data.scales", "finite"]),
        ({"data": {"root": "x", "sources": ["a"], "scales": [1.0, 150]}}, ["scales", "100"]),
        ({"loss": {"balance": -1}}, ["loss.balance"]),
        ({"schedule": {"factor": 0}}, ["schedule.factor"]),
        ({"schedule": {"milestones": [30, -5]}}, ["schedule.milestones", "-5"]),
        ({"optimizer": {"lr": math.inf}}, ["optimizer.lr", "finite"]),
    ],
)
def test_mistakes_name_the_key(change: dict, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        parse_recipe({**MINIMAL, **change})
    for word in words:
        assert word in str(error.value)


def test_extends_changes_one_line(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('task = "edges"\n[model]\nname = "tiny"\n[data]\nroot = "x"\nsources = ["a"]\n')
    (tmp_path / "other.toml").write_text('extends = "base.toml"\nmodel.pattern = "baseline"\n')
    base, other = read_recipe(tmp_path / "base.toml"), read_recipe(tmp_path / "other.toml")
    assert other == dataclasses.replace(base, model={"name": "tiny", "pattern": "baseline"})


def test_extends_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('extends = "b.toml"')
    (tmp_path / "b.toml").write_text('extends = "a.toml"')
    with pytest.raises(UserError, match="extends itself"):
        read_recipe(tmp_path / "a.toml")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no recipe"):
        read_recipe(tmp_path / "none.toml")
    with pytest.raises(UserError, match="is a folder, not a recipe"):
        read_recipe(tmp_path)
    (tmp_path / "broken.toml").write_text("task = [")
    with pytest.raises(UserError, match="not readable TOML"):
        read_recipe(tmp_path / "broken.toml")


def test_the_documented_recipe_parses() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/training.md").read_text()
    block = text.split("```toml\n")[1].split("```")[0]
    assert parse_recipe(tomllib.loads(block)).data.sources == ("photos:edges",)


def test_the_documented_classifier_parses() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/binary.md").read_text()
    recipe = parse_recipe(tomllib.loads(text.split("```toml\n")[1].split("```")[0]))
    assert (recipe.model["classes"], recipe.data.dataset, recipe.data.size) == (3, "folder", 96)
    assert create_model(**recipe.model)(torch.zeros(2, 3, recipe.data.size, recipe.data.size)).shape == (2, 3)
    for table in (recipe.data, recipe.loss, recipe.evaluate, model_config("bipidinet18")):
        for field in dataclasses.fields(table):
            assert f"`{field.name}`" in text, field.name


def test_the_documentation_names_every_recipe_and_key() -> None:
    documents = {
        "edges": "docs/guide/training.md",
        "classes": "docs/guide/binary.md",
        "faces": "docs/guide/faces.md",
        "objects": "docs/guide/objects.md",
    }
    texts = {task: (Path(__file__).parents[2] / path).read_text() for task, path in documents.items()}
    for file in FILES:
        assert f"`{file.name}`" in texts[file.name.partition("/")[0]], file.name
    recipe = parse_recipe(MINIMAL)
    for table in ("data", "loss", "optimizer", "schedule", "loop", "evaluate"):
        for field in dataclasses.fields(getattr(recipe, table)):
            assert f"`{field.name}`" in texts["edges"], f"{table}.{field.name}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = " + "[" * 990 + "]" * 990, "nested too deeply"),
        ("x = " + "[\n" * 5000 + "]\n" * 5000, "nested too deeply"),
        (".".join("a" * 900) + " = 1", "nested too deeply"),
        (".".join("a" * 9000) + " = 1", "a line of more than 2000"),
        ("seed = " + "9" * 1900, "beyond 64 bits"),
        ("seed = 0x" + "f" * 1900, "beyond 64 bits"),
        ("seed = 9223372036854775808", "beyond 64 bits"),
        ("# x\n" * 2**15, "larger than 64 KB"),
        ('extends = "\\u0000"', "not readable TOML"),
        ('extends = "' + "x" * 1900 + '"', "not readable TOML"),
        ('extends = "/dev/zero"', "/dev/zero is larger than 64 KB"),
        ("\0", "not readable TOML"),
        ("extends = " + repr(["x" * 90] * 20).replace("'", '"'), "extends names one recipe file"),
    ],
)
def test_recipes_beyond_reason(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError, match=says) as refused:
        read_recipe(tmp_path / "a.toml")
    assert len(str(refused.value).replace("x" * 1900, "")) < 500


def test_long_chains_and_circles_under_other_names(tmp_path: Path) -> None:
    for k in range(30):
        (tmp_path / f"{k}.toml").write_text(f'extends = "{k + 1}.toml"')
    with pytest.raises(UserError, match="extends more than 8 others"):
        read_recipe(tmp_path / "0.toml")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.toml").write_text('extends = "../a/x.toml"')
    with pytest.raises(UserError, match="extends itself"):
        read_recipe(tmp_path / "a" / "x.toml")


TABLE = """
task = "edges"
model.name = "tiny"
data.root = "x"
data.sources = ["a"]
seed = 5
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "mine.toml") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_runs_and_stages_change_the_shared_keys(written) -> None:
    table = written(TABLE + '[run.plain]\nmodel.pattern = "baseline"\n[run.long]\nschedule.epochs = 40\nseed = 6\n')
    assert list(read_file(table).runs) == ["plain", "long"]
    plain, long = read_recipe(table, run="plain"), read_recipe(table, run="long")
    assert (plain.model, plain.seed, plain.schedule.epochs) == ({"name": "tiny", "pattern": "baseline"}, 5, 20)
    assert (long.model, long.seed, long.schedule.epochs) == ({"name": "tiny"}, 6, 40)
    more = written('extends = "mine.toml"\n[[stage]]\nname = "b"\n[[stage]]\nname = "a"\nseed = 7\n', "more.toml")
    assert (read_file(more).runs, list(read_file(more).stages)) == ({}, ["b", "a"]), "runs are not inherited"
    assert [read_recipe(more, stage=name).seed for name in ("b", "a")] == [5, 7]


def test_wrong_parts_are_told_with_what_there_is(written) -> None:
    one, table = written(TABLE), written(TABLE + "[run.x]\n[run.y]\n", "table.toml")
    stages = written(TABLE + '[[stage]]\nname = "first"\n', "stages.toml")
    for recipe, part, says in (
        (table, {}, "which one\\? choose with --run: x, y"),
        (table, {"run": "z"}, "no run 'z'; choose with --run: x, y"),
        (table, {"stage": "z"}, "no stage 'z'; choose with --run: x, y"),
        (stages, {"run": "z"}, "no run 'z'; choose with --stage: first"),
        (stages, {"stage": "z"}, "no stage 'z'; choose with --stage: first"),
        (one, {"run": "z"}, "no run 'z'; it is one recipe"),
        (table, {"run": "x", "stage": "z"}, "not both"),
        ("edges/patern", {}, "no recipe edges/patern; there are .*edges/patterns"),
    ):
        with pytest.raises(UserError, match=says) as refused:
            read_recipe(recipe, **part)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("run = 3", r"write \[run.NAME\]"),
        ("[[run]]\nseed = 1", r"write \[run.NAME\]"),
        ("[run]\nseed = 1", r"write \[run.NAME\]"),
        ('[run."../x"]', "letters, digits"),
        ("stage = 3", r"write \[\[stage\]\]"),
        ("[[stage]]\nseed = 1", r"write \[\[stage\]\]"),
        ('[[stage]]\nname = "../x"', "letters, digits"),
        ('[[stage]]\nname = "a"\n[[stage]]\nname = "a"', "two stages named a"),
        ('[run.x]\n[[stage]]\nname = "a"', "runs and stages"),
    ],
)
def test_parts_of_the_wrong_shape(written, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_file(written(TABLE + text))


def test_set_changes_any_key(written) -> None:
    changes = ["seed=9", "model.pattern=c16", 'data.sources=["b", "c"]', "loop.ema = 0.5", "paper=a = b", "loss.eta=1"]
    recipe = read_recipe(written(TABLE), changes=changes)
    assert (recipe.seed, recipe.model["pattern"], recipe.data.sources) == (9, "c16", ("b", "c"))
    assert (recipe.loop.ema, recipe.paper, recipe.loss.eta, recipe.data.root) == (0.5, "a = b", 1.0, "x")
    table = {"loop": {"batch": 3}}
    assert changed(table, ["loop.batch=4"]) == {"loop": {"batch": 4}}
    assert table == {"loop": {"batch": 3}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("seed", "--set takes key=value.*got 'seed'"),
        ("=3", "--set takes key=value"),
        ("sed=1", "unknown key 'sed' in the recipe; did you mean seed"),
        ("loop.bach=1", "unknown key loop.bach; did you mean batch"),
        ("model.cdcm=False", "model.cdcm takes true or false, got 'False'"),
        ("optimizer.betas=[0.9", "optimizer.betas takes a list of 2"),
        ("seed=1\nloop.batch=2", "seed takes a whole number"),
        ("loop=3", "loop is a table"),
        ("seed=9223372036854775808", "--set has a whole number beyond 64 bits"),
        ("a.b.c.d.e.f.g.h.i.j=1", "--set is nested too deeply"),
        ("run.x=1", "unknown key 'run'"),
    ],
)
def test_mistakes_of_set_are_told_as_those_of_a_file(written, change: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_recipe(written(TABLE), changes=[change])
