"""ObjectDetector and what is drawn: pixels of the original, any source, the best boxes first."""

import io

import numpy as np
import pytest
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.image import load, load_near, reduce
from pixeldiff.inference.objects import ObjectDetector, choose, fit
from pixeldiff.jobs.bench import synthetic_image
from pixeldiff.metrics.objects import Detections
from pixeldiff.render.detections import color_of, draw
from tests.references.box_network import write_detector


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    pytest.importorskip("torch")
    return write_detector(tmp_path_factory.mktemp("network"))


def test_the_best_come_first(rng):
    boxes = rng.uniform(0, 9, (50, 4)).astype(np.float32)
    found = choose(boxes, rng.uniform(0, 1, (50, 3)).astype(np.float32), 0.6)
    assert (np.diff(found.scores) <= 0).all()
    assert found.scores.min() > 0.6


@pytest.mark.parametrize("shape", [(48, 64), (500, 375), (7, 300), (33, 33), (1, 1)])
def test_what_the_network_sees(shape):
    seen, (along, down) = fit(np.zeros((*shape, 3), np.uint8), 96)
    assert seen.shape[0] % 32 == seen.shape[1] % 32 == 0
    assert max(shape[1] * along, shape[0] * down) == pytest.approx(96)
    assert min(shape[1] * along, shape[0] * down) >= 1


@pytest.mark.parametrize("shape", [(72, 96), (288, 384), (300, 100)])
def test_boxes_are_in_pixels_of_the_original(network, shape):
    detector, image = ObjectDetector(network, threads=1), synthetic_image(*shape)
    batch, factors = detector.prepare(image)
    boxes, scores = detector.run(batch)
    expected = choose(boxes[0], scores[0], 0.3)
    found = detector(image, 0.3)
    assert len(found.boxes) > 0
    assert found.size == shape
    corners = np.clip(expected.boxes / np.array(factors * 2), 0, [shape[1], shape[0]] * 2)
    np.testing.assert_allclose(found.boxes, corners, rtol=1e-4)
    assert found.names == tuple(detector.labels[label] for label in found.labels)
    assert detector([image, image], 0.3)[1].scores.tolist() == found.scores.tolist()


def test_a_jpeg_is_seen_as_it_is_whole(network):
    """It is read at half its size, which is nearly what the network wants, and taken as it is."""
    detector, file = ObjectDetector(network, threads=1, size=256), io.BytesIO()
    Image.fromarray(synthetic_image(375, 500)).save(file, "JPEG", quality=95)
    reduced, true = load_near(file.getvalue(), 256)
    assert (reduced.shape, true) == ((188, 250, 3), (375, 500))
    seen, factors = fit(reduced, 256, true)
    expected, same = fit(load(file.getvalue()), 256)
    assert factors == (250 / 500, 188 / 375)
    assert same == (256 / 500, 192 / 375)
    assert seen.shape == expected.shape == (192, 256, 3)
    assert np.abs(seen[:188, :250].astype(int) - reduce(load(file.getvalue()), (188, 250))).mean() < 3
    assert detector(file.getvalue(), 0.3).size == (375, 500)


def test_boxes_do_not_depend_on_how_a_jpeg_is_given(network, tmp_path):
    """It is decoded at half its size here; the full image would give others."""
    detector, path = ObjectDetector(network, threads=1), tmp_path / "p.jpg"
    Image.fromarray(synthetic_image(375, 500)).save(path, quality=60)
    expected = detector(path, 0.3)
    assert len(expected.boxes) > 0
    with path.open("rb") as file:
        for source in (str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), file):
            np.testing.assert_array_equal(detector(source, 0.3).boxes, expected.boxes)


def test_mistakes(network, tmp_path):
    with pytest.raises(UserError, match="threshold is a score from 0 to 1"):
        ObjectDetector(network)(np.zeros((9, 9, 3), np.uint8), 2)
    with pytest.raises(UserError, match="size is 32 to 4096"):
        ObjectDetector(network, size=5)
    with pytest.raises(UserError, match="for edges, not for objects"):
        ObjectDetector("tiny")
    with pytest.raises(UserError, match="needs torch to run; export it first"):
        ObjectDetector(network.with_suffix(".safetensors"))


@pytest.mark.parametrize("shape", [(48, 64), (3000, 4000), (9, 9)])
def test_drawing(shape):
    image = np.full((*shape, 3), 128, np.uint8)
    height, width = shape
    box = np.array([[width * 0.25, height * 0.25, width * 0.75, height * 0.75]])
    drawn = draw(image, Detections(box, np.array([0.87]), np.array([1])), ("cat", "dog"))
    assert drawn.shape == image.shape
    assert (image == 128).all()
    line = drawn[height // 2, int(width * 0.25) : int(width * 0.4)]
    thick = (line == color_of(1)).all(-1).sum()
    assert thick >= (2 if width > 9 else 1)
    if height == 3000:
        assert 8 <= thick <= 20  # of 12 megapixels
    assert len({color_of(k) for k in range(80)}) > 70
