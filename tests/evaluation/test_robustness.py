"""Tables of corruptions: cells, resume, comparison; their layout, words and plot."""

import json

import pytest
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.evaluation.benchmark import CLEAN, Benchmark, Model
from pixeldiff.evaluation.corruptions import KINDS
from pixeldiff.evaluation.robustness import LAYOUTS, SHORT, Results, compare, conditions, fill, plot, table


class Stub(Benchmark):
    """Scores that follow from the model's name; remembers what was loaded and can be made to stop."""

    task, source = "edges", "two images"

    def __init__(self, stop_at=None):
        self.scored, self.stop_at = [], stop_at

    def __len__(self):
        return 2

    def load(self, index, condition, seed):
        if condition == self.stop_at:
            raise KeyboardInterrupt
        return condition

    def predict(self, model, batch):
        self.scored += [(condition, model) for condition in batch]
        return [(model, condition) for condition in batch]

    def score(self, prediction, sample):
        return prediction

    def summarize(self, counts):
        model, condition = counts[0]
        return {"ods": len(model) / 10 + condition[1] / 100, "ois": 0.5, "ap": 0.4}


def run(*models: str, seed: int = 0) -> Results:
    return Results("edges", "BSDS500 test", 2, seed, {model: f"sha of {model}" for model in models})


GRID = conditions(("fog", "snow"), (1, 5))


def keep(results: Results, path):
    """What the command does after each condition."""
    return lambda: path.write_text(json.dumps(results.as_json()))


def filled(results: Results, models, grid, benchmark, path=None) -> None:
    save = (lambda: None) if path is None else keep(results, path)
    fill(results, benchmark, [Model(name, name) for name in models], grid, save=save)


def test_the_grid_is_in_the_papers_order():
    assert conditions(("fog", "snow"), (5, 1)) == [CLEAN, ("snow", 1), ("snow", 5), ("fog", 1), ("fog", 5)]
    assert CLEAN not in conditions(KINDS, (1,), clean=False)
    assert len(run("a").layout.kinds) == 14
    assert Results("classes", "d", 2, 0, {}).layout.kinds == KINDS
    with pytest.raises(UserError, match="unknown corruption 'rain'"):
        conditions(("rain",), (1,))
    with pytest.raises(UserError, match="got 6"):
        conditions(("fog",), (6,))


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        filled(run("a", "b"), ["a", "b"], GRID, Stub(stop_at=("snow", 5)), path)
    resumed = run("a", "b").resume(path)
    rest = Stub()
    filled(resumed, ["a", "b"], GRID, rest, path)
    assert list(dict.fromkeys(condition for condition, _ in rest.scored)) == GRID[2:]
    whole = run("a", "b")
    filled(whole, ["a", "b"], GRID, Stub())
    assert Results.load(path) == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_further_model_is_scored_alone_and_the_first_is_kept(tmp_path):
    path = tmp_path / "r.json"
    filled(run("a"), ["a"], GRID, Stub(), path)
    both, second = run("a", "b").resume(path), Stub()
    filled(both, ["a", "b"], GRID, second, path)
    assert second.scored == [(condition, "b") for condition in GRID for _ in range(2)]
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
    cell = {"model": "a", "corruption": "fog", "severity": 1}
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
    assert content["results"][1] == {"model": "a", "corruption": "snow", "severity": 1, "ods": 0.11, "ois": 0.5}
    assert (content["task"], content["images"], content["seed"]) == ("edges", 2, 0)


def test_comparison_counts_and_pairs():
    results = run("a", "b")
    for number, condition in enumerate(GRID):
        results.cells["a", condition] = {"ods": 0.5, "ois": 0.5}
        results.cells["b", condition] = {"ods": 0.5 + (0, 0.1, -0.2, 0.3, 0.0)[number], "ois": 0}
    first, fifth, every = compare(results, ["a", "b"], GRID)
    assert (first.severity, first.cells, first.ahead) == (1, 2, 2)
    assert first.difference == pytest.approx(0.2)
    assert first.error == pytest.approx(0.1)  # deviation of (0.1, 0.3) over sqrt 2
    assert (fifth.ahead, fifth.mean) == (0, pytest.approx(0.4))
    assert (every.severity, every.cells, every.ahead) == (None, 4, 2)
    assert compare(run("a", "b"), ["a", "b"], GRID) == []


