"""The bars: every ratio has a floor, and one below it is told."""

import json

import pytest

from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def bars():
    for needed in ("torch", "onnxruntime", "onnx"):
        pytest.importorskip(needed)
    return load_script("benchmarks/bars.py")


def test_every_bar_has_a_floor(bars):
    floors = json.loads((ROOT / "benchmarks/floors.json").read_text())
    assert floors.keys() == bars.BARS.keys()
    assert all(floor >= 1 for floor in floors.values())


def test_what_is_slower_is_named(bars):
    assert bars.judge({"a": 2.0, "b": 1.5}, {"a": 1.9, "b": 1.6}) == ["b: 1.50 < 1.60"]


def test_the_quicker_one_has_a_ratio_above_one(bars):
    assert bars.ratio(lambda: sum(range(200_000)), lambda: sum(range(2_000)), 3) > 5
