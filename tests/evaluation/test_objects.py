"""`pixeldiff eval` of detectors: every layout, the keys, equal to the reference, faults in one line."""

import json

import numpy as np
import pytest

from pixeldiff.cli import main
from pixeldiff.data.voc import list_objects
from pixeldiff.errors import InputError
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.objects import MIN_SCORE, ObjectBenchmark
from pixeldiff.image import load
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.metrics.objects import Detections, GroundTruth
from tests.data.test_voc import NAMES, write_coco, write_voc, write_yolo
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
    told = ("eval", "objects", "--dataset", dataset, "--data-dir", root, "--split", "train", "-m", network)
    code, out, _ = run(capsys, *told, "--json", tmp_path / "r.json")
    assert code == 0
    assert out.splitlines()[0].split() == [
        "model",
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
    pairs = [(detector(p.image, MIN_SCORE), GroundTruth(p.boxes, p.labels, p.ignored)) for p in found.images]
    expected = 100 * np.mean([voc_ap(pairs, label)[0] for label in range(2)])
    assert result["map50"] == pytest.approx(expected, abs=1e-4)
    pytest.importorskip("pycocotools")
    assert result["ap"] == pytest.approx(coco_scores(pairs, 2)[0], abs=1e-4)


def test_faults(tmp_path, network, capsys, monkeypatch):
    monkeypatch.delenv("PIXELDIFF_DATA", raising=False)
    root = write_voc(tmp_path / "set")
    told = ("eval", "objects", "-m", network, "--json", tmp_path / "r.json")
    for words, says in (
        ((), "--data-dir"),
        (("--data-dir", root), "'val'"),
        (("--data-dir", tmp_path / "gone"), "gone"),
    ):
        code, _, err = run(capsys, *told, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert says in err
    (root / "VOC2012/Annotations/p1.xml").write_text("<annotation>")
    code, _, err = run(capsys, *told, "--data-dir", root, "--split", "train")
    assert code == 2
    assert "p1.xml" in err
    assert not (tmp_path / "r.json").exists()
    code, _, err = run(capsys, "eval", "objects", "--data-dir", root)
    assert (code, "--model" in err) == (2, True)
    code, _, err = run(capsys, *told, "--data-dir", root, "--plot", tmp_path / "p.png")
    assert (code, "--corruption" in err) == (2, True)


class RedAndBlue:
    """Detects the red and the blue rectangle of an image."""

    labels = ("dog", "cat", "cow")  # in another order than the data, and one more

    def __call__(self, source, threshold):
        image = load(source)
        boxes, labels = [], []
        for label, channel in ((1, 0), (0, 2)):
            rows, columns = np.nonzero(image[..., channel].astype(int) - image[..., 2 - channel] > 120)
            if rows.size:
                boxes.append([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
                labels.append(label)
        boxes.append([0, 0, 5, 5])
        labels.append(2)
        return Detections(np.array(boxes, float), np.full(len(boxes), 0.9), np.array(labels, int))


@pytest.mark.parametrize("threads", [1, 2])
def test_classes_are_numbered_as_in_the_data_and_images_are_corrupted(tmp_path, threads):
    pytest.importorskip("scipy")
    benchmark = ObjectBenchmark(list_objects(write_voc(tmp_path, "val"), "val", NAMES))
    models = [Model("x", RedAndBlue())]
    assert benchmark.summarize(evaluate(benchmark, models, threads=threads)["x"])["map50"] == pytest.approx(100)
    corrupted = evaluate(benchmark, models, ("contrast", 5), seed=3, threads=threads)["x"]
    assert benchmark.summarize(corrupted)["map50"] < 50


def test_a_model_that_does_not_know_a_class_is_an_error(tmp_path):
    benchmark = ObjectBenchmark(list_objects(write_voc(tmp_path, "val"), "val", NAMES))

    class CatsOnly(RedAndBlue):
        labels = ("cat",)

    with pytest.raises(InputError, match="dog"):
        evaluate(benchmark, [Model("x", CatsOnly())])
