"""ODS and OIS on corrupted images, against scores counted by hand."""

import numpy as np
import pytest

from pixeldiff.metrics.edges import evaluate_image, summarize
from pixeldiff.robustness.corruptions import corrupt
from pixeldiff.robustness.edges import Scorer
from pixeldiff.robustness.results import CLEAN


def difference_detector(image: np.ndarray, size: object) -> np.ndarray:
    assert size == "full"
    gray = image.astype(np.float32).mean(2) / 255
    return np.clip(np.abs(gray - np.roll(gray, 1, 1)) * 2, 0, 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_edge_scores_are_the_benchmarks(threads, rng):
    samples = []
    for _ in range(3):
        photo = np.zeros((40, 56, 3), np.uint8)
        photo[:, 20:] = rng.integers(100, 255)
        truth = np.zeros((40, 56), bool)
        truth[:, 20] = True
        samples.append((photo, [truth]))
    readers = [lambda sample=sample: sample for sample in samples]
    networks = {"x": difference_detector, "inverse": lambda image, size: 1 - difference_detector(image, size)}
    scorer = Scorer(readers, 7, threads)
    ticks: list[int] = []
    found = scorer(("gaussian_noise", 3), {"x": networks["x"]}, ticks.append)
    expected = summarize(
        evaluate_image(difference_detector(corrupt(photo, 3, "gaussian_noise", seed=7 + i), "full"), truths)
        for i, (photo, truths) in enumerate(samples)
    )
    assert found == {"x": {"ods": expected.ods, "ois": expected.ois}}
    assert ticks == [1, 1, 1]
    clean = scorer(CLEAN, networks, ticks.append)
    assert clean["x"]["ods"] > 0.95 > clean["inverse"]["ods"]
