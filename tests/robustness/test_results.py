"""The table's bookkeeping (resume, mistakes, comparison) and both scorers against scores counted by hand."""

import json

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.metrics.edges import evaluate_image, summarise
from pixeldiff.robustness.corruptions import KINDS, corrupt
from pixeldiff.robustness.results import (
    CLEAN,
    DEFAULT_KINDS,
    ClassifyScorer,
    DamagedPictures,
    EdgeScorer,
    PublishedCifarC,
    Results,
    compare,
    conditions,
    fill,
)


class Stub:
    """A scorer that counts its calls and can be made to stop."""

    pictures = 2

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


# --- the table ---------------------------------------------------------------------------------------------------


def test_the_grid_is_in_the_papers_order():
    assert conditions(("fog", "snow"), (5, 1)) == [CLEAN, ("snow", 1), ("snow", 5), ("fog", 1), ("fog", 5)]
    assert CLEAN not in conditions(KINDS, (1,), clean=False)
    assert len(DEFAULT_KINDS["edges"]) == 14
    assert DEFAULT_KINDS["classes"] == KINDS
    with pytest.raises(UserError, match="unknown corruption 'rain'"):
        conditions(("rain",), (1,))
    with pytest.raises(UserError, match="severity 6"):
        conditions(("fog",), (6,))


def test_a_stopped_run_goes_on_where_it_was(tmp_path):
    path = tmp_path / "r.json"
    with pytest.raises(KeyboardInterrupt):
        fill(run("a", "b"), ["a", "b"], GRID, Stub(stop_at=("snow", 5)), path)
    resumed = run("a", "b").resume(path)
    rest = Stub()
    fill(resumed, ["a", "b"], GRID, rest, path)
    assert [condition for condition, _ in rest.asked] == GRID[2:]
    whole = run("a", "b")
    fill(whole, ["a", "b"], GRID, Stub())
    assert Results.load(path) == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_further_model_is_scored_alone_and_the_first_is_kept(tmp_path):
    path = tmp_path / "r.json"
    fill(run("a"), ["a"], GRID, Stub(), path)
    both, second = run("a", "b").resume(path), Stub()
    fill(both, ["a", "b"], GRID, second, path)
    assert second.asked == [(condition, ("b",)) for condition in GRID]
    only = run("b").resume(path)
    assert set(only.models) == {"a", "b"}


def test_a_model_is_known_by_its_content(tmp_path):
    """The first run calls it "last"; beside another "last" it is "a/last", and keeps its cells."""
    path = tmp_path / "r.json"
    Results("edges", "d", 2, 0, {"last": "1" * 64}, {("last", ("fog", 1)): {"ods": 0.5, "ois": 0.6}}).save(path)
    later = Results("edges", "d", 2, 0, {"a/last": "1" * 64, "b/last": "2" * 64}).resume(path)
    assert later.models.keys() == {"a/last", "b/last"}
    assert later.missing(["a/last", "b/last"], ("fog", 1)) == ["b/last"]


def test_a_file_of_another_run_is_refused(tmp_path):
    path = tmp_path / "r.json"
    fill(run("a"), ["a"], GRID, Stub(), path)
    with pytest.raises(UserError, match="seed 0, this one has 1"):
        run("a", seed=1).resume(path)
    with pytest.raises(UserError, match="earlier a"):
        Results("edges", "BSDS500 test", 2, 0, {"a": "other"}).resume(path)
    for text in ("", "[]", '{"cells": []}', '{"cells": [{"model": "a"}]}'):
        path.write_text(text)
        with pytest.raises(UserError, match="not a result file"):
            run("a").resume(path)


def test_the_file_is_plain_json(tmp_path):
    path = tmp_path / "r.json"
    fill(run("a"), ["a"], GRID[:2], Stub(), path)
    content = json.loads(path.read_text())
    assert content["cells"][1] == {"model": "a", "kind": "snow", "severity": 1, "ods": 0.11, "ois": 0.5}
    assert (content["task"], content["pictures"], content["seed"]) == ("edges", 2, 0)


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


# --- edges -------------------------------------------------------------------------------------------------------


