"""Shipped weights: each card is recomputed from its files; and the script that writes cards."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from pixeldiff import weights
from pixeldiff.checkpoint import load_model, save_model
from pixeldiff.models import create_model
from pixeldiff.recipe import read_recipe

ROOT = Path(__file__).parent.parent


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
    if card["task"] == "edges":
        check_card(card, weights.FOLDER)
        assert 0 < card["ods"] <= card["ois"] < 1
    assert (ROOT / card["recipe"]).exists()
    read_recipe(ROOT / card["recipe"])
    assert card["licence"]
    assert card["command"].startswith("pixeldiff ")


def test_every_shipped_file_has_a_card() -> None:
    files = {path.stem for suffix in ("onnx", "safetensors") for path in weights.FOLDER.glob(f"*.{suffix}")}
    assert files <= weights.cards().keys()


def test_ship_writes_files_and_a_true_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("ship", ROOT / "tools/ship.py")
    ship = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ship)
    package = tmp_path / "package"
    package.mkdir()
    monkeypatch.setattr(ship, "FOLDER", package)
    torch.manual_seed(0)
    described = {"task": "edges", "commit": "abc", "steps": 3, "wall_clock_hours": 0.5, "recipe": {"seed": 4}}
    save_model(create_model("tiny", width=4, side_channels=2), tmp_path / "last.safetensors", described)
    scores = {"ods": 0.70004, "ois": 0.72, "ap": 0.6, "r50": 0.9}
    path = ship.ship(
        "pidinet_tiny", tmp_path / "last.safetensors", scores, recipe="recipes/x.toml", data="pictures", note="small"
    )
    card = json.loads(path.read_text())
    check_card(card, package)
    assert (card["name"], card["ods"], card["seed"], card["wall_clock_hours"]) == ("tiny", 0.7, 4, 0.5)
    assert card["files"].keys() == {".onnx", ".safetensors"}
    assert "non-commercial" in card["licence"]
