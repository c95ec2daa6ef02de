"""Networks side by side: differences and their errors."""

import numpy as np
import pytest

from pixeldiff.metrics.edges import evaluate_image
from pixeldiff.metrics.objects import Detections, GroundTruth, Matches
from tests.extras import NEEDS_TORCH
from tests.scripts import load_script


@pytest.fixture(scope="module")
def study():
    pytest.importorskip("onnxruntime")
    return load_script("benchmarks/studies/pairs.py")


def box_tables(part, seed=100):
    """Images with three objects each, of which a detector finds a part."""
    made = []
    for index in range(60):
        low = np.random.default_rng(index).uniform(0, 50, (3, 2))
        truth = GroundTruth(np.hstack([low, low + 20]), np.array([0, 1, 1]), np.zeros(3, bool))
        seen = np.random.default_rng(index + seed).uniform(size=3) < part
        made.append(Matches(2))
        made[-1].add(Detections(truth.boxes[seen], np.linspace(0.9, 0.5, 3)[seen], truth.labels[seen]), truth)
    return made


def edge_tables(part):
    """Images with a line each, of which a network draws a part."""
    made = []
    for index in range(20):
        truth = np.zeros((24, 24), bool)
        truth[:, 4 + index % 16] = True
        drawn = truth & (np.random.default_rng(index).uniform(size=truth.shape) < part)
        made.append(evaluate_image(drawn.astype(np.float32), [truth], 5, nms=False))
    return made


@NEEDS_TORCH
def test_a_network_that_finds_less_is_behind_and_one_that_finds_the_same_is_not(study):
    networks = {"all": [box_tables(1.0)], "again": [box_tables(1.0)], "half": [box_tables(0.5)]}
    found = study.compare(study.STUDIES["objects"], networks, 20)
    assert found["all"] == {"map50": 100.0, "ap": 100.0, "map50_spread": 0, "ap_spread": 0}
    assert found["half"]["map50_spread"] > 0
    assert found["again"]["map50_difference"] == found["again"]["map50_error"] == 0
    assert -60 < found["half"]["map50_difference"] < -40
    assert 1 < found["half"]["map50_error"] < 10


@NEEDS_TORCH
def test_seeds_of_a_network_count_as_their_mean(study):
    networks = {"all": [box_tables(1.0)] * 2, "some": [box_tables(0.5), box_tables(0.7, seed=300)]}
    found = study.compare(study.STUDIES["objects"], networks, 5)
    each = [seed["ap"] for seed in found["some"]["seeds"]]
    assert each[0] != each[1]
    assert found["some"]["ap"] == pytest.approx(sum(each) / 2, abs=0.01)


@NEEDS_TORCH
def test_edges_are_compared_by_the_same_code(study):
    found = study.compare(study.STUDIES["edges"], {"whole": [edge_tables(1.0)], "gaps": [edge_tables(0.5)]}, 20)
    assert found["whole"]["ods"] == 1
    assert found["gaps"]["ods_difference"] < -0.2
    assert 0 < found["gaps"]["ods_error"] < 0.1
