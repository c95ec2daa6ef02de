"""A data set through the benchmark: parallel, cached, reproducible; and its reports."""

import json

import numpy as np
import pytest

from pixeldiff import evaluate_edges, evaluation
from pixeldiff.errors import UserError
from pixeldiff.evaluation import edges as evaluate
from pixeldiff.evaluation.edge_curves import plot_curves
from pixeldiff.evaluation.edge_report import to_dict, write_csv, write_text_files
from pixeldiff.evaluation.edges import Settings
from pixeldiff.metrics.edges import evaluate_image, summarize

SETTINGS = Settings(max_dist=0.05, thresholds=9)


@pytest.fixture
def maps(rng):
    return {f"p{k}": (rng.random((24, 31)) ** 3).astype(np.float32) for k in range(6)}


@pytest.fixture
def truths(rng):
    return {f"p{k}": [rng.random((24, 31)) < 0.1 for _ in range(2)] for k in range(6)}


def test_equals_the_sum_of_its_images(maps, truths):
    result = evaluate_edges(maps, truths, SETTINGS)
    counts = [evaluate_image(maps[name], truths[name], 9, 0.05) for name in maps]
    assert result.summary.ods == summarize(counts).ods
    assert result.summary.ois == summarize(counts).ois
    assert list(result.images) == sorted(maps)


def test_same_bytes_with_one_or_two_threads_and_again(tmp_path, maps, truths):
    written = []
    for k, threads in enumerate((1, 2, 2)):
        result = evaluate_edges(maps, truths, SETTINGS, threads=threads)
        write_csv(tmp_path / f"{k}.csv", {"maps": result})
        written.append(json.dumps(to_dict("maps", result)).encode() + (tmp_path / f"{k}.csv").read_bytes())
    assert written[0] == written[1] == written[2]


def test_cache_does_only_what_is_new(tmp_path, maps, truths, monkeypatch):
    done = []
    original = evaluate.evaluate_image
    monkeypatch.setattr(evaluate, "evaluate_image", lambda *a, **k: done.append(1) or original(*a, **k))
    cache = tmp_path / "scores.json.cache"
    first = evaluate_edges(maps, truths, SETTINGS, cache=cache)
    assert len(done) == 6
    with cache.open("ab") as file:
        file.write(b'\xff\n{"key": "cut sho')  # what a bad disk and a killed run may leave
    maps["p3"] = maps["p3"] ** 2
    changed = evaluate_edges(maps, truths, SETTINGS, cache=cache)
    assert len(done) == 7
    assert evaluate_edges(maps, truths, SETTINGS).summary.ods == changed.summary.ods != first.summary.ods
    evaluate_edges(maps, truths, Settings(max_dist=0.06, thresholds=9), cache=cache)
    assert len(done) == 19  # six without a cache, six with another setting


def test_stop_keeps_what_is_done(tmp_path, maps, truths):
    cache = tmp_path / "cache"

    def interrupt(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_edges(maps, truths, SETTINGS, threads=1, cache=cache, progress=interrupt)
    kept = cache.read_text().splitlines()
    assert 2 <= len(kept) <= 6
    assert all(json.loads(line)["name"] in maps for line in kept)


def test_errors_teach(maps, truths):
    with pytest.raises(UserError, match="1 images have truth but no map: p0; 1 maps have no truth: x"):
        evaluate_edges({**{k: v for k, v in maps.items() if k != "p0"}, "x": maps["p0"]}, truths)
    many = {f"q{k:02}": maps["p0"] for k in range(15)}
    with pytest.raises(UserError, match="and 5 more"):
        evaluate_edges({**maps, **many}, truths)
    with pytest.raises(UserError, match="every map is all zero"):
        evaluate_edges({name: np.zeros_like(one) for name, one in maps.items()}, truths)
    with pytest.raises(UserError, match=r"p0: map and truth differ in size: 5 x 6"):
        evaluate_edges({"p0": np.zeros((5, 6))}, {"p0": truths["p0"]})
    with pytest.raises(UserError, match="max_dist"):
        Settings(max_dist=3)


def test_text_files_agree_with_the_scores(tmp_path, maps, truths):
    result = evaluate_edges(maps, truths, SETTINGS)
    write_text_files(tmp_path, result)
    best = np.loadtxt(tmp_path / "eval_bdry.txt")
    assert best[[3, 6, 7]] == pytest.approx([result.summary.ods, result.summary.ois, result.summary.ap], rel=1e-5)
    assert np.loadtxt(tmp_path / "eval_bdry_img.txt").shape == (6, 5)
    total = sum(np.loadtxt(tmp_path / f"p{k}_ev1.txt") for k in range(6))
    recall = np.loadtxt(tmp_path / "eval_bdry_thr.txt")[:, 1]
    np.testing.assert_allclose(total[:, 1] / total[:, 2], recall, rtol=1e-5)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot(tmp_path, maps, truths, suffix, drawn):
    one = evaluate_edges(maps, truths, SETTINGS).summary
    other = evaluate_edges({name: edge_map[::-1] for name, edge_map in maps.items()}, truths, SETTINGS).summary
    poorer, better = sorted((one, other), key=lambda summary: summary.ods)
    path = tmp_path / f"pr{suffix}"
    plot_curves(path, {"one": poorer, "two": better}, human=(0.7, 0.9))
    assert path.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    axes = drawn[0].axes[0]
    labels = [f"[F={f:.3f}] {name}" for f, name in ((1.26 / 1.6, "Human"), (better.ods, "two"), (poorer.ods, "one"))]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == labels
    shown = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(shown[labels[0]], [(0.7, 0.9)])
    for label, summary in ((labels[1], better), (labels[2], poorer)):
        seen = summary.curve.all_prediction > 0
        wanted = np.stack([summary.curve.recall[seen], summary.curve.precision[seen]], axis=1)
        np.testing.assert_allclose(shown[label], wanted)
    if suffix == ".svg":
        assert path.read_text().startswith("<?xml")


def test_every_data_set_of_the_table_has_its_tolerance():
    assert set(evaluate.DATASETS) == set(evaluation.DATASETS["edges"])
    tolerances = {name: dataset.max_dist for name, dataset in evaluate.DATASETS.items()}
    assert tolerances.pop("nyud") == 0.011
    assert set(tolerances.values()) == {0.0075}
