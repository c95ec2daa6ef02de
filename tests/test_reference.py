"""Reference results: every pretrained model has some, and `--check` lists each difference."""

import json

import pytest

from pixeldiff import weights
from tests.scripts import ROOT, load_script


@pytest.fixture(scope="module")
def reference():
    return load_script("tools/reference.py")


def test_every_shipped_network_has_results(reference):
    results = json.loads(reference.RESULTS.read_text())
    assert results["edges"].keys() == weights.shipped("edges").keys()
    assert results["classes"].keys() == weights.shipped("classes").keys()
    assert set(weights.shipped("faces")) == {reference.FACE_NETWORK}
    assert set(weights.shipped("objects")) == {reference.OBJECT_DETECTOR}
    of_one = [*results["edges"]["tiny"].values(), *results["classes"].values(), results["faces"]["embeddings"]]
    assert all(len(images) == 10 for images in (*of_one, results["objects"]))
    assert results["scores"].keys() == reference.EVALUATIONS.keys()
    assert str(ROOT) not in reference.RESULTS.read_text()


def test_the_images_are_those_of_the_results(reference, tmp_path):
    images = json.loads(reference.RESULTS.read_text())["images"]
    assert reference.write_images(tmp_path).keys() == images.keys()


def test_every_difference_is_listed(reference):
    old = {"edges": {"a": {"sha256": "12", "mean": 0.5}}, "objects": {"b": {"sha256": "34", "boxes": [["cat", 7.0]]}}}
    assert reference.compare(old, old) == ([], [])
    new = {
        "edges": {"a": {"sha256": "13", "mean": 0.5001}},
        "objects": {"b": {"sha256": "35", "boxes": [["cat", 7.001]]}},
    }
    differences, notes = reference.compare(old, new)
    assert [line.split(":")[0] for line in differences] == ["edges/a/sha256", "edges/a/mean"]
    assert [line.split(":")[0] for line in notes] == ["objects/b/sha256", "objects/b/boxes/0/1"]


def test_what_is_missing_new_or_far_off_is_a_difference(reference):
    old = {"objects": {"b": {"boxes": [["cat", 7.0], ["dog", 1.0]]}}}
    new = {"objects": {"b": {"boxes": [["cat", 7.1]]}, "c": {"boxes": [["cow", 1.0]]}}}
    differences, notes = reference.compare(old, new)
    assert notes == []
    assert [line.split(":")[0] for line in differences] == [
        "objects/b/boxes/0/1",
        "objects/b/boxes/1/0",
        "objects/b/boxes/1/1",
        "objects/c/boxes/0/0",
        "objects/c/boxes/0/1",
    ]
