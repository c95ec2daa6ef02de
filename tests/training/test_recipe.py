"""Recipes: parsing, what is refused and how, inheritance, and every shipped file."""

import dataclasses
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import create_model, model_config
from pixeldiff.training.recipe import Recipe, as_table, parse_recipe, read_recipe
from pixeldiff.training.recipe_file import RecipeFile, changed, names, read_file, tomllib

SOURCE = {"type": "bsds500", "split": "train"}
MINIMAL = {
    "task": "edges",
    "model": {"name": "tiny"},
    "data": {"root": "x", "sources": [SOURCE]},
    "schedule": {"samples": 240},
}
FILES = [read_file(name) for name in names()]
SHIPPED = [
    *((file.name, {"variant": variant}) for file in FILES for variant in file.variants),
    *((file.name, {"stage": stage}) for file in FILES for stage in file.stages),
    *((file.name, {}) for file in FILES if not file.variants and not file.stages),
]


def build(recipe: Recipe) -> None:
    with torch.device("meta"):  # shapes without weights
        create_model(**recipe.model)


@pytest.mark.parametrize(("name", "part"), SHIPPED, ids=["-".join([name, *part.values()]) for name, part in SHIPPED])
def test_shipped_recipe_builds(name: str, part: dict[str, str]) -> None:
    recipe = read_recipe(name, **part)
    assert recipe.task == name.partition("/")[0], "folders are tasks"
    assert recipe.description
    build(recipe)


def test_defaults_are_the_papers() -> None:
    recipe = parse_recipe(MINIMAL)
    assert (recipe.optimizer.lr, recipe.optimizer.betas, recipe.optimizer.weight_decay) == (0.005, (0.9, 0.99), 1e-4)
    assert (recipe.schedule.name, recipe.schedule.milestones, recipe.schedule.factor) == ("multistep", (0.5, 0.8), 0.1)
    assert (recipe.loss.eta, recipe.loss.balance, recipe.train.step_size, recipe.steps) == (0.3, 1.1, 24, 10)


