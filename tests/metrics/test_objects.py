"""Average precision: equal to the loops of the definition and to COCO's reference libraries."""

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches, as_json
from tests.references.objects import coco_scores, voc_ap

CLASSES = 4


def random_image(rng):
    """Objects, and detections that are noisy copies of some of them, doubles and inventions; equal scores occur."""
    count = int(rng.integers(0, 9))
    corner, size = rng.uniform(0, 300, (count, 2)), rng.uniform(4, 220, (count, 2))
    boxes = np.concatenate([corner, corner + size], 1)
    labels = rng.integers(0, CLASSES - 1, count)  # nothing of the last class is there to find
    copies = rng.integers(0, count, int(rng.integers(0, 25))) if count else np.zeros(0, int)
    noisy = boxes[copies] + rng.normal(0, 0.12, (len(copies), 4)) * np.tile(size[copies], 2)
    corner, size = rng.uniform(0, 300, (5, 2)), rng.uniform(4, 220, (5, 2))
    found = np.concatenate(
        [
            np.concatenate([np.minimum(noisy[:, :2], noisy[:, 2:] - 1), noisy[:, 2:]], 1),
            np.concatenate([corner, corner + size], 1),
        ]
    )
    own = np.concatenate([labels[copies], rng.integers(0, CLASSES, 5)])
    scores = np.round(rng.uniform(0, 1, len(found)), 2)
    return Detections(found, scores, own), GroundTruth(boxes, labels, rng.uniform(size=count) < 0.2)


def matched(images):
    table = Matches(CLASSES)
    for found, truth in images:
        table.add(found, truth)
    return table


@pytest.fixture(scope="module")
def images():
    rng = np.random.default_rng(0)
    return [random_image(rng) for _ in range(60)]


def test_voc_is_that_of_the_definition(images):
    scores = matched(images).summary()
    expected = np.array([voc_ap(images, label) for label in range(CLASSES - 1)])
    np.testing.assert_allclose([one["map50"] for one in scores.per_class[:-1]], 100 * expected[:, 0], atol=1e-9)
    np.testing.assert_allclose([scores.map50, scores.map50_11], 100 * expected.mean(0), atol=1e-9)
    assert np.isnan(scores.per_class[-1]["map50"])


@pytest.mark.parametrize("evaluator", ["pycocotools", "faster_coco_eval"])
def test_coco_is_that_of_the_reference(images, evaluator):
    pytest.importorskip(evaluator)
    scores = matched(images).summary()
    ours = [scores.ap, scores.ap50, scores.ap75, scores.ap_small, scores.ap_medium, scores.ap_large]
    np.testing.assert_allclose(ours, coco_scores(images, CLASSES, evaluator), atol=1e-6)


def test_more_than_a_hundred_detections_are_cut_as_in_the_reference():
    pytest.importorskip("pycocotools")
    rng = np.random.default_rng(1)
    truth = GroundTruth(np.array([[10.0, 10, 50, 60]]), np.array([0]), np.array([False]))
    boxes = truth.boxes + rng.normal(0, 8, (150, 4))
    images = [(Detections(boxes, rng.uniform(size=150), np.zeros(150, int)), truth)]
    scores = matched(images).summary()
    np.testing.assert_allclose([scores.ap, scores.ap50], coco_scores(images, CLASSES)[:2], atol=1e-6)


def apart(count):
    """Boxes that do not touch."""
    left = 20.0 * np.arange(count)
    return np.stack([left, np.zeros(count), left + 10, np.full(count, 10.0)], 1)


@pytest.mark.parametrize(("right", "points"), [(2, 3), (3, 3), (4, 5), (6, 6), (7, 7), (10, 11)])
def test_a_recall_reaches_the_points_of_the_published_code(right, points):
    """np.arange(0, 1.1, 0.1) is above 0.3, 0.6 and 0.7 by the last bit."""
    truth = GroundTruth(apart(10), np.zeros(10, int), np.zeros(10, bool))
    found = Detections(truth.boxes[:right], np.linspace(1, 0.5, right), np.zeros(right, int))
    assert matched([(found, truth)]).summary().map50_11 == pytest.approx(100 * points / 11)


def test_voc_counts_all_detections_of_a_image():
    truth = GroundTruth(apart(150), np.zeros(150, int), np.zeros(150, bool))
    found = Detections(truth.boxes, np.linspace(1, 0.5, 150), np.zeros(150, int))
    scores = matched([(found, truth)]).summary()
    assert (scores.map50, scores.map50_11) == (pytest.approx(100), pytest.approx(100))
    assert scores.ap50 == pytest.approx(100 * 67 / 101)  # COCO's, of 100 detections: recalls 0 to 0.66


def test_parts_add_up(images):
    table = matched(images[:20])
    table.merge(matched(images[20:]))
    assert str(table.summary()) == str(matched(images).summary())


def test_nothing_found_nothing_there():
    nothing = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))
    empty = GroundTruth(np.zeros((0, 4)), np.zeros(0, int), np.zeros(0, bool))
    box = GroundTruth(np.array([[1.0, 2, 30, 40]]), np.array([1]), np.array([False]))
    assert np.isnan(matched([(nothing, empty)]).summary().map50)
    scores = matched([(nothing, box), (nothing, empty)]).summary()
    assert (scores.map50, scores.ap, scores.map50_11) == (0, 0, 0)
    assert as_json(scores, ["a", "b", "c", "d"])["per_class"]["a"] == {"map50": None, "ap": None}
    right = Detections(box.boxes, np.array([0.9]), np.array([1]))
    assert matched([(right, box)]).summary().map50 == pytest.approx(100)


BOX = np.array([[1.0, 2, 30, 40]])


@pytest.mark.parametrize(
    ("boxes", "scores", "labels", "words"),
    [
        (BOX, [np.nan], [1], "NaN"),
        (np.where(BOX == 2, np.nan, BOX), [0.5], [1], "NaN"),
        (BOX, [0.5], [-1], "whole numbers, 0 to 3"),
        (BOX, [0.5], [CLASSES], "whole numbers, 0 to 3"),
        (BOX, [0.5], [1.0], "whole numbers"),
        (BOX[:, ::-1], [0.5], [1], "end before they begin"),
        (BOX[0], [0.5], [1], "N x 4 boxes"),
        (BOX, [0.5, 0.4], [1], "N x 4 boxes"),
    ],
)
def test_what_cannot_be_matched_is_an_error(boxes, scores, labels, words):
    good = GroundTruth(BOX, np.array([1]), np.array([False]))
    with pytest.raises(UserError, match=words):
        Matches(CLASSES).add(Detections(boxes, np.array(scores), np.array(labels)), good)
    if not np.isnan(scores).any():
        found = Detections(BOX, np.array([0.5]), np.array([1]))
        with pytest.raises(UserError, match="objects"):
            Matches(CLASSES).add(found, GroundTruth(boxes, np.array(labels), np.zeros(len(scores), bool)))


def test_no_images_have_no_scores():
    with pytest.raises(UserError, match="no images were added"):
        Matches(CLASSES).summary()
    with pytest.raises(UserError, match="at least 1"):
        Matches(0)
