"""Faces brought to one place: five points onto SphereFace's, by a least-squares similarity, in 112 x 96 pixels.

With points as complex numbers z = x + iy a similarity is a z + b: |a| scales, its angle turns, b moves. Least squares
over the five gives a = sum conj(z - mean z) (w - mean w) / sum |z - mean z|^2, b = mean w - a mean z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.image import FACE, ImageLike, as_8_bit, load
from pixeldiff.inference.mtcnn import Face, FaceFinder

SIZE = FACE  # height, width of an aligned image
# x, y of left eye, right eye, nose, left and right mouth corner in it
PLACES = ((30.2946, 51.6963), (65.5318, 51.5014), (48.0252, 71.7366), (33.5493, 92.3655), (62.7299, 92.2041))
FACES = ("largest", "central")
_RIVAL = 0.5  # a face of this part of the chosen one's area may be meant as well
_LEAST = 1e-3  # pixels between points


class NoFaceError(UserError):
    """An image in which no face was found."""

    def __init__(self) -> None:
        super().__init__("no face was found; give an image where a face is seen from the front, 20 pixels or more")


@dataclass(frozen=True)
class Aligned:
    """An aligned face, and how many others there were to choose from that are about as large."""

    image: NDArray[np.uint8]  # 112 x 96 x 3
    rivals: int = 0


def similarity(points: NDArray[np.floating], onto: NDArray[np.floating]) -> tuple[complex, complex]:
    """a and b of the similarity that takes points (N x 2) nearest to others."""
    z, w = (np.asarray(side, np.float64) @ (1, 1j) for side in (points, onto))
    centered = z - z.mean()
    spread = float((abs(centered) ** 2).sum())
    if not math.isfinite(spread) or spread < _LEAST**2:
        raise UserError("its five points lie in one place; give eyes, nose and mouth corners")
    a = complex((centered.conj() * (w - w.mean())).sum() / spread)
    if abs(a) < 1e-9:
        raise UserError("its five points are no face; give left eye, right eye, nose, left and right mouth corner")
    return a, complex(w.mean() - a * z.mean())


def align(image: NDArray[np.uint8], points: NDArray[np.floating]) -> NDArray[np.uint8]:
    """The image, H x W x 3, turned, scaled and cut so that its five points come to PLACES.

    Bilinear; what is beyond the image continues its edge. A large face is reduced by means first.
    """
    a, b = similarity(points, np.asarray(PLACES))
    if (factor := math.floor(1 / abs(a) + 1e-6)) > 1:  # pixels of the image in one of the result
        corners = (np.array([0, SIZE[1], 1j * SIZE[0], SIZE[1] + 1j * SIZE[0]]) - b) / a
        left, top = (max(0, math.floor(side.min())) // factor * factor for side in (corners.real, corners.imag))
        right, bottom = (math.ceil(side.max()) + 2 * factor for side in (corners.real, corners.imag))
        cut = image[top : max(bottom, top + 1), left : max(right, left + 1)]
        if not cut.size:
            raise UserError("its five points lie outside of the image; give them in pixels of this image")
        image = np.asarray(Image.fromarray(np.ascontiguousarray(cut)).reduce(factor))
        b, a = b + a * (complex(left, top) + (factor - 1) / 2 * (1 + 1j)), a * factor
    rows, columns = np.indices(SIZE)
    return _sampled(image, (columns + 1j * rows - b) / a)


def _sampled(image: NDArray[np.uint8], places: NDArray[np.complex128]) -> NDArray[np.uint8]:
    """Bilinear at x + iy, the middles of pixels at whole numbers."""
    height, width = image.shape[:2]
    x, y = np.clip(places.real, 0, width - 1), np.clip(places.imag, 0, height - 1)
    left, top = x.astype(np.intp), y.astype(np.intp)
    right, below = np.minimum(left + 1, width - 1), np.minimum(top + 1, height - 1)
    along, down = ((part - whole)[..., None].astype(np.float32) for part, whole in ((x, left), (y, top)))
    upper = image[top, left] * (1 - along) + image[top, right] * along
    lower = image[below, left] * (1 - along) + image[below, right] * along
    result: NDArray[np.uint8] = np.rint(upper * (1 - down) + lower * down).astype(np.uint8)
    return result


def choose(faces: Sequence[Face], size: tuple[int, int], face: str | None = None) -> tuple[Face, int]:
    """One face of several, and how many others are about as large: the "largest", the most "central", or, without a
    word, one that is both (its area less twice its squared distance from the middle)."""

    def rank(one: Face) -> float:
        left, top, right, bottom = one.box
        away = ((left + right) / 2 - size[1] / 2) ** 2 + ((top + bottom) / 2 - size[0] / 2) ** 2
        return -away if face == "central" else one.area - (0 if face == "largest" else 2 * away)

    best = max(faces, key=rank)
    return best, sum(one.area >= _RIVAL * best.area for one in faces) - 1


class FaceAligner:
    """From images to aligned faces, also from several threads. The networks that find faces are opened when one has
    to be found: an image of 112 x 96 is an aligned face already, and one with five points needs no search."""

    def __init__(self, face: str | None = None, threads: int = 1) -> None:
        if face not in (None, *FACES):
            raise UserError(f"face is one of {', '.join(FACES)}, got {face!r}")
        self.face = face
        self.threads = threads
        self._finder: FaceFinder | None = None
        self._lock = Lock()

    def open(self) -> FaceFinder:
        """The networks; an error where they are not installed."""
        with self._lock:
            if self._finder is None:
                self._finder = FaceFinder(self.threads)
            return self._finder

    def __call__(self, image: ImageLike, points: NDArray[np.floating] | None = None) -> Aligned:
        """The aligned face in an image; `points` are its five in pixels, where they are known."""
        pixels = as_8_bit(load(image))
        if points is not None:
            return Aligned(align(pixels, points))
        if pixels.shape[:2] == SIZE:
            return Aligned(np.ascontiguousarray(pixels))
        best, rivals = choose(self._find(pixels), pixels.shape[:2], self.face)
        return Aligned(align(pixels, best.points), rivals)

    def every(self, image: ImageLike) -> list[NDArray[np.uint8]]:
        """All faces in an image, each aligned, the largest first."""
        pixels = as_8_bit(load(image))
        if pixels.shape[:2] == SIZE:
            return [np.ascontiguousarray(pixels)]
        faces = sorted(self._find(pixels), key=lambda one: -one.area)
        return [align(pixels, one.points) for one in faces]

    def _find(self, image: NDArray[np.uint8]) -> list[Face]:
        if faces := self.open()(image):
            return faces
        raise NoFaceError