def test_as_table_round_trip() -> None:
    recipe = parse_recipe({**MINIMAL, "seed": 7, "schedule": {"samples": 300, "milestones": [0.1, 0.7]}})
    assert parse_recipe(json.loads(json.dumps(as_table(recipe)))) == recipe


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sed": 1}, ["sed", "did you mean seed"]),
        ({"optimizer": {"learning": 1}}, ["optimizer.learning", "lr"]),
        ({"loss": {"ete": 0.3}}, ["loss.ete", "did you mean eta"]),
        ({"optimizer": {"lr": "big"}}, ["optimizer.lr", "number", "big"]),
        ({"train": {"batch_size": 2.5}}, ["train.batch_size", "integer"]),
        ({"train": {"batch_size": True}}, ["train.batch_size", "integer"]),
        ({"train": {"compile": 1}}, ["train.compile", "true or false"]),
        ({"train": {"grad_accum_steps": 0}}, ["train.grad_accum_steps"]),
        ({"train": {"batch_size": 10**4, "grad_accum_steps": 10**4}}, ["train.batch_size", "million"]),
        ({"train": {"precision": "fp16"}}, ["train.precision", "bf16"]),
        ({"optimizer": {"betas": [0.9]}}, ["optimizer.betas", "list of 2"]),
        ({"schedule": {"samples": 9, "name": "linear"}}, ["schedule.name", "cosine"]),
        ({"schedule": {"samples": 0}}, ["schedule.samples"]),
        ({"schedule": {}}, ["schedule.samples"]),
        ({"schedule": {"samples": 2.5}}, ["schedule.samples", "integer"]),
        ({"data": {"root": "x"}}, ["data.sources"]),
        ({"data": {"root": "x", "sources": []}}, ["data.sources"]),
        ({"data": {"root": "x", "sources": "train"}}, ["data.sources", "list of tables"]),
        ({"data": {"root": "x", "sources": [SOURCE, {**SOURCE, "splt": ""}]}}, ["data.sources[1].splt", "split"]),
        ({"data": {"root": "x", "sources": [{**SOURCE, "fraction": 1}, SOURCE]}}, ["fraction", "data.sources"]),
        ({"augment": {"scale": [0]}}, ["augment.scale"]),
        ({"augment": {"color_jitter": 0.6}}, ["augment.color_jitter", "0.6"]),
        ({"model": {"width": 3}}, ["[model]", "name"]),
        ({"model": "tiny"}, ["model", "table"]),
        ({"train": 3}, ["train", "table"]),
        ({"task": "edge"}, ["edge", "edges"]),
        ({"loss": {"eta": 0}}, ["loss.eta"]),
        ({"train": {"ema_decay": 1}}, ["train.ema_decay"]),
        ({"evaluate": {"every": 0}}, ["evaluate.every"]),
        ({"model": {"name": "tiny", "widht": 3}}, ["model.widht", "did you mean width"]),
        ({"model": {"name": "tiny", "cdcm": "false"}}, ["model.cdcm", "true or false"]),
        ({"model": {"name": "tiny", "width": "20"}}, ["model.width", "integer"]),
        ({"model": {"name": "small-ish"}}, ["small-ish", "small-l"]),
        ({"train": {"log_every": 0}}, ["train.log_every"]),
        ({"train": {"workers": -1}}, ["train.workers"]),
        ({"optimizer": {"lr": -1}}, ["optimizer.lr"]),
        ({"seed": -1}, ["seed"]),
        ({"seed": 2**32}, ["seed", "4294967296"]),
        ({"schedule": {"samples": math.inf}}, ["schedule.samples"]),
        ({"model": {"name": "resnet18_cifar"}}, ["resnet18_cifar", "edges", "tiny"]),
        ({"task": "classes", "data": {"root": "x"}}, ["tiny", "classes", "bipidinet18"]),
        ({"augment": {"crop": 4}}, ["augment.crop", "at least 8"]),
        ({"augment": {"pad": "reflect"}}, ["augment.pad", "augment.crop"]),
        ({"augment": {"crop": 16, "pad": "zeros"}}, ["augment.pad", "zeros"]),
        ({"evaluate": {"max_dist": -1.0}}, ["evaluate.max_dist"]),
        ({"augment": {"scale": [math.nan]}}, ["augment.scale", "finite"]),
        ({"augment": {"scale": [1.0, 150]}}, ["augment.scale", "100"]),
        ({"loss": {"balance": -1}}, ["loss.balance"]),
        ({"schedule": {"samples": 9, "factor": 0}}, ["schedule.factor"]),
        ({"schedule": {"samples": 9, "milestones": [0.5, 16]}}, ["schedule.milestones", "16"]),
        ({"optimizer": {"lr": math.inf}}, ["optimizer.lr", "finite"]),
    ],
)
def test_mistakes_name_the_key(change: dict, words: list[str]) -> None:
    with pytest.raises(UserError) as error:
        parse_recipe({**MINIMAL, **change})
    for word in words:
        assert word in str(error.value)


def test_extends_changes_one_line(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(TABLE)
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
    assert parse_recipe(tomllib.loads(block)).data.sources[0].type == "folders"


def test_the_documented_classifier_parses() -> None:
    text = (Path(__file__).parents[2] / "docs/guide/binary.md").read_text()
    recipe = parse_recipe(tomllib.loads(text.split("```toml\n")[1].split("```")[0]))
    assert (recipe.model["classes"], recipe.data.dataset, recipe.data.size) == (3, "folder", 96)
    assert create_model(**recipe.model)(torch.zeros(2, 3, recipe.data.size, recipe.data.size)).shape == (2, 3)
    for table in (recipe.data, recipe.augment, recipe.loss, recipe.evaluate, model_config("bipidinet18")):
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
    for table in ("data", "augment", "loss", "optimizer", "schedule", "train", "evaluate"):
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
data.sources = [{ type = "list", file = "a.lst" }]
schedule.samples = 480
seed = 5
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str, name: str = "mine.toml") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


