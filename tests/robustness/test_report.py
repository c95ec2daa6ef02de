"""The printed tables have the paper's layout, the words carry the numbers, the plot is an image."""

import pytest
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.robustness.corruptions import KINDS
from pixeldiff.robustness.edges import LAYOUT
from pixeldiff.robustness.report import SHORT, comparisons, in_words, plot, table
from pixeldiff.robustness.results import CLEAN, Results, conditions


@pytest.fixture
def edges() -> Results:
    results = Results("edges", "BSDS500 test", 200, 0, {"baseline": "", "pidinet": ""})
    for condition in conditions(LAYOUT.kinds, (1, 5)):
        results.cells["baseline", condition] = {"ods": 0.5, "ois": 0.51}
        results.cells["pidinet", condition] = {"ods": 0.6 if condition[0] != "fog" else 0.4, "ois": 0.61}
    return results


def test_the_edge_table_has_two_blocks_with_level_five_first(edges):
    grid = conditions(LAYOUT.kinds, (1, 5))
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


def test_the_words_count_the_cells(edges):
    found = comparisons(edges, ["baseline", "pidinet"], conditions(LAYOUT.kinds, (1, 5)))
    assert [f.severity for f in found] == [1, 5, None]
    assert in_words(found[2], edges.layout) == (
        "pidinet against baseline, all levels: ahead in 26 of 28 cells, mean ODS 0.586, difference +0.086 ± 0.010"
    )


def test_the_plot_is_written(edges, tmp_path, drawn):
    grid = [CLEAN, ("fog", 1), ("fog", 5), ("snow", 1)]
    plot(edges, ["baseline", "pidinet"], grid, tmp_path / "p.png")
    assert Image.open(tmp_path / "p.png").size[0] == 1500
    panels = drawn[0].axes
    assert [panel.get_title(loc="left") for panel in panels] == ["level 1 (dashed: clean)", "level 5 (dashed: clean)"]
    assert [text.get_text() for text in panels[0].get_xticklabels()] == [SHORT["snow"], SHORT["fog"]]
    assert {text.get_text() for text in drawn[0].legends[0].get_texts()} == {"baseline", "pidinet"}
    heights = [[bar.get_height() for bar in bars] for panel in panels for bars in panel.containers]
    assert heights == 2 * [[0.5, 0.5], [0.6, 0.4]]
    with pytest.raises(UserError, match="cannot plot"):
        plot(edges, ["baseline"], grid, tmp_path / "p.xyz")
