"""Verification scores against their definitions, by counting."""

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.metrics.faces import auc, best_threshold, fold_accuracies, roc, summarize


def made_up(rng, n=400, digits=None):
    same = rng.random(n) < 0.5
    scores = rng.normal(size=n) + same
    return (scores if digits is None else scores.round(digits)), same


def accuracy(scores, same, threshold):
    return np.mean((scores >= threshold) == same)


@pytest.mark.parametrize("digits", [None, 1])
def test_auc_counts_pairs_of_pairs(rng, digits):
    scores, same = made_up(rng, digits=digits)
    more = scores[same][:, None] - scores[~same]
    assert auc(scores, same) == pytest.approx(np.mean(more > 0) + np.mean(more == 0) / 2)


@pytest.mark.parametrize("digits", [None, 1])
def test_auc_is_that_of_scikit_learn(rng, digits):
    metrics = pytest.importorskip("sklearn.metrics")
    scores, same = made_up(rng, digits=digits)
    assert auc(scores, same) == pytest.approx(metrics.roc_auc_score(same, scores), abs=1e-12)
    false, true, thresholds = roc(scores, same)
    theirs = metrics.roc_curve(same, scores, drop_intermediate=False)
    for ours, expected in zip((false, true, thresholds), theirs, strict=True):
        np.testing.assert_allclose(ours, expected)


@pytest.mark.parametrize("digits", [None, 1, 0])
def test_no_threshold_is_better_than_the_best(rng, digits):
    for n in (2, 7, 100):
        scores, same = made_up(rng, n, digits)
        same[:2] = True, False
        tried = [*scores, scores.max() + 1]
        assert accuracy(scores, same, best_threshold(scores, same)) == max(accuracy(scores, same, t) for t in tried)


def test_a_fold_is_judged_by_the_others(rng):
    scores, same = made_up(rng, 90)
    folds = np.arange(90) % 3 + 1
    expected = [
        accuracy(scores[folds == k], same[folds == k], best_threshold(scores[folds != k], same[folds != k]))
        for k in (1, 2, 3)
    ]
    assert fold_accuracies(scores, same, folds).tolist() == expected
    one = fold_accuracies(scores, same, np.ones(90, int))
    assert one.tolist() == [accuracy(scores, same, best_threshold(scores, same))]


def test_rates_are_those_of_the_curve(rng):
    scores, same = made_up(rng, 3000)
    found = summarize(scores, same, np.arange(3000) % 10)
    for rate, percent in found["tar"].items():
        accepted = [t for t in scores if np.mean(scores[~same] >= t) <= float(rate)]
        assert percent == pytest.approx(100 * np.mean(scores[same] >= min(accepted)))
    gaps = [(abs(np.mean(scores[~same] >= t) - np.mean(scores[same] < t)), t) for t in scores]
    assert found["eer"] == pytest.approx(100 * np.mean(scores[same] < min(gaps)[1]), abs=0.1)
    assert found["accuracy_error"] == pytest.approx(
        100 * fold_accuracies(scores, same, np.arange(3000) % 10).std(ddof=1) / 10**0.5
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_equal_scores_are_rejected_together(dtype):
    """Of 600 equal scores with 60 of one person, nothing is better than to reject all."""
    same = np.arange(600) % 10 == 0
    found = summarize(np.full(600, 0.7, dtype), same, np.arange(600) // 60)
    assert (found["accuracy"], found["auc"]) == (90, 0.5)
    assert (found["true_accepts"], found["false_accepts"]) == (0, 0)


def test_labels_of_0_and_1_count_as_bool(rng):
    scores, same = made_up(rng)
    folds = np.arange(len(same)) % 4
    assert summarize(scores, same.astype(int), folds) == summarize(scores, same, folds)


GOOD = np.array([0.9, 0.7, 0.2, 0.1]), np.array([True, False, True, False])


@pytest.mark.parametrize(
    ("scores", "same", "words"),
    [
        (GOOD[0], np.ones(4, bool), "all 4 pairs are of one person"),
        (GOOD[0], np.zeros(4, bool), "all 4 pairs are of two people"),
        (np.array([0.9, np.nan, 0.2, 0.1]), GOOD[1], "NaN or infinite"),
        (np.array([0.9, np.inf, 0.2, 0.1]), GOOD[1], "NaN or infinite"),
        (GOOD[0], np.array([1, -1, 1, -1]), "some are neither"),
        (np.zeros(0), np.zeros(0, bool), "one score and one label per pair"),
        (GOOD[0], GOOD[1][:3], "one score and one label per pair"),
    ],
)
def test_what_cannot_be_judged_is_an_error(scores, same, words):
    folds = np.arange(len(scores)) // 2
    for score in (roc, auc, best_threshold, lambda *given: fold_accuracies(*given, folds)):
        with pytest.raises(UserError, match=words):
            score(scores, same)
    with pytest.raises(UserError, match=words):
        summarize(scores, same, folds)


@pytest.mark.parametrize("folds", [np.array([0, 0, -1, 1]), np.arange(3)])
def test_each_pair_has_a_fold(folds):
    with pytest.raises(UserError, match="number of its fold"):
        fold_accuracies(*GOOD, folds)


def test_a_perfect_network_has_perfect_scores():
    scores, same = np.array([0.9, 0.8, 0.2, 0.1]), np.array([True, True, False, False])
    found = summarize(scores, same, np.array([1, 2, 1, 2]))
    assert (found["accuracy"], found["auc"], found["eer"], found["tar"]["0.001"]) == (100, 1, 0, 100)
    assert found["threshold"] == pytest.approx(0.5)
    assert (found["true_accepts"], found["false_accepts"]) == (100, 0)
    turned = summarize(-scores, same, np.array([1, 2, 1, 2]))
    assert (turned["auc"], turned["eer"]) == (0, 100)
