"""EdgeDetector: edge maps of images.

    detector = EdgeDetector("tiny")
    edges = detector(image)                 # a path, bytes, array ... (`image.load`) in; float32 H x W in [0, 1] out
    detector.save(image, "edges.png")

What runs the network, our own engine or ONNX Runtime, stands in networks.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from pixeldiff import image as images
from pixeldiff import machine, weights
from pixeldiff.edgemap import PAPER_SCALES
from pixeldiff.errors import UserError
from pixeldiff.files import atomic_write
from pixeldiff.image import FloatMap, ImageArray, ImageLike
from pixeldiff.inference.backends import SIDES as SIDES
from pixeldiff.inference.backends import open_edges
from pixeldiff.inference.sizes import DEFAULT_SIZE, SMALLEST, ModelInput, enlarge, input_size, prepare, thin_lines
from pixeldiff.render.drawing import Options
from pixeldiff.render.formats import SUFFIXES

TASK = "edges"
DEFAULT = "tiny"  # the pretrained model that is meant where none is named

_BATCH_PIXELS = 2**16  # small images of one size go through together up to here; beyond, a batch gains nothing


class EdgeDetector:
    """A network ready to run. `model` is a shipped name, a .safetensors file or an .onnx file.

    `engine` is "native" for our own, which runs .safetensors files, or "onnx" for ONNX Runtime (extra `onnx`), which
    runs .onnx files; by default the one that the file is for. `providers` go to onnxruntime as they are.

    One detector may be called from several threads; `streams` says how many at once, and they share the memory.
    `size` is the longer side the network sees: a number of pixels, "full", or None for the rule.
    `memory_budget` (bytes) bounds what the network may take for one image; it may be changed at any time.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT,
        threads: int | None = None,
        providers: Sequence[Any] | None = None,
        streams: int = 1,
        size: int | str | None = None,
        engine: str | None = None,
    ) -> None:
        if streams < 1:
            raise UserError(f"streams is at least 1, got {streams}")
        input_size((1, 1), size)  # a wrong one is told now
        self.size = size
        self.threads, self.providers, self.streams = threads, providers, streams
        path, self.metadata = weights.runnable(model, TASK)
        self.path = path.absolute()
        self.network = open_edges(path, self.metadata, threads, providers, engine)
        self.mean, self.std = self.network.mean, self.network.std
        self.engine: str = self.network.engine
        self.name: str = self.metadata["name"]
        self.memory_budget = machine.memory_budget() // streams

    def __repr__(self) -> str:
        size = DEFAULT_SIZE if self.size is None else self.size
        return f"EdgeDetector({self.name!r}, threads={self.threads}, streams={self.streams}, size={size!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was made from: shipped weights by their name, others by their file."""
        model = self.path.stem if self.path.parent == weights.FOLDER else self.path
        arguments = (model, self.threads, self.providers, self.streams, self.size, self.engine)
        return EdgeDetector, arguments, {"memory_budget": self.memory_budget}

    @overload
    def __call__(
        self,
        image: list[Any] | tuple[Any, ...],
        *,
        side_outputs: bool = ...,
        scales: Sequence[float] | None = ...,
        flip: bool = ...,
        thin: bool = ...,
        size: int | str | None = ...,
        threshold: float | None = ...,
        invert: bool = ...,
    ) -> list[FloatMap]: ...

    @overload
    def __call__(
        self,
        image: ImageLike | ModelInput,
        *,
        side_outputs: bool = ...,
        scales: Sequence[float] | None = ...,
        flip: bool = ...,
        thin: bool = ...,
        size: int | str | None = ...,
        threshold: float | None = ...,
        invert: bool = ...,
    ) -> FloatMap: ...

    def __call__(
        self,
        image: ImageLike | ModelInput | list[Any] | tuple[Any, ...],
        *,
        side_outputs: bool = False,
        scales: Sequence[float] | None = None,
        flip: bool = False,
        thin: bool = False,
        size: int | str | None = None,
        threshold: float | None = None,
        invert: bool = False,
    ) -> FloatMap | list[FloatMap]:
        """The edge map of an image (whatever `image.load` takes), float32 H x W of its own size; for a list of
        images a list of maps.

        `side_outputs` gives 5 x H x W: the four side maps, then the fused one. `scales` averages the maps of the
        image at these sizes (the paper's multi-scale test is 0.5, 1, 1.5), `flip` also those of its mirror image.
        `thin` applies the benchmark's non-maximum suppression. `size` is the longer side the network sees
        (`input_size`), if not the detector's. `threshold` gives 1 where the map is at least that and 0 elsewhere,
        `invert` dark edges on white.
        """
        factors = checked_scales(scales)
        options = _options("png", thin, threshold, invert)
        many = image if isinstance(image, list | tuple) else [image]
        seen = [
            one if isinstance(one, ModelInput) else prepare(one, self.size if size is None else size) for one in many
        ]
        results: list[FloatMap] = [np.empty(0, np.float32)] * len(seen)
        for group in _batches([one.image for one in seen]):
            maps = self._at_scales([seen[index].image for index in group], side_outputs, factors, flip)
            for index, own in zip(group, maps, strict=True):
                own = thin_lines(own, seen[index].size) if thin else enlarge(own, seen[index].size)
                plain = threshold is None and not invert
                results[index] = own if plain else np.stack([options.finish(one) for one in own])
        if not side_outputs:
            results = [own[0] for own in results]
        return results if many is image else results[0]

    def save(
        self,
        image: ImageLike | ModelInput,
        path: str | os.PathLike[str],
        *,
        scales: Sequence[float] | None = None,
        flip: bool = False,
        thin: bool = False,
        size: int | str | None = None,
        threshold: float | None = None,
        invert: bool = False,
    ) -> None:
        """Write the map of an image in the format that the name ends in, as `pixeldiff detect -o path` does.

        A file of that name is replaced, by a whole one or not at all.
        """
        options = _options(Path(path).suffix[1:].lower(), thin, threshold, invert)
        edges = self(image, scales=scales, flip=flip, thin=options.suppressed, size=size)
        atomic_write(Path(path), options.encode(edges))

    def _at_scales(self, batch: list[ImageArray], sides: bool, scales: Sequence[float], flip: bool) -> FloatMap:
        """Maps of images of one size, N x (5 or 1) x H x W, averaged over the scales and horizontal flips."""
        height, width = batch[0].shape[:2]
        total: FloatMap | None = None
        for scale in scales:
            size = (max(1, round(height * scale)), max(1, round(width * scale)))
            resized = [_resized(one, size) for one in batch]
            maps = self._maps(resized, sides)
            if flip:
                mirrored = self._maps([np.ascontiguousarray(one[:, ::-1]) for one in resized], sides)
                maps = (maps + mirrored[..., ::-1]) / np.float32(2)
            if size != (height, width):
                maps = np.stack([[images.resize(one, (height, width)) for one in own] for own in maps])
            total = maps if total is None else total + maps
        assert total is not None
        return total if len(scales) == 1 else total / np.float32(len(scales))

    def _maps(self, batch: list[ImageArray], sides: bool) -> FloatMap:
        height, width = batch[0].shape[:2]
        batch = [images.pad_to(one, SMALLEST) for one in batch]
        return self.network.maps(batch, sides, self.memory_budget)[:, :, :height, :width]


