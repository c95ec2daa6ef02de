"""mAP on corrupted images: that of the metric, on images damaged by the seed."""

import numpy as np
import pytest

from pixeldiff.data.voc import list_objects
from pixeldiff.image import load
from pixeldiff.metrics.objects import Detections
from pixeldiff.robustness.objects import Scorer
from pixeldiff.robustness.results import CLEAN
from tests.data.test_voc import NAMES, write_voc


class RedAndBlue:
    """Finds the red and the blue rectangle of an image, whatever it knows of networks."""

    labels = ("dog", "cat")  # in an order of its own

    def __call__(self, source, threshold):
        image = load(source)
        boxes, labels = [], []
        for label, channel in ((1, 0), (0, 2)):
            rows, columns = np.nonzero(image[..., channel].astype(int) - image[..., 2 - channel] > 120)
            if rows.size:
                boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
                labels.append(label)
        return Detections(np.array(boxes, float).reshape(-1, 4), np.full(len(boxes), 0.9), np.array(labels, int))


@pytest.mark.parametrize("threads", [1, 2])
def test_scores_are_the_metrics(tmp_path, threads):
    scorer = Scorer(list_objects(write_voc(tmp_path, "val"), "val", NAMES), 3, threads)
    ticks: list[int] = []
    assert scorer(CLEAN, {"x": RedAndBlue()}, ticks.append)["x"]["map50"] == pytest.approx(100)
    assert ticks == [1, 1, 1]
    assert scorer(("contrast", 5), {"x": RedAndBlue()}, ticks.append)["x"]["map50"] < 50
