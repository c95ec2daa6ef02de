"""The script of the study of faces: which runs, and what its table says."""

import json

import numpy as np
import pytest

from pixeldiff.training.recipe_file import read_file
from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def study():
    return load_script("benchmarks/studies/faces_study.py")


def scores(*folds):
    return {"accuracy": float(np.mean(folds)), "accuracy_error": 0.5, "auc": 0.75, "fold_accuracies": list(folds)}


def test_every_row_of_the_recipe_is_trained(study):
    assert {name for name, _ in study.runs()} == read_file(study.RECIPE).variants.keys()
    assert [run for run in study.runs() if run[1]] == [("vanilla", 1), ("biapdc", 1)]


def test_differences_are_paired_by_seed_and_fold(study):
    table = {
        name: {seed: dict.fromkeys(study.DATASETS, scores(*folds)) for seed, folds in runs.items()}
        for name, runs in {
            "vanilla": {"0": (70, 72), "1": (71, 71)},
            "biapdc": {"0": (71, 74), "1": (71, 72)},
            "float": {"0": (80, 81)},
        }.items()
    }
    found = study.paired_difference(table, "lfw")
    assert (found["mean"], found["of_seeds"]) == (1.0, [1.5, 0.5])
    assert found["standard_error"] == pytest.approx(np.std([1, 2, 0, 1], ddof=1) / 2)
    text = study.as_markdown(table)
    assert "| Bi-APDC, xi 0.2 | 1 | 71.50 +- 0.50 | 0.750 |" in text
    assert "- CFP-FP +1.00 +- 0.41 (seed by seed +1.50, +0.50)" in text
    assert study.paired_difference({}, "lfw") is None


def test_the_documented_table_is_the_recorded_one(study):
    recorded = json.loads((ROOT / "benchmarks/results/faces_study.json").read_text())
    assert study.as_markdown(recorded["runs"]) in (ROOT / "docs/results/faces.md").read_text()
