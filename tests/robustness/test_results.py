"""The table's bookkeeping: resume, mistakes, comparison."""

import json

import pytest

from pixeldiff.errors import UserError
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.results import CLEAN, Results, compare, conditions, fill


class Stub:
    """A scorer that counts its calls and can be made to stop."""

    images = 2

    def __init__(self, stop_at=None):
        self.asked, self.stop_at = [], stop_at

    def __call__(self, condition, models, tick):
        if condition == self.stop_at:
            raise KeyboardInterrupt
        self.asked.append((condition, tuple(models)))
        tick(2)
        return {model: {"ods": len(model) / 10 + condition[1] / 100, "ois": 0.5} for model in models}


def run(*models: str, seed: int = 0) -> Results:
    return Results("edges", "BSDS500 test", 2, seed, {model: f"sha of {model}" for model in models})


GRID = conditions(("fog", "snow"), (1, 5))


def keep(results: Results, path):
    """What the command does after each condition."""
    return lambda: path.write_text(json.dumps(results.as_json()))


def filled(results: Results, models, grid, score, path) -> None:
    fill(results, models, grid, score, keep(results, path))


def test_the_grid_is_in_the_papers_order():
    assert conditions(("fog", "snow"), (5, 1)) == [CLEAN, ("snow", 1), ("snow", 5), ("fog", 1), ("fog", 5)]
    assert CLEAN not in conditions(KINDS, (1,), clean=False)
    assert len(run("a").layout.kinds) == 14
    assert Results("classes", "d", 2, 0, {}).layout.kinds == KINDS
    with pytest.raises(UserError, match="unknown corruption 'rain'"):
        conditions(("rain",), (1,))
    with pytest.raises(UserError, match="severity 6"):
        conditions(("fog",), (6,))


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        filled(run("a", "b"), ["a", "b"], GRID, Stub(stop_at=("snow", 5)), path)
    resumed = run("a", "b").resume(path)
    rest = Stub()
    filled(resumed, ["a", "b"], GRID, rest, path)
    assert [condition for condition, _ in rest.asked] == GRID[2:]
    whole = run("a", "b")
    fill(whole, ["a", "b"], GRID, Stub())
    assert Results.load(path) == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_further_model_is_scored_alone_and_the_first_is_kept(tmp_path):
    path = tmp_path / "r.json"
    filled(run("a"), ["a"], GRID, Stub(), path)
    both, second = run("a", "b").resume(path), Stub()
    filled(both, ["a", "b"], GRID, second, path)
    assert second.asked == [(condition, ("b",)) for condition in GRID]
    only = run("b").resume(path)
    assert set(only.models) == {"a", "b"}


def test_a_model_is_known_by_its_content(tmp_path):
    """The first run calls it "last"; beside another "last" it is "a/last", and keeps its cells."""
    path = tmp_path / "r.json"
    first = Results("edges", "d", 2, 0, {"last": "1" * 64}, {("last", ("fog", 1)): {"ods": 0.5, "ois": 0.6}})
    keep(first, path)()
    later = Results("edges", "d", 2, 0, {"a/last": "1" * 64, "b/last": "2" * 64}).resume(path)
    assert later.models.keys() == {"a/last", "b/last"}
    assert later.missing(["a/last", "b/last"], ("fog", 1)) == ["b/last"]


def test_a_file_of_another_run_is_refused(tmp_path):
    path = tmp_path / "r.json"
    filled(run("a"), ["a"], GRID, Stub(), path)
    with pytest.raises(UserError, match="seed 0, this one has 1"):
        run("a", seed=1).resume(path)
    with pytest.raises(UserError, match="earlier a"):
        Results("edges", "BSDS500 test", 2, 0, {"a": "other"}).resume(path)
    good = run("a").as_json()
    cell = {"model": "a", "kind": "fog", "severity": 1}
    odd = (
        {"models": ["a"]},
        {"models": {"a": ["sha"]}},
        {"results": [{**cell, "ods": 10**400, "ois": 0.5}]},
        {"results": [{**cell, "ods": 0.5}]},
        {"results": [{**cell, "ods": 0.5, "ois": 0.5, "model": "b"}]},
    )
    broken = ("", "[]", '{"results": []}', '{"results": [{"model": "a"}]}')
    for text in (*broken, *(json.dumps(good | change) for change in odd)):
        path.write_text(text)
        with pytest.raises(UserError, match="not a result file"):
            run("a").resume(path)


def test_the_file_is_plain_json(tmp_path):
    path = tmp_path / "r.json"
    filled(run("a"), ["a"], GRID[:2], Stub(), path)
    content = json.loads(path.read_text())
    assert content["results"][1] == {"model": "a", "kind": "snow", "severity": 1, "ods": 0.11, "ois": 0.5}
    assert (content["task"], content["images"], content["seed"]) == ("edges", 2, 0)


def test_comparison_counts_and_pairs():
    results = run("a", "b")
    for number, condition in enumerate(GRID):
        results.cells["a", condition] = {"ods": 0.5, "ois": 0.5}
        results.cells["b", condition] = {"ods": 0.5 + (0, 0.1, -0.2, 0.3, 0.0)[number], "ois": 0}
    first, fifth, every = compare(results, "b", "a", GRID)
    assert (first.severity, first.cells, first.ahead) == (1, 2, 2)
    assert first.difference == pytest.approx(0.2)
    assert first.error == pytest.approx(0.1)  # deviation of (0.1, 0.3) over sqrt 2
    assert (fifth.ahead, fifth.mean) == (0, pytest.approx(0.4))
    assert (every.severity, every.cells, every.ahead) == (None, 4, 2)
    assert compare(run("a", "b"), "b", "a", GRID) == []