@pytest.fixture
def edges() -> Results:
    results = Results("edges", "BSDS500 test", 200, 0, {"baseline": "", "pidinet": ""})
    for condition in conditions(LAYOUTS["edges"].kinds, (1, 5)):
        results.cells["baseline", condition] = {"ods": 0.5, "ois": 0.51}
        results.cells["pidinet", condition] = {"ods": 0.6 if condition[0] != "fog" else 0.4, "ois": 0.61}
    return results


def test_the_edge_table_has_two_blocks_with_level_five_first(edges):
    grid = conditions(LAYOUTS["edges"].kinds, (1, 5))
    clean, upper, lower = table(edges, ["baseline", "pidinet"], grid).split("\n\n")
    assert clean == "Clean: baseline 0.500/0.510, pidinet 0.600/0.610"
    lines = upper.splitlines()
    assert lines[0].split() == ["|", "Noise", "|", "Blur"]
    assert " ".join(lines[1].split()) == "Method | Gauss. Shot Impul. | Defoc. Glass Motion Zoom"
    assert lines[3].split()[:4] == ["baseline", "(L5)", "|", "0.500/0.510"]
    assert [line.split()[0] for line in lines if "(L" in line] == ["baseline", "pidinet"] * 2
    assert " ".join(lower.splitlines()[1].split()) == "Method | Contr. Pixel JPEG | Snow Frost Fog Brit."
    assert len({len(line) for line in lines[1:]}) == 1


def test_what_is_not_scored_is_a_dash_and_not_asked_is_absent(edges):
    del edges.cells["pidinet", ("fog", 1)]
    text = table(edges, ["baseline", "pidinet"], conditions(("fog",), (1,), clean=False))
    assert text.splitlines()[-1].split() == ["pidinet", "(L1)", "|", "-"]
    assert "Noise" not in text
    assert "Clean" not in text


def test_the_classification_table_is_one_block():
    grid = conditions(KINDS, (5,), clean=False)
    results = Results("classes", "CIFAR-100-C", 10000, 0, {"m": ""}, {("m", c): {"top1": 12.345} for c in grid})
    text = table(results, ["m"], grid)
    assert text.splitlines()[1].split()[-4:] == ["Contr.", "Elastic", "Pixel", "JPEG"]
    assert text.splitlines()[3].count("12.35") + text.splitlines()[3].count("12.34") == 15
    assert set(SHORT) == set(KINDS)


def test_a_comparison_counts_the_cells(edges):
    found = compare(edges, ["baseline", "pidinet"], conditions(LAYOUTS["edges"].kinds, (1, 5)))
    assert [f.severity for f in found] == [1, 5, None]
    assert found[2].describe(edges.layout) == (
        "pidinet against baseline, all severities: ahead in 26 of 28 cells, mean ODS 0.586, difference +0.086 ± 0.010"
    )


def test_the_plot_is_written(edges, tmp_path, drawn):
    grid = [CLEAN, ("fog", 1), ("fog", 5), ("snow", 1)]
    plot(edges, ["baseline", "pidinet"], grid, tmp_path / "p.png")
    assert Image.open(tmp_path / "p.png").size[0] == 1500
    panels = drawn[0].axes
    assert [panel.get_title(loc="left") for panel in panels] == [
        "severity 1 (dashed: clean)",
        "severity 5 (dashed: clean)",
    ]
    assert [text.get_text() for text in panels[0].get_xticklabels()] == [SHORT["snow"], SHORT["fog"]]
    assert {text.get_text() for text in drawn[0].legends[0].get_texts()} == {"baseline", "pidinet"}
    heights = [[bar.get_height() for bar in bars] for panel in panels for bars in panel.containers]
    assert heights == 2 * [[0.5, 0.5], [0.6, 0.4]]
    with pytest.raises(UserError, match="cannot plot"):
        plot(edges, ["baseline"], grid, tmp_path / "p.xyz")
