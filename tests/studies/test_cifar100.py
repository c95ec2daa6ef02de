"""The script of the CIFAR-100 study: which runs, and what its table says."""

import json
import subprocess
import sys

import pytest

from pixeldiff.training.recipe_file import read_file
from tests.scripts import ROOT, load_script

SCRIPT = ROOT / "benchmarks" / "studies/cifar100_study.py"


@pytest.fixture(scope="module")
def study():
    return load_script("benchmarks/studies/cifar100_study.py")


def test_runs(study):
    runs = study.runs()
    assert runs[:6] == [(name, seed) for seed in (0, 1, 2) for name in ("vanilla", "bicpdc")]
    assert sorted(name for name, _ in runs[6:]) == sorted(study.ORDER[2:])
    assert read_file(study.RECIPE).variants.keys() == {name for name, _ in runs}


def finish(folder, top1, top5=80.0):
    folder.mkdir(parents=True)
    lines = [{"step": 5, "seconds": 1.0, "top1": 1.0, "top5": 2.0}, {"step": 9, "seconds": 2.0, "loss": 3.0}]
    lines.append({"step": 10, "seconds": 2.5, "top1": top1, "top5": top5})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_table_of_what_is_finished(tmp_path):
    for seed, vanilla, ours in ((0, 40.0, 42.0), (1, 41.0, 42.0)):
        finish(tmp_path / f"vanilla-seed{seed}", vanilla)
        finish(tmp_path / f"bicpdc-seed{seed}", ours)
    finish(tmp_path / "vanilla-seed2", 45.0)
    subprocess.run([sys.executable, SCRIPT, "--out", tmp_path, "--table"], check=True, capture_output=True)
    text = (tmp_path / "study.md").read_text()
    assert "| vanilla binary | 3 | 42.00 +- 2.65 | 80.00 +- 0.00 |" in text
    assert "| full precision | 0 | not yet run | not yet run |" in text
    assert "paired over 2 seeds: +1.50 +- 0.50" in text
    got = json.loads((tmp_path / "study.json").read_text())["bicpdc_minus_vanilla"]
    assert got == {"mean": 1.5, "standard_error": 0.5, "seeds": 2}


def test_documented_table_is_the_recorded_one(study):
    recorded = json.loads((ROOT / "benchmarks/results/cifar100_study.json").read_text())
    table, _, _ = study.as_markdown(recorded["runs"]).partition("\n\n")
    text = (ROOT / "docs/results/binary.md").read_text()
    assert table in text
    difference = recorded["bicpdc_minus_vanilla"]
    assert f"mean {difference['mean']:.2f} +- {difference['standard_error']:.2f}" in text
