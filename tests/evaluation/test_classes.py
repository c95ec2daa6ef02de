"""A classifier over a data set."""

import numpy as np
import pytest

from pixeldiff import evaluation
from pixeldiff.errors import UserError
from pixeldiff.evaluation.classes import DATASETS, score


def test_a_network_for_other_classes_is_refused(rng):
    images = np.zeros((4, 2, 2, 3), np.uint8)
    with pytest.raises(UserError, match="tells 7 classes apart, the images have 12"):
        score(lambda batch: rng.normal(size=(len(batch), 7)), images.__getitem__, np.array([0, 1, 11, 2]), batch=2)


def test_batches_do_not_change_the_score(rng):
    logits, labels = rng.normal(size=(7, 12)), rng.integers(12, size=7)
    heard: list[int] = []
    images = np.arange(7, dtype=np.uint8).reshape(7, 1, 1, 1)
    scores = [
        score(lambda batch: logits[batch[:, 0, 0, 0]], images.__getitem__, labels, heard.append, batch)
        for batch in (2, 7)
    ]
    assert scores[0] == scores[1]
    assert heard == [2, 2, 2, 1, 7]


def test_every_data_set_of_the_table_is_read():
    assert set(DATASETS) == set(evaluation.DATASETS["classes"])
