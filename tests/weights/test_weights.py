"""Shipped weights: each card is recomputed from its files; and the script that writes cards."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.errors import UserError
from pixeldiff.inference.classes import Classifier
from pixeldiff.tasks import find_task
from tests.extras import optional
from tests.scripts import load_script

torch = optional("torch")
FAMILIES = optional("pixeldiff.models").FAMILIES
create_model = optional("pixeldiff.models").create_model
load_model = optional("pixeldiff.models.saving").load_model
read_metadata = optional("pixeldiff.models.saving").read_metadata
save_model = optional("pixeldiff.models.saving").save_model
as_table = optional("pixeldiff.training.recipe").as_table
parse_recipe = optional("pixeldiff.training.recipe").parse_recipe
read_recipe = optional("pixeldiff.training.recipe").read_recipe


def check_card(card: dict, folder: Path) -> None:
    """Sizes, hashes and the parameter count are those of the files."""
    for suffix, facts in card["files"].items():
        path = folder / f"{card['name']}{suffix}"
        assert facts == {"bytes": path.stat().st_size, "sha256": weights.sha256(path)}
    model = load_model(folder / f"{card['name']}.safetensors")
    assert card["params"] == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", weights.cards())
def test_card_is_true(name: str) -> None:
    card = weights.cards()[name]
    if not (weights.FOLDER / f"{name}.safetensors").exists():
        pytest.skip("wheels of a release leave it out")
    check_card(card, weights.FOLDER)
    metadata = read_metadata(weights.FOLDER / f"{name}.safetensors")
    scores = [card[key] for key in find_task(card["task"]).scores]
    if card["task"] == "edges":
        assert 0 < card["ods"] <= card["ois"] < 1
    else:
        assert all(0 < score < 100 for score in scores)
    for suffix in card["files"]:  # each file says the same of the network
        said = weights.describe(weights.FOLDER / f"{name}{suffix}")
        assert (said["name"], said["task"], said["license"]) == (name, card["task"], card["license"])
        assert said["preprocessing"] == FAMILIES[metadata["family"]].preprocessing(load_model(name).config)
        assert len(said.get("labels", ())) == {"classes": 100, "objects": 20}.get(card["task"], 0)
    script = load_script("tools/ship.py")
    assert script.decisive(parse_recipe(metadata["recipe"])) == script.decisive(
        read_recipe(**script.recipe_words(card))
    )
    assert card["license"]
    assert card["command"].startswith("pixeldiff ")


def test_a_file_called_like_a_network_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").write_text("notes")
    assert weights.runtime_file("tiny") == weights.FOLDER / "tiny.safetensors"
    assert weights.training_file("tiny") == weights.FOLDER / "tiny.safetensors"
    assert weights.runtime_file("./tiny") == weights.training_file("./tiny") == Path("tiny")


def test_every_shipped_file_has_a_card() -> None:
    files = {path.stem for suffix in ("pdn", "safetensors") for path in weights.FOLDER.glob(f"*.{suffix}")}
    assert files <= weights.cards().keys()


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of its own in place of the package's."""
    pytest.importorskip("torch")
    module = load_script("tools/ship.py")
    (tmp_path / "package").mkdir()
    monkeypatch.setattr(module, "FOLDER", tmp_path / "package")
    torch.manual_seed(0)
    return module


def facts(recipe: str, **part: str) -> dict[str, str]:
    return {"recipe": recipe, **part, "data": "images", "note": "small"}


def described(recipe: str, **part: str) -> dict[str, Any]:
    table = as_table(read_recipe(recipe, **part))
    return {"task": table["task"], "commit": "abc", "steps": 3, "wall_clock_hours": 0.5, "recipe": table}


