"""FaceEmbedder: faces as unit vectors, by a 1-bit network; the cosine of two says how alike they are.

FaceEmbedder("model.pdn")(image)            # path, Pillow image or array in; a vector of length 1 out
"""

from __future__ import annotations

import os
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError
from pixeldiff.image import ImageLike
from pixeldiff.inference.alignment import FaceAligner, NoFaceError
from pixeldiff.inference.packed import Floats, open_packed
from pixeldiff.inference.packed_file import FlattenLinear

TASK = "faces"
_BATCH = 16  # images that go through together


class FaceEmbedder:
    """A network ready to run. `model` is a shipped name or a .pdn file.

    One embedder may be called from several threads; `streams` says how many at once, and they share the cores unless
    `threads` says how many each may use.
    """

    def __init__(self, model: str | os.PathLike[str], threads: int | None = None, streams: int = 1) -> None:
        self.file, self.run = open_packed(model, TASK, threads, streams)
        if not isinstance(self.file.layers[-1], FlattenLinear):
            raise UserError(f"{model} says that it is for faces, but ends in classes; export it again")
        self.name = self.file.name
        self.size = 2 * self.file.layers[-1].outputs  # numbers in a vector
        self.align = FaceAligner()

    @overload
    def __call__(self, image: list[Any] | tuple[Any, ...]) -> list[Floats]: ...

    @overload
    def __call__(self, image: ImageLike) -> Floats: ...

    def __call__(self, image: ImageLike | list[Any] | tuple[Any, ...]) -> Floats | list[Floats]:
        """The vector of the face in an image; for a list of images a list of vectors."""
        many = image if isinstance(image, list | tuple) else [image]
        results: list[Floats] = []
        for start in range(0, len(many), _BATCH):
            results += [*self.embed(np.stack([self.prepare(one) for one in many[start : start + _BATCH]]))]
        return results if many is image else results[0]

    def prepare(self, image: ImageLike) -> NDArray[np.uint8]:
        """The aligned face in an image; an image of the network's size is one already."""
        return self.align(image).image

    def find(self, image: ImageLike) -> NDArray[np.uint8] | None:
        """As `prepare`, but None where no face is found."""
        try:
            return self.prepare(image)
        except NoFaceError:
            return None

    def embed(self, faces: NDArray[np.uint8]) -> Floats:
        """Unit vectors (N, size) of aligned faces, uint8 (N, H, W, 3): of each image and its mirror image, joined."""
        height, width = self.file.preprocessing.size
        if faces.ndim != 4 or faces.shape[1:] != (height, width, 3) or faces.dtype != np.uint8 or not len(faces):
            raise UserError(f"aligned faces are uint8 (N, {height}, {width}, 3), got {faces.dtype} {faces.shape}")
        x = self.file.preprocessing.normalize(faces)
        both = self.run(np.concatenate([x, np.ascontiguousarray(x[:, :, ::-1])]))
        joined = np.concatenate([both[: len(x)], both[len(x) :]], 1)
        unit: Floats = joined / np.maximum(np.linalg.norm(joined, axis=1, keepdims=True), np.float32(1e-12))
        return unit
