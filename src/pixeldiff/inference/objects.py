"""ObjectDetector: boxes round objects with ONNX Runtime.

    detector = ObjectDetector("boxes.onnx")
    found = detector(image)             # a path, bytes, array ... (`image.load`) in
    found.boxes, found.scores, found.labels, found.names    # corners in pixels of the image, best score first

A graph written by `pixeldiff export` has the input `image` (normalized RGB, sides multiples of 32) and the outputs
`boxes` (N, points, 4) and `scores` (N, points, classes). An image is made `size` pixels long, as in training, and
filled up to the next multiple of 32; what overlaps a better box of its class by more than `OVERLAP` is left out.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image as images
from pixeldiff import weights
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.image import ImageArray, ImageLike
from pixeldiff.metrics.boxes import suppress
from pixeldiff.metrics.objects import Detections, Floats
from pixeldiff.weights.description import JsonReader, normalization

TASK = "objects"
THRESHOLD = 0.35  # of the score; an image shows few boxes then, most of them right
OVERLAP = 0.6
CANDIDATES = 300  # points and classes per image that are looked at
MOST = 100  # boxes per image
GRID = 32  # the coarsest stride
NEARLY = 0.95  # of the long side
PAD = tuple(round(255 * mean) for mean in images.MEAN)  # about 0 after normalization
LARGEST = 4096  # pixels of `size`


@dataclass(frozen=True)
class Found(Detections):
    """What was found in one image, best score first."""

    names: tuple[str, ...]  # of each box's class
    size: tuple[int, int]  # height and width of the image


def fit(
    image: ImageArray, size: int, true: tuple[int, int] | None = None
) -> tuple[NDArray[np.uint8], tuple[float, float]]:
    """The image with a long side of `size`, filled up to multiples of GRID, and its factors along x and y.

    `true` are height and width of the image itself, where it comes reduced; one that is nearly as long as it should
    be, as JPEGs come, is taken as it is."""
    height, width = true or image.shape[:2]
    factor = size / max(height, width)
    rows, columns = max(1, round(height * factor)), max(1, round(width * factor))
    if true and NEARLY * size <= max(image.shape[:2]) <= size:
        rows, columns = image.shape[:2]
    small = images.reduce(images.as_8_bit(image), (rows, columns))
    if rows % GRID == 0 and columns % GRID == 0:
        return small, (columns / width, rows / height)
    canvas = _blank(-(-rows // GRID) * GRID, -(-columns // GRID) * GRID).copy()
    canvas[:rows, :columns] = small
    return canvas, (columns / width, rows / height)


@functools.lru_cache(16)
def _blank(rows: int, columns: int) -> NDArray[np.uint8]:
    """An image of PAD; images of a folder are of few sizes."""
    blank = np.empty((rows, columns, 3), np.uint8)
    blank[:] = PAD
    return blank


def choose(boxes: Floats, scores: Floats, threshold: float) -> Detections:
    """The boxes of one image (points x 4, points x classes) that are left after non-maximum suppression."""
    flat = scores.ravel()
    found = np.flatnonzero(flat > threshold)
    found = found[np.argsort(-flat[found], kind="stable")[:CANDIDATES]]
    point, label = np.divmod(found, scores.shape[1])
    own = boxes[point]
    kept = suppress(own, OVERLAP, label)[:MOST]
    return Detections(own[kept], flat[found[kept]], label[kept])


class ObjectDetector:
    """A network ready to run. `model` is a shipped name or an .onnx file; `size` another long side than in training.

    One detector may be called from several threads; `streams` says how many at once.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        threads: int | None = None,
        streams: int = 1,
        size: int | None = None,
    ) -> None:
        try:
            from pixeldiff.inference.onnx_session import open_session
        except ImportError as error:
            raise MissingExtra("onnx", "finding boxes", error.name) from error

        if streams < 1:
            raise UserError(f"streams is at least 1, got {streams}")
        path, self.metadata = weights.runnable(model, TASK)
        try:
            self.mean, self.std = normalization(self.metadata)
            seen = JsonReader(self.metadata["preprocessing"], "the preprocessing").integer("size", GRID, LARGEST)
            self.labels = _names(self.metadata)
        except UserError as error:
            raise UserError(f"{path} is damaged: {error}; export or download it again") from error
        if size is not None and not GRID <= size <= LARGEST:
            raise UserError(f"size is {GRID} to {LARGEST} pixels, got {size}")
        self.size = size or seen
        self.streams = streams
        self.name: str = self.metadata["name"]
        self.session = open_session(path, threads, None)
        if not {"boxes", "scores"} <= {output.name for output in self.session.get_outputs()}:
            raise UserError(f"{path} holds weights of another network; use a file written by pixeldiff export")

    def __repr__(self) -> str:
        return f"ObjectDetector({self.name!r}, size={self.size})"

    @overload
    def __call__(self, image: list[Any] | tuple[Any, ...], threshold: float = ...) -> list[Found]: ...

    @overload
    def __call__(self, image: ImageLike, threshold: float = ...) -> Found: ...

    def __call__(
        self, image: ImageLike | list[Any] | tuple[Any, ...], threshold: float = THRESHOLD
    ) -> Found | list[Found]:
        """The objects of an image with a score above `threshold`; for a list of images a list."""
        if not 0 <= threshold <= 1:
            raise UserError(f"threshold is a score from 0 to 1, got {threshold}")
        if isinstance(image, list | tuple):
            return [self.find(one, threshold) for one in image]
        return self.find(image, threshold)

    def find(self, source: ImageLike, threshold: float, name: str = "the image") -> Found:
        """The objects of one image; errors about its bytes begin with `name`."""
        image, (height, width) = images.load_near(source, self.size, name)
        batch, factors = self.prepare(image, (height, width))
        boxes, scores = self.run(batch)
        found = choose(boxes[0], scores[0], threshold)
        corners = found.boxes / np.array(factors * 2, np.float32)
        corners = np.clip(corners, 0, np.array([width, height] * 2, np.float32))
        names = tuple(self.labels[label] for label in found.labels)
        return Found(corners, found.scores, found.labels, names, (height, width))

    def prepare(self, image: ImageArray, true: tuple[int, int] | None = None) -> tuple[Floats, tuple[float, float]]:
        """What the network sees of an image, and its factors along x and y; see `fit`."""
        seen, factors = fit(image, self.size, true)
        return images.normalize(seen, self.mean, self.std)[None], factors

    def run(self, batch: Floats) -> tuple[Floats, Floats]:
        """Boxes (N, points, 4) and scores (N, points, classes) of prepared images, in their own pixels."""
        try:
            boxes, scores = self.session.run(["boxes", "scores"], {"image": batch})
        except Exception as error:  # onnxruntime raises a class of its own for each kind of damage
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"{self.name} does not run ({reason}); export or download its file again") from error
        if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape != (*boxes.shape[:2], len(self.labels)):
            raise UserError(f"{self.name} gives no boxes (boxes {boxes.shape}, scores {scores.shape})")
        return boxes, scores


def _names(described: dict[str, Any]) -> tuple[str, ...]:
    names = JsonReader(described, "the description").value("labels")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise UserError("the labels are no list of names")
    return tuple(names)