def test_variants_and_stages_change_the_shared_keys(written) -> None:
    table = written(
        TABLE + '[variant.plain]\nmodel.pattern = "baseline"\n[variant.long]\nschedule.samples = 960\nseed = 6\n'
    )
    assert list(read_file(table).variants) == ["plain", "long"]
    plain, long = read_recipe(table, variant="plain"), read_recipe(table, variant="long")
    assert (plain.model, plain.seed, plain.steps) == ({"name": "tiny", "pattern": "baseline"}, 5, 20)
    assert (long.model, long.seed, long.steps) == ({"name": "tiny"}, 6, 40)
    more = written('extends = "mine.toml"\n[[stage]]\nname = "b"\n[[stage]]\nname = "a"\nseed = 7\n', "more.toml")
    assert (read_file(more).variants, list(read_file(more).stages)) == ({}, ["b", "a"]), "variants are not inherited"
    assert [read_recipe(more, stage=name).seed for name in ("b", "a")] == [5, 7]


def test_wrong_parts_are_told_with_what_there_is(written) -> None:
    one, table = written(TABLE), written(TABLE + "[variant.x]\n[variant.y]\n", "table.toml")
    stages = written(TABLE + '[[stage]]\nname = "first"\n', "stages.toml")
    for recipe, part, says in (
        (table, {}, "not one recipe; choose with --variant: x, y"),
        (table, {"variant": "z"}, "no variant 'z'; choose with --variant: x, y"),
        (table, {"stage": "z"}, "no stage 'z'; choose with --variant: x, y"),
        (stages, {"variant": "z"}, "no variant 'z'; choose with --stage: first"),
        (stages, {"stage": "z"}, "no stage 'z'; choose with --stage: first"),
        (one, {"variant": "z"}, "no variant 'z'; it is one recipe"),
        (table, {"variant": "x", "stage": "z"}, "not both"),
        ("edges/patern", {}, "no recipe edges/patern; there are .*edges/patterns"),
    ):
        with pytest.raises(UserError, match=says) as refused:
            read_recipe(recipe, **part)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("variant = 3", r"write \[variant.NAME\]"),
        ("[[variant]]\nseed = 1", r"write \[variant.NAME\]"),
        ("[variant]\nseed = 1", r"write \[variant.NAME\]"),
        ('[variant."../x"]', "letters, digits"),
        ("grid = 3", r"write \[grid\]"),
        ("[grid]\nseed = 3", r"grid\.seed is a list of values, got 3"),
        ("[grid]\nseed = []", "list of values"),
        (f"[grid]\nseed = {list(range(40))}\nloss.eta = {list(range(40))}", "1600 variants"),
        ('[grid]\nmodel.name = ["../x"]', "letters, digits"),
        ("stage = 3", r"write \[\[stage\]\]"),
        ("[[stage]]\nseed = 1", r"write \[\[stage\]\]"),
        ('[[stage]]\nname = "../x"', "letters, digits"),
        ('[[stage]]\nname = "a"\n[[stage]]\nname = "a"', "two stages named a"),
        ('[variant.x]\n[[stage]]\nname = "a"', "variants and stages"),
    ],
)
def test_parts_of_the_wrong_shape(written, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_file(written(TABLE + text))


def test_a_grid_has_a_variant_for_each_combination(written) -> None:
    grid = '[grid]\nmodel.name = ["tiny", "small"]\nloss.eta = [0.3, 0.5]\n'
    path = written(TABLE + grid + '[variant]\n"tiny-0.5".reference = "ODS .7"\n[variant.plain]\nseed = 6\n')
    assert list(read_file(path).variants) == ["tiny-0.3", "tiny-0.5", "small-0.3", "small-0.5", "plain"]
    recipe = read_recipe(path, variant="tiny-0.5")
    assert (recipe.model, recipe.loss.eta, recipe.reference) == ({"name": "tiny"}, 0.5, "ODS .7")


def test_set_changes_any_key(written) -> None:
    changes = ["seed=9", "model.pattern=c16", "train.ema_decay = 0.5", "reference=a = b", "loss.eta=1"]
    changes.append('data.sources=[{type = "folders", images = "C:/b", labels = "C:/c"}]')
    recipe = read_recipe(written(TABLE), changes=changes)
    assert (recipe.seed, recipe.model["pattern"], recipe.data.sources[0].labels) == (9, "c16", "C:/c")
    assert (recipe.train.ema_decay, recipe.reference, recipe.loss.eta, recipe.data.root) == (0.5, "a = b", 1.0, "x")
    table = {"train": {"batch_size": 3}}
    assert changed(table, ["train.batch_size=4"]) == {"train": {"batch_size": 4}}
    assert table == {"train": {"batch_size": 3}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("seed", "invalid --set 'seed'; expected key=value"),
        ("=3", "expected key=value"),
        ("sed=1", "unknown key 'sed' in the recipe; did you mean seed"),
        ("train.workrs=1", "unknown key train.workrs; did you mean workers"),
        ("model.cdcm=False", "model.cdcm must be true or false, got 'False'"),
        ("optimizer.betas=[0.9", "optimizer.betas must be a list of 2"),
        ("seed=1\ntrain.workers=2", "seed must be an integer"),
        ("train=3", "train is a table"),
        ("seed=9223372036854775808", "--set has an integer beyond 64 bits"),
        ("a.b.c.d.e.f.g.h.i.j=1", "--set is nested too deeply"),
        ("variant.x=1", "unknown key 'variant'"),
    ],
)
def test_mistakes_of_set_are_told_as_those_of_a_file(written, change: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        read_recipe(written(TABLE), changes=[change])


def effective(recipe: Recipe) -> dict[str, Any]:
    """What a recipe trains: without texts and what sources leave empty, its length in steps."""
    table = as_table(recipe)
    for part in (table["data"], table["evaluate"]):
        if "sources" in part:
            part["sources"] = [{key: value for key, value in source.items() if value} for source in part["sources"]]
    base, model = model_config(recipe.model["name"]), create_config(recipe)
    changes = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    table["model"] = [recipe.model["name"], {k: v for k, v in changes.items() if v != getattr(base, k)}]
    schedule, milestones = recipe.schedule, [round(m, 3) for m in recipe.schedule.milestones]
    table["schedule"] = [schedule.name, recipe.steps, schedule.warmup_steps]
    if schedule.name == "multistep":
        table["schedule"] += [milestones, schedule.factor]
    return {key: value for key, value in table.items() if key not in ("description", "reference")}


def create_config(recipe: Recipe) -> Any:
    changes = {key: value for key, value in recipe.model.items() if key != "name"}
    return dataclasses.replace(model_config(recipe.model["name"]), **changes)


def test_shipped_recipes_train_what_they_did() -> None:
    """After a change on purpose, replace the digests by those that this test prints."""
    digests = {}
    for name, part in SHIPPED:
        content = json.dumps(effective(read_recipe(name, **part)), sort_keys=True, default=list)
        digests[" ".join([name, *part.values()])] = hashlib.sha256(content.encode()).hexdigest()[:12]
    recorded = json.loads((Path(__file__).parent / "recipe_digests.json").read_text())
    assert digests.keys() == recorded.keys()
    assert {name: digest for name, digest in digests.items() if digest != recorded[name]} == {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_recipes_have_one_style(file: RecipeFile) -> None:
    """Dotted keys as in --set, sources one per line, quotes and digits as in the guide, lines of 120 characters."""
    text = file.path.read_text()
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\n\n\n" not in text
    for line in text.splitlines():
        code = line.partition("  # ")[0]
        assert line == line.rstrip()
        assert len(line) <= 120 or "type =" in line, line
        if code.startswith("["):
            assert re.fullmatch(r"\[\[stage\]\]|\[grid\]|\[variant\]|\[variant\.([\w-]+|\"[\w.-]+\")\]", code), line
        elif code and not code.startswith(("#", "    ", "]")):
            assert re.match(r"""[\w."-]+ = \S""", code), line
            assert not re.search(r"(?<![\w.])\d{4,}(?![\w.])", re.sub(r'"[^"]*"', "", code)), f"write 1_000: {line}"
        assert "'" not in re.sub(r'"[^"]*"', "", code) or code.startswith("#"), line
    keys = list(file.shared)
    order = ("task", "description", "reference", "seed", "init_from", "model", "data", "augment", "loss", "evaluate")
    own = [line.partition(" =")[0].partition(".")[0] for line in text.partition("\n[")[0].splitlines() if " = " in line]
    own = [key for key in dict.fromkeys(own) if key in (*order, "optimizer", "schedule", "train") and key in keys]
    assert own == sorted(own, key=(*order, "optimizer", "schedule", "train").index)