def checked_scales(scales: Sequence[float] | None) -> tuple[float, ...]:
    """The scales to average over; an error if they cannot be."""
    if scales is None:
        return (1.0,)
    try:
        factors = tuple(map(float, scales))
    except (TypeError, ValueError):
        factors = ()
    if not factors or not all(0 < factor <= 8 for factor in factors):
        raise UserError(f"scales are factors above 0 and at most 8, such as {PAPER_SCALES}, not {scales!r}")
    return factors


def _batches(loaded: list[ImageArray]) -> list[list[int]]:
    """Indices of images to run together: of one size, and few enough pixels to gain from it."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for index, image in enumerate(loaded):
        by_size.setdefault(image.shape[:2], []).append(index)
    batches = []
    for (height, width), indices in by_size.items():
        count = max(1, _BATCH_PIXELS // (height * width))
        batches += [indices[start : start + count] for start in range(0, len(indices), count)]
    return batches


def _resized(image: ImageArray, size: tuple[int, int]) -> ImageArray:
    if image.shape[:2] == size:
        return image
    full = 255 if image.dtype == np.uint8 else 1
    result: ImageArray = images.resize(image, size) / np.float32(full)
    return result


def _options(format: str, thin: bool, threshold: float | None, invert: bool) -> Options:
    """The command's own way from a map to numbers and files."""
    if format not in SUFFIXES:
        raise UserError(f"edges are written as {', '.join(SUFFIXES)}, not {format!r}; end the name with one of them")
    if threshold is not None and (isinstance(threshold, str) or not 0 <= threshold <= 1):
        raise UserError(f"threshold is a number from 0 to 1, not {threshold!r}")
    return Options(SUFFIXES[format], thin, threshold, invert)
