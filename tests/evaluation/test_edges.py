"""A data set through the benchmark: parallel, cached, reproducible; and its reports."""

import json

import numpy as np
import pytest
from PIL import Image

from pixeldiff import BoundaryScore, evaluate_edges
from pixeldiff.data.edges import EdgeLabels
from pixeldiff.errors import UserError
from pixeldiff.evaluation import edges as module
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.edge_curves import plot_curves
from pixeldiff.evaluation.edge_report import to_dict, write_csv, write_text_files
from pixeldiff.evaluation.edges import EdgeBenchmark, EdgeSample, NetworkSource, Settings
from pixeldiff.metrics.edges import evaluate_image, summarize

SETTINGS = {"max_dist": 0.05, "thresholds": 9}


@pytest.fixture
def maps(rng):
    return {f"p{k}": (rng.random((24, 31)) ** 3).astype(np.float32) for k in range(6)}


@pytest.fixture
def truths(rng):
    return {f"p{k}": [rng.random((24, 31)) < 0.1 for _ in range(2)] for k in range(6)}


def test_equals_the_sum_of_its_images(maps, truths):
    result = evaluate_edges(maps, truths, **SETTINGS)
    counts = [evaluate_image(maps[name], truths[name], 9, 0.05) for name in maps]
    assert result.ods == summarize(counts).ods
    assert result.ois == summarize(counts).ois
    assert list(result.images) == sorted(maps)


def test_same_bytes_with_one_or_two_threads_and_again(tmp_path, maps, truths):
    written = []
    for k, threads in enumerate((1, 2, 2)):
        result = evaluate_edges(maps, truths, **SETTINGS, threads=threads)
        write_csv(tmp_path / f"{k}.csv", {"maps": result})
        written.append(json.dumps(to_dict("maps", result)).encode() + (tmp_path / f"{k}.csv").read_bytes())
    assert written[0] == written[1] == written[2]


def test_cache_does_only_what_is_new(tmp_path, maps, truths, monkeypatch):
    done = []
    original = module.evaluate_image
    monkeypatch.setattr(module, "evaluate_image", lambda *a, **k: done.append(1) or original(*a, **k))
    cache = tmp_path / "scores.json.cache"
    first = evaluate_edges(maps, truths, **SETTINGS, cache=cache)
    assert len(done) == 6
    with cache.open("ab") as file:
        file.write(b'\xff\n{"key": "cut sho')  # what a bad disk and a killed run may leave
    maps["p3"] = maps["p3"] ** 2
    changed = evaluate_edges(maps, truths, **SETTINGS, cache=cache)
    assert len(done) == 7
    assert evaluate_edges(maps, truths, **SETTINGS).ods == changed.ods != first.ods
    evaluate_edges(maps, truths, max_dist=0.06, thresholds=9, cache=cache)
    assert len(done) == 19  # six without a cache, six with another setting