def difference_detector(image: np.ndarray) -> np.ndarray:
    grey = image.astype(np.float32).mean(2) / 255
    return np.clip(np.abs(grey - np.roll(grey, 1, 1)) * 2, 0, 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_edge_scores_are_the_benchmarks(workers, rng):
    samples = []
    for _ in range(3):
        picture = np.zeros((40, 56, 3), np.uint8)
        picture[:, 20:] = rng.integers(100, 255)
        truth = np.zeros((40, 56), bool)
        truth[:, 20] = True
        samples.append((picture, [truth]))
    readers = [lambda sample=sample: sample for sample in samples]
    scorer = EdgeScorer(
        {"x": difference_detector, "inverse": lambda i: 1 - difference_detector(i)}, readers, 7, workers
    )
    ticks: list[int] = []
    found = scorer(("gaussian_noise", 3), ["x"], ticks.append)
    expected = summarise(
        evaluate_image(difference_detector(corrupt(picture, 3, "gaussian_noise", seed=7 + i)), truths)
        for i, (picture, truths) in enumerate(samples)
    )
    assert found == {"x": {"ods": expected.ods, "ois": expected.ois}}
    assert ticks == [1, 1, 1]
    clean = scorer(CLEAN, ["x", "inverse"], ticks.append)
    assert clean["x"]["ods"] > 0.95 > clean["inverse"]["ods"]


# --- classification ----------------------------------------------------------------------------------------------


def brightness_classifier(images: np.ndarray) -> np.ndarray:
    bright = images.mean((1, 2, 3)) > 128
    return np.stack([~bright, bright], 1).astype(np.float32)


def test_accuracy_of_pictures_damaged_on_the_fly(rng):
    images = rng.integers(90, 120, (5, 32, 32, 3), dtype=np.uint8)
    images[3:] += 100
    source = DamagedPictures(images, np.array([0, 0, 0, 1, 0]))
    scorer = ClassifyScorer({"m": brightness_classifier}, source, batch=2)
    assert scorer(CLEAN, ["m"], lambda n: None) == {"m": {"top1": 80.0}}
    # Level 5 adds 0.3: all five turn bright, one of them rightly.
    assert scorer(("brightness", 5), ["m"], lambda n: None) == {"m": {"top1": 20.0}}
    batches = list(source.batches(("shot_noise", 2), 2))
    np.testing.assert_array_equal(batches[1][0][1], corrupt(images[3], 2, "shot_noise", seed=3))


@pytest.fixture
def cifar_c(tmp_path, rng):
    labels = rng.integers(0, 100, 4)
    np.save(tmp_path / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    np.save(tmp_path / "fog.npy", np.repeat(np.arange(20, dtype=np.uint8), 32 * 32 * 3).reshape(20, 32, 32, 3))
    return tmp_path


def test_cifar_c_as_published(cifar_c):
    source = PublishedCifarC(cifar_c)
    assert (len(source), source.kinds(), source.has_clean) == (4, ["fog"], False)
    batches = list(source.batches(("fog", 3), 3))
    assert [images[:, 0, 0, 0].tolist() for images, _ in batches] == [[8, 9, 10], [11]]
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), source.labels)
    limited = PublishedCifarC(cifar_c, limit=2)
    assert [images[:, 0, 0, 0].tolist() for images, _ in limited.batches(("fog", 2), 10)] == [[4, 5]]


def test_a_damaged_cifar_c_folder_is_named(cifar_c):
    source = PublishedCifarC(cifar_c)
    with pytest.raises(UserError, match=r"snow\.npy"):
        next(source.batches(("snow", 1), 4))
    np.save(cifar_c / "snow.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(UserError, match="not the test set five times"):
        next(source.batches(("snow", 1), 4))
    for wrong in (np.zeros(7, np.uint8), np.zeros(0, np.uint8), np.zeros(20), np.zeros((20, 1), np.uint8)):
        np.save(cifar_c / "labels.npy", wrong)
        with pytest.raises(UserError, match="not the labels of a test set five times"):
            PublishedCifarC(cifar_c)
    (cifar_c / "labels.npy").write_bytes(b"no")
    with pytest.raises(UserError, match=r"labels\.npy"):
        PublishedCifarC(cifar_c)