def test_ship_an_edge_network(ship: ModuleType, tmp_path: Path) -> None:
    weights_file = tmp_path / "last.safetensors"
    tiny, small = ({"recipe": f"edges/{name}", "stage": "first"} for name in ("tiny", "small"))
    trained = described(**tiny)
    trained["recipe"] |= {
        "init_from": "/home/me/first.safetensors",
        "data": {**trained["recipe"]["data"], "root": "/home/me"},
    }
    save_model(create_model("tiny", width=4, side_channels=2), weights_file, trained)
    scores = {"ods": 0.70004, "ois": 0.72, "ap": 0.6, "r50": 0.9, "sha256": weights.sha256(weights_file)}
    with pytest.raises(click.UsageError, match=r"edges/small first is not .* differ"):
        ship.ship("little", weights_file, scores, **facts(**small))
    with pytest.raises(click.UsageError, match="not the weights of a tiny"):
        ship.ship("pidinet_tiny", weights_file, scores, **facts(**tiny))
    with pytest.raises(click.UsageError, match="scores are of test, these of val"):
        ship.ship("little", weights_file, {**scores, "split": "val"}, **facts(**tiny))
    with pytest.raises(click.UsageError, match="of one scale without flips; score again without flip"):
        ship.ship("little", weights_file, {**scores, "flip": True}, **facts(**tiny))
    assert not list(ship.FOLDER.iterdir())
    chosen = facts(**tiny, terms="VOC's photographs are Flickr's")
    card = json.loads(ship.ship("pidinet_little", weights_file, scores, **chosen).read_text())
    check_card(card, ship.FOLDER)
    assert (card["name"], card["ods"], card["seed"], card["wall_clock_hours"]) == ("little", 0.7, 0, 0.5)
    assert card["files"].keys() == {".safetensors"}
    assert (card["recipe"], card["stage"], "variant" in card) == ("edges/tiny", "first", False)
    assert card["license"].endswith("for non-commercial research and education; VOC's photographs are Flickr's")
    assert weights.describe(ship.FOLDER / "little.safetensors")["license"] == card["license"]
    assert b"/home/me" not in (ship.FOLDER / "little.safetensors").read_bytes()


def test_ship_a_binary_classifier(ship: ModuleType, tmp_path: Path) -> None:
    weights_file = tmp_path / "last.safetensors"
    model = create_model("resnet18_bipdc_cifar", width=0.125)
    study = {"recipe": "classes/cifar100-quarter", "variant": "bicpdc"}
    save_model(model, weights_file, {"labels": [f"class {i}" for i in range(100)], **described(**study)})
    scores = {"top1": 41.5, "top5": 70.25, "sha256": weights.sha256(weights_file)}
    for wrong in ({"results": [scores]}, {**scores, "sha256": "0"}):  # nothing may be replaced then
        with pytest.raises(click.UsageError, match="not the scores of"):
            ship.ship("small-cifar100", weights_file, wrong, **facts(**study))
    assert not list(ship.FOLDER.iterdir())
    card = json.loads(ship.ship("small-cifar100", weights_file, scores, **facts(**study)).read_text())
    check_card(card, ship.FOLDER)
    assert card["files"].keys() == {".pdn", ".safetensors"}
    assert (card["task"], card["top1"]) == ("classes", 41.5)
    assert (card["recipe"], card["variant"], "stage" in card) == ("classes/cifar100-quarter", "bicpdc", False)
    packed = Classifier(ship.FOLDER / "small-cifar100.pdn")
    assert (packed.name, packed.labels[7]) == ("small-cifar100", "class 7")


def test_ship_takes_the_file_that_eval_writes(ship: ModuleType, tmp_path: Path) -> None:
    weights_file, scores_file = tmp_path / "last.safetensors", tmp_path / "scores.json"
    tiny = {"recipe": "edges/tiny", "stage": "first"}
    save_model(create_model("tiny", width=4, side_channels=2), weights_file, described(**tiny))
    scores = {"ods": 0.7, "ois": 0.72, "ap": 0.6, "sha256": weights.sha256(weights_file)}
    words = [f"--{key}={value}" for key, value in facts(**tiny).items()]
    _json.write(str(scores_file), "eval", [scores, scores])
    done = CliRunner().invoke(ship.main, ["little", str(weights_file), str(scores_file), *words])
    assert (done.exit_code, "holds 2 results" in done.output) == (2, True)
    _json.write(str(scores_file), "eval", [scores], overwrite=True)
    done = CliRunner().invoke(ship.main, ["little", str(weights_file), str(scores_file), *words])
    assert done.exit_code == 0, done.output
    check_card(json.loads((ship.FOLDER / "little.json").read_text()), ship.FOLDER)


def test_a_damaged_card_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    for content in (b"{", b"\xff", b"[" * 100_000, b"3"):
        (tmp_path / "tiny.json").write_bytes(content)
        with pytest.raises(UserError, match=r"tiny.json is damaged"):
            weights.cards()