def test_stop_keeps_what_is_done(tmp_path, maps, truths):
    cache = tmp_path / "cache"

    def interrupt(done: int, _: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_edges(maps, truths, **SETTINGS, threads=1, cache=cache, progress=interrupt)
    kept = cache.read_text().splitlines()
    assert 2 <= len(kept) <= 6
    assert all("matched_truth" in json.loads(line) for line in kept)


def test_errors_teach(maps, truths):
    with pytest.raises(UserError, match="1 images have labels but no map: p0; 1 maps have no labels: x"):
        evaluate_edges({**{k: v for k, v in maps.items() if k != "p0"}, "x": maps["p0"]}, truths)
    many = {f"q{k:02}": maps["p0"] for k in range(15)}
    with pytest.raises(UserError, match="and 5 more"):
        evaluate_edges({**maps, **many}, truths)
    with pytest.raises(UserError, match="every map is all zero"):
        evaluate_edges({name: np.zeros_like(one) for name, one in maps.items()}, truths)
    with pytest.raises(UserError, match=r"p0: .*5 x 6"):
        evaluate_edges({"p0": np.zeros((5, 6))}, {"p0": truths["p0"]})
    with pytest.raises(UserError, match="max_dist"):
        Settings(max_dist=3)


def test_text_files_agree_with_the_scores(tmp_path, maps, truths):
    result = evaluate_edges(maps, truths, **SETTINGS)
    write_text_files(tmp_path, result)
    best = np.loadtxt(tmp_path / "eval_bdry.txt")
    assert best[[3, 6, 7]] == pytest.approx([result.ods, result.ois, result.ap], rel=1e-5)
    assert np.loadtxt(tmp_path / "eval_bdry_img.txt").shape == (6, 5)
    total = sum(np.loadtxt(tmp_path / f"p{k}_ev1.txt") for k in range(6))
    recall = np.loadtxt(tmp_path / "eval_bdry_thr.txt")[:, 1]
    np.testing.assert_allclose(total[:, 1] / total[:, 2], recall, rtol=1e-5)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_plot(tmp_path, maps, truths, suffix, drawn):
    one = evaluate_edges(maps, truths, **SETTINGS)
    other = evaluate_edges({name: edge_map[::-1] for name, edge_map in maps.items()}, truths, **SETTINGS)
    poorer, better = sorted((one, other), key=lambda scores: scores.ods)
    path = tmp_path / f"pr{suffix}"
    plot_curves(path, {"one": poorer, "two": better}, human=(0.7, 0.9))
    assert path.read_bytes().startswith({".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix])
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    axes = drawn[0].axes[0]
    labels = [f"[F={f:.3f}] {name}" for f, name in ((1.26 / 1.6, "Human"), (better.ods, "two"), (poorer.ods, "one"))]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == labels
    shown = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(shown[labels[0]], [(0.7, 0.9)])
    for label, scores in ((labels[1], better), (labels[2], poorer)):
        summary = scores.summary
        seen = summary.curve.all_prediction > 0
        wanted = np.stack([summary.curve.recall[seen], summary.curve.precision[seen]], axis=1)
        np.testing.assert_allclose(shown[label], wanted)
    if suffix == ".svg":
        assert path.read_text().startswith("<?xml")


def test_boundary_score_is_evaluate_edges_image_by_image(maps, truths):
    score = BoundaryScore(**SETTINGS)
    for name in maps:
        score.update(maps[name], truths[name])
    expected = evaluate_edges(maps, truths, **SETTINGS)
    assert score.compute().numbers() == expected.numbers()
    score.reset()
    with pytest.raises(UserError, match="update"):
        score.compute()
    score.update(np.stack(list(maps.values()))[:, None], list(truths.values()))
    assert score.compute().numbers() == expected.numbers()
    with pytest.raises(UserError, match="6 maps and targets 1"):
        score.update(np.stack(list(maps.values())), [truths["p0"]])
    with pytest.raises(UserError, match="pred is H x W"):
        score.update(np.zeros(3), np.zeros(3))


def test_boundary_score_takes_tensors_and_single_masks(maps, truths):
    torch = pytest.importorskip("torch")
    score, other = BoundaryScore(**SETTINGS), BoundaryScore(**SETTINGS)
    score.update(torch.tensor(maps["p0"])[None, None].requires_grad_(), torch.tensor(truths["p0"][0])[None])
    other.update(maps["p0"], truths["p0"][0])
    assert score.compute().numbers() == other.compute().numbers()


def test_sequences_are_paired_by_their_order(maps, truths):
    by_name = evaluate_edges(maps, truths, **SETTINGS)
    in_order = evaluate_edges(list(maps.values()), list(truths.values()), **SETTINGS)
    assert in_order.numbers() == by_name.numbers()


def test_scores_print_in_a_line_and_as_a_table(maps, truths):
    scores = evaluate_edges(maps, truths, **SETTINGS)
    assert str(scores).startswith(f"ODS {scores.ods:.4f}, OIS ")
    assert str(scores).endswith("(6 images)")
    assert f"<td>{scores.ap:.4f}</td>" in scores._repr_html_()


def test_what_looks_inverted_is_scored_if_allowed(maps, truths):
    inverted = {name: 1 - edge_map for name, edge_map in maps.items()}
    with pytest.raises(UserError, match="looks inverted"):
        evaluate_edges(inverted, truths, **SETTINGS)
    assert evaluate_edges(inverted, truths, **SETTINGS, allow_inverted=True).ods > 0


def difference_detector(image: np.ndarray) -> np.ndarray:
    gray = image.astype(np.float32).mean(2) / 255
    return np.clip(np.abs(gray - np.roll(gray, 1, 1)) * 2, 0, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_scores_of_corrupted_images_are_the_benchmarks(tmp_path, rng, threads):
    pytest.importorskip("scipy")
    from pixeldiff.evaluation.corruptions import corrupt

    photos, labels = [], {}
    mask = np.zeros((40, 56), bool)
    mask[:, 20] = True
    for k in range(3):
        photo = np.zeros((40, 56, 3), np.uint8)
        photo[:, 20:] = rng.integers(100, 255)
        photos.append(photo)
        Image.fromarray(photo).save(tmp_path / f"{k}.png")
        Image.fromarray(mask.astype(np.uint8) * 255).save(tmp_path / f"label{k}.png")
        labels[str(k)] = EdgeLabels((tmp_path / f"label{k}.png",), tmp_path / f"{k}.png")
    benchmark = EdgeBenchmark(labels)
    models = [Model("x", NetworkSource(difference_detector, "x"))]
    models.append(Model("inverse", NetworkSource(lambda image: 1 - difference_detector(image), "inverse")))
    counts = evaluate(benchmark, models[:1], ("gaussian_noise", 3), seed=7, threads=threads)["x"]
    expected = summarize(
        evaluate_image(difference_detector(corrupt(photo, 3, "gaussian_noise", seed=7 + k)), [mask])
        for k, photo in enumerate(photos)
    )
    scores = benchmark.summarize(counts)
    assert (scores["ods"], scores["ois"]) == (expected.ods, expected.ois)
    clean = {name: benchmark.summarize(own)["ods"] for name, own in evaluate(benchmark, models).items()}
    assert clean["x"] > 0.95 > clean["inverse"]


def test_maps_are_scored_without_images(tmp_path, truths):
    labels = {"p0": EdgeLabels((tmp_path / "label.png",), tmp_path / "gone.jpg")}
    Image.fromarray(truths["p0"][0].astype(np.uint8) * 255).save(tmp_path / "label.png")
    benchmark = EdgeBenchmark(labels, read_images=False)
    assert isinstance(benchmark.load(0, ("clean", 0), 0), EdgeSample)
