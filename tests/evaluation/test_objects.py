"""`pixeldiff eval` of detectors: every layout, the keys, equal to the reference, faults in one line."""

import json

import numpy as np
import pytest

from pixeldiff.cli import main
from pixeldiff.data.voc import list_objects
from pixeldiff.evaluation.objects import SCORED
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.metrics.objects import GroundTruth
from tests.data.test_voc import write_coco, write_voc, write_yolo
from tests.references.box_network import write_detector
from tests.references.objects import coco_scores, voc_ap

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_detector(tmp_path_factory.mktemp("network"))


def run(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


@pytest.mark.parametrize(("dataset", "write"), [("voc", write_voc), ("coco", write_coco), ("yolo", write_yolo)])
def test_every_layout_is_scored_as_the_reference_does(tmp_path, network, capsys, dataset, write):
    root = write(tmp_path / "set")
    told = ("eval", "--dataset", dataset, "--data", root, "--split", "train", "--weights", network)
    code, out, _ = run(capsys, *told, "--json", tmp_path / "r.json")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "network",
        "mAP@.5",
        "AP",
        "AP50",
        "AP75",
        "small",
        "medium",
        "large",
        "images",
    ]
    (result,) = json.loads((tmp_path / "r.json").read_text())["results"]
    assert set(result["per_class"]) == {"cat", "dog"}
    detector = ObjectDetector(network)
    found = list_objects(root, "train", detector.labels)
    pairs = [(detector(p.image, SCORED), GroundTruth(p.boxes, p.labels, p.ignored)) for p in found.images]
    expected = 100 * np.mean([voc_ap(pairs, label)[0] for label in range(2)])
    assert result["map50"] == pytest.approx(expected, abs=1e-4)
    pytest.importorskip("pycocotools")
    assert result["ap"] == pytest.approx(coco_scores(pairs, 2)[0], abs=1e-4)


def test_faults(tmp_path, network, capsys):
    root = write_voc(tmp_path / "set")
    told = ("eval", "--dataset", "voc", "--weights", network, "--json", tmp_path / "r.json")
    for words, says in (
        ((), "where are the images? give --data FOLDER"),
        (("--data", root), "has no 'val'"),
        (("--data", tmp_path / "gone"), "no data folder"),
    ):
        code, _, err = run(capsys, *told, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
    (root / "VOC2012/Annotations/p1.xml").write_text("<annotation>")
    code, _, err = run(capsys, *told, "--data", root, "--split", "train")
    assert code == 2
    assert "p1.xml is not readable XML" in err
    assert not (tmp_path / "r.json").exists()
    code, _, err = run(capsys, "eval", "--dataset", "voc", "--data", root)
    assert "one network is scored" in err
