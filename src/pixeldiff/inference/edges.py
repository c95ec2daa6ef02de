"""Edge maps of images: Look (what the network does), EdgeNetwork and `detect_edges`, which all fronts call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Semaphore
from typing import Any

import numpy as np

from pixeldiff import image as images
from pixeldiff import machine, weights
from pixeldiff.errors import InputError
from pixeldiff.image import FloatMap, ImageArray, ImageLike
from pixeldiff.inference.backends import DEFAULT_DEVICE, open_edges, side_names
from pixeldiff.inference.sizes import DEFAULT_SIZE, SMALLEST, ModelInput, prepare, to_image_size
from pixeldiff.options import Flag, Number, Numbers, check, option

TASK = "edges"
DEFAULT = "tiny"  # the pretrained model of every front end

SCALES = Numbers(Number(0, 8, above=True))
_BATCH_PIXELS = 2**16  # small images of one size run together up to this total; a larger batch is not faster


@dataclass(frozen=True)
class Look:
    """What the network does with an image."""

    max_size: int | None = option(
        Number(SMALLEST, whole=True, none=True),
        DEFAULT_SIZE,
        "Longer side at which the network runs, in pixels; none for all pixels. The map has the image's size.",
        unit="N|none",
    )
    scales: tuple[float, ...] = option(
        SCALES,
        (1.0,),
        "Scales of the image whose maps are averaged; the paper's are 0.5,1,1.5 at 3.5 times the work.",
        unit="S,S,...",
    )
    flip: bool = option(Flag(), False, "Average with the map of the flipped image; twice the work.")
    nms: bool = option(
        Flag(), False, "Thin lines (the benchmark's non-maximum suppression); one pixel wide with a threshold."
    )
    sides: bool = option(
        Flag(), False, "Also write the side outputs, one map per stage: photo.edges.side_1.png ...", fronts=("cli",)
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class EdgeResult:
    """Edge maps of one image."""

    maps: FloatMap  # (1 or 5) x H x W in [0, 1], of the image's size: the side outputs if asked for, then the map
    look: Look
    input_size: tuple[int, int]  # height and width at which the network ran

    @property
    def edges(self) -> FloatMap:
        """The edge map, H x W."""
        result: FloatMap = self.maps[-1]
        return result

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image."""
        return self.maps.shape[1], self.maps.shape[2]

    def by_name(self) -> dict[str, EdgeResult]:
        """Split into results of one map each: side_1 to side_4 if asked for, and "" for the edge map, last."""
        names = [*side_names(len(self.maps) - 1), ""]
        return {
            name: EdgeResult(self.maps[index : index + 1], self.look, self.input_size)
            for index, name in enumerate(names)
        }


class EdgeNetwork:
    """Run an edge network: `network(image, look)` gives a float map.

    Args:
        model: a pretrained model's name, a .safetensors file or an .onnx file.
        threads: cores per image; all of them if None.
        device: "cpu", or a device of torch such as "cuda:1". On a CPU the C++ engine runs .safetensors files of
            PiDiNets; torch (extra `train`) runs other networks and other devices.
        providers: ONNX Runtime's, for .onnx files; by default the one of the device.
        streams: images that may be in the network at once, from as many threads; they share the memory.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT,
        threads: int | None = None,
        device: str = DEFAULT_DEVICE,
        providers: Sequence[Any] | None = None,
        streams: int = 1,
    ) -> None:
        if streams < 1:
            raise InputError(f"invalid streams {streams!r}; expected at least 1")
        self.threads, self.device, self.providers, self.streams = threads, device, providers, streams
        path, self.metadata = weights.runnable(model, TASK)
        self.path = path.absolute()
        self.backend = open_edges(path, self.metadata, threads, device, providers)
        self.mean, self.std = self.backend.mean, self.backend.std
        self.name: str = self.metadata["name"]
        self.memory_budget = machine.memory_budget() // streams  # bytes for one image; may be changed at any time
        self.slots = Semaphore(streams)

    def __repr__(self) -> str:
        return f"EdgeNetwork({self.name!r}, threads={self.threads}, streams={self.streams})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: shipped weights by their name, others by their file."""
        model = self.path.stem if self.path.parent == weights.FOLDER else self.path
        arguments = (model, self.threads, self.device, self.providers, self.streams)
        return EdgeNetwork, arguments, {"memory_budget": self.memory_budget}

    def __call__(self, image: ImageLike | ModelInput, look: Look = Look()) -> FloatMap:
        """Return the edge map of an image, float32 H x W in [0, 1]; with `look.sides` 5 x H x W, the map last."""
        result = detect_edges(self, image, look)
        return result.maps if look.sides else result.edges

    def run(self, batch: Sequence[ImageArray], look: Look) -> FloatMap:
        """Run the network on images of one size as they are: N x (5 or 1) x H x W, averaged over scales and flips."""
        height, width = batch[0].shape[:2]
        total: FloatMap | None = None
        for scale in look.scales:
            size = (max(1, round(height * scale)), max(1, round(width * scale)))
            resized = [_resized(image, size) for image in batch]
            maps = self._maps(resized, look.sides)
            if look.flip:
                flipped = self._maps([np.ascontiguousarray(image[:, ::-1]) for image in resized], look.sides)
                maps = (maps + flipped[..., ::-1]) / np.float32(2)
            if size != (height, width):
                maps = np.stack([[images.resize(plane, (height, width)) for plane in planes] for planes in maps])
            total = maps if total is None else total + maps
        assert total is not None
        return total if len(look.scales) == 1 else total / np.float32(len(look.scales))

    def _maps(self, batch: Sequence[ImageArray], sides: bool) -> FloatMap:
        height, width = batch[0].shape[:2]
        padded = [images.pad_to(image, SMALLEST) for image in batch]
        return self.backend.maps(padded, sides, self.memory_budget)[:, :, :height, :width]


def detect_edges(model: EdgeNetwork, image: ImageLike | ModelInput, look: Look = Look()) -> EdgeResult:
    """Detect the edges of one image; a ModelInput has been downscaled already."""
    return detect_batch(model, [image], look)[0]


def detect_batch(model: EdgeNetwork, batch: Sequence[ImageLike | ModelInput], look: Look = Look()) -> list[EdgeResult]:
    """Detect the edges of many images; small ones of one size run together."""
    inputs = [image if isinstance(image, ModelInput) else prepare(image, look.max_size) for image in batch]
    results: dict[int, EdgeResult] = {}
    for group in _groups([prepared.image.shape for prepared in inputs]):
        with model.slots:
            maps = model.run([inputs[index].image for index in group], look)
            for index, small in zip(group, maps, strict=True):
                full = to_image_size(small, inputs[index].size, look.nms)
                results[index] = EdgeResult(full, look, small.shape[1:])
    return [results[index] for index in range(len(inputs))]


def _groups(shapes: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Group the indices of images that run together: of one size, and few enough pixels to gain from it."""
    by_size: dict[tuple[int, ...], list[int]] = {}
    for index, shape in enumerate(shapes):
        by_size.setdefault(shape[:2], []).append(index)
    groups = []
    for (height, width), indices in by_size.items():
        count = max(1, _BATCH_PIXELS // (height * width))
        groups += [indices[start : start + count] for start in range(0, len(indices), count)]
    return groups


def _resized(image: ImageArray, size: tuple[int, int]) -> ImageArray:
    if image.shape[:2] == size:
        return image
    full = 255 if image.dtype == np.uint8 else 1
    result: ImageArray = images.resize(image, size) / np.float32(full)
    return result
