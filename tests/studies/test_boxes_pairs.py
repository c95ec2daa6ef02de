"""Detectors side by side: differences and their errors."""

import numpy as np
import pytest

from pixeldiff.metrics.boxes import Detections, Matches, Truth
from tests.extras import NEEDS_TORCH
from tests.scripts import load_script


@NEEDS_TORCH
def test_a_network_that_finds_less_is_behind_and_one_that_finds_the_same_is_not():
    pytest.importorskip("onnxruntime")
    study = load_script("benchmarks/studies/boxes_pairs.py")

    def tables(part):
        made = []
        for index in range(60):
            low = np.random.default_rng(index).uniform(0, 50, (3, 2))
            truth = Truth(np.hstack([low, low + 20]), np.array([0, 1, 1]), np.zeros(3, bool))
            seen = np.random.default_rng(index + 100).uniform(size=3) < part
            made.append(Matches(2))
            made[-1].add(Detections(truth.boxes[seen], np.linspace(0.9, 0.5, 3)[seen], truth.labels[seen]), truth)
        return made

    found = study.compare({"all": tables(1.0), "again": tables(1.0), "half": tables(0.5)}, 20)
    assert found["all"] == {"map50": 100.0, "ap": 100.0}
    assert found["again"]["map50_difference"] == found["again"]["map50_error"] == 0
    assert -60 < found["half"]["map50_difference"] < -40
    assert 1 < found["half"]["map50_error"] < 10
