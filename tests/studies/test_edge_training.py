"""The recorded runs behind the shipped edge networks: the document shows them, the cards agree, the recipes chain."""

import numpy as np
import pytest

from pixeldiff import weights
from pixeldiff.training.recipe_file import read_file
from tests.scripts import ROOT, load_script

STARTS = {  # what `init_from` of a first stage meant: the pretrained models of that time
    "": None,
    "tiny": "edges/tiny final",
    "small": "edges/small final",
    "runs/tiny/more/last.safetensors": "edges/tiny more",
}


@pytest.fixture(scope="module")
def script():
    return load_script("benchmarks/studies/edge_training.py")


def test_documented_table_is_the_recorded_one(script):
    assert script.as_markdown(script.read()) in (ROOT / "docs/results/training.md").read_text()


def test_cards_have_the_recorded_scores(script):
    runs = script.read()
    for card in weights.cards().values():
        if card["task"] == "edges":
            run = runs[script.name_of(card)]
            assert (run["network"], *run["points"][-1][1:]) == (card["name"], card["ods"], card["ois"], card["ap"])


def test_each_run_starts_from_the_one_it_names(script):
    runs = script.read()
    for run in runs.values():
        file = read_file(run["recipe"])
        table = file.table(stage=run.get("stage", ""))
        assert table["model"]["name"] == run["network"]
        stages = list(file.stages)
        before = stages.index(run["stage"]) if stages else 0
        start = STARTS[table.get("init_from", "")]
        assert run["after"] == (f"{run['recipe']} {stages[before - 1]}" if before else start)
    assert script.hours_before(runs, "edges/small first") == pytest.approx(1.5 + 1.8)


def test_curves_are_drawn(script, tmp_path, drawn):
    runs = script.read()
    script.draw(runs, tmp_path / "curves.png")
    lines = drawn[0].axes[0].lines
    assert len(lines) == len(runs)
    for name in {run["network"] for run in runs.values()}:
        assert sum(line.get_label() == name for line in lines) == 1
    ends = sorted(tuple(line.get_xydata()[-1]) for line in lines)
    last = {name: run["points"][-1] for name, run in runs.items()}
    recorded = sorted((script.hours_before(runs, name) + hours, ods) for name, (hours, ods, *_) in last.items())
    np.testing.assert_allclose(ends, recorded)
