"""Classifier: what images show, by a 1-bit network.

Classifier("model.pdn")(image)            # path, Pillow image or array in; the likeliest classes out
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image as images
from pixeldiff.errors import UserError
from pixeldiff.image import ImageLike
from pixeldiff.inference.packed import Floats, open_packed

TASK = "classes"
_BATCH = 16  # images that go through together


@dataclass(frozen=True)
class Prediction:
    label: str
    index: int
    probability: float


class Classifier:
    """A network ready to run. `model` is a shipped name or a .pdn file.

    One classifier may be called from several threads; `streams` says how many at once, and they share the cores unless
    `threads` says how many each may use.
    """

    def __init__(self, model: str | os.PathLike[str], threads: int | None = None, streams: int = 1) -> None:
        self.file, self.run = open_packed(model, TASK, threads, streams)
        self.name = self.file.name
        self.labels = self.file.labels

    @overload
    def __call__(self, image: list[Any] | tuple[Any, ...], top: int = ...) -> list[list[Prediction]]: ...

    @overload
    def __call__(self, image: ImageLike, top: int = ...) -> list[Prediction]: ...

    def __call__(
        self, image: ImageLike | list[Any] | tuple[Any, ...], top: int = 5
    ) -> list[Prediction] | list[list[Prediction]]:
        """The `top` likeliest classes of an image, likeliest first; for a list of images a list of such lists."""
        if top < 1:
            raise UserError(f"top is at least 1, got {top}")
        many = image if isinstance(image, list | tuple) else [image]
        results: list[list[Prediction]] = []
        for start in range(0, len(many), _BATCH):
            batch = np.stack([self.prepare(one) for one in many[start : start + _BATCH]])
            results += [self._best(row, top) for row in self.logits(batch)]
        return results if many is image else results[0]

    def prepare(self, image: ImageLike) -> NDArray[np.uint8]:
        """An image's center square in the network's size."""
        loaded = images.as_8_bit(images.load(image))
        seen = self.file.preprocessing
        return images.center_square(loaded, seen.size[0], seen.crop or 1.0)

    def logits(self, batch: NDArray[np.uint8]) -> Floats:
        """Class logits of prepared images, uint8 (N, H, W, 3)."""
        if batch.ndim != 4 or batch.shape[-1] != 3 or batch.dtype != np.uint8 or 0 in batch.shape:
            raise UserError(f"a batch is uint8 (N, H, W, 3), got {batch.dtype} {batch.shape}")
        return self.run(self.file.preprocessing.normalize(batch))

    def _best(self, logits: Floats, top: int) -> list[Prediction]:
        order = np.argsort(-logits, kind="stable")[:top]
        with np.errstate(invalid="ignore"):  # weights at the edge of float32 may overflow
            shares = np.exp(logits - logits.max())
            shares /= shares.sum()
        return [Prediction(self.labels[i] if self.labels else f"class {i}", int(i), float(shares[i])) for i in order]
