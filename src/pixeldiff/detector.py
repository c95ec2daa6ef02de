"""EdgeDetector: edge maps and line drawings of images, in Python.

    detector = EdgeDetector("tiny")
    edges = detector(image)                 # a path, bytes, array ... (`image.load`) in; float32 H x W in [0, 1] out
    detector.draw(image, background="white").show()
    detector.save(image, "edges.svg")

It puts public arguments in front of `inference.edges.detect_edges` and `render.drawing.render`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import EllipsisType
from typing import Any, overload

from PIL import Image

from pixeldiff import image as images
from pixeldiff.files import atomic_write
from pixeldiff.image import FloatMap, ImageLike
from pixeldiff.inference.backends import DEFAULT_DEVICE
from pixeldiff.inference.edges import DEFAULT, EdgeNetwork, Look, detect_batch, detect_edges
from pixeldiff.inference.sizes import DEFAULT_SIZE, ModelInput, prepare
from pixeldiff.options import build
from pixeldiff.render.drawing import Background, Drawing, binarize, check_size, draw, render, resolve
from pixeldiff.render.formats import format_of_name


class EdgeDetector:
    """Detect edges in images. One detector may be called from several threads.

    Args:
        model: a pretrained model's name, a .safetensors file or an .onnx file.
        max_size: the longer side at which the network runs, in pixels; None for all pixels. Larger images are
            downscaled for the network; maps and drawings always have the image's size.
        threads: cores per image; all of them if None.
        streams: images that may be in the network at once; they share the memory.
        device: "cpu", or a device of torch such as "cuda:1". On a CPU the C++ engine runs .safetensors files of
            PiDiNets; torch (extra `train`) runs other networks and other devices.
        providers: ONNX Runtime's, for .onnx files; by default the one of the device.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT,
        *,
        max_size: int | None = DEFAULT_SIZE,
        threads: int | None = None,
        streams: int = 1,
        device: str = DEFAULT_DEVICE,
        providers: Sequence[Any] | None = None,
    ) -> None:
        self.max_size = Look(max_size=max_size).max_size
        self.network = EdgeNetwork(model, threads, device, providers, streams)

    @property
    def name(self) -> str:
        """The model's name."""
        return self.network.name

    def __repr__(self) -> str:
        network = self.network
        return (
            f"EdgeDetector({network.name!r}, max_size={self.max_size}, threads={network.threads}, "
            f"streams={network.streams})"
        )

    @overload
    def __call__(
        self,
        image: list[Any] | tuple[Any, ...],
        *,
        nms: bool = ...,
        threshold: float | None = ...,
        flip: bool = ...,
        scales: Sequence[float] = ...,
        max_size: int | EllipsisType | None = ...,
        sides: bool = ...,
    ) -> list[FloatMap]: ...

    @overload
    def __call__(
        self,
        image: ImageLike | ModelInput,
        *,
        nms: bool = ...,
        threshold: float | None = ...,
        flip: bool = ...,
        scales: Sequence[float] = ...,
        max_size: int | EllipsisType | None = ...,
        sides: bool = ...,
    ) -> FloatMap: ...

    def __call__(
        self,
        image: ImageLike | ModelInput | list[Any] | tuple[Any, ...],
        *,
        nms: bool = False,
        threshold: float | None = None,
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
        max_size: int | EllipsisType | None = ...,
        sides: bool = False,
    ) -> FloatMap | list[FloatMap]:
        """Return the edge map of an image, float32 H x W in [0, 1]; for a list of images a list of maps.

        Args:
            image: whatever `image.load` takes: a path, bytes, a Pillow image, an array or a tensor; or a list.
            nms: apply the benchmark's non-maximum suppression.
            threshold: return 1 where the map is at least this and 0 elsewhere; with `nms` lines one pixel wide.
            flip: average with the map of the flipped image.
            scales: scales of the image whose maps are averaged; the paper's multi-scale test is 0.5, 1, 1.5.
            max_size: the longer side at which the network runs; the detector's by default, None for all pixels.
            sides: return 5 x H x W: the four side outputs, then the map.
        """
        look = self._look({"nms": nms, "flip": flip, "scales": scales, "sides": sides, "max_size": max_size})
        drawing = Drawing(threshold=threshold)
        many = isinstance(image, list | tuple)
        maps = []
        for result in detect_batch(self.network, image if isinstance(image, list | tuple) else [image], look):
            finished = result.maps if threshold is None else binarize(result, drawing)
            maps.append(finished if sides else finished[-1])
        return maps if many else maps[0]

    def draw(
        self,
        image: ImageLike,
        *,
        background: Background = "black",
        threshold: float | None = None,
        nms: bool = False,
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
        max_size: int | EllipsisType | None = ...,
    ) -> Image.Image:
        """Draw the edges of an image, as `pixeldiff detect` does: white on black by default.

        `background` "white" has black lines, "transparent" black lines on nothing, "photo" lines over the image. The
        other arguments are those of a call.
        """
        look = self._look({"nms": nms, "flip": flip, "scales": scales, "max_size": max_size})
        drawing = Drawing(threshold=threshold, background=background)
        photo = images.load(image) if background == "photo" else None
        return draw(detect_edges(self.network, image if photo is None else photo, look), drawing, photo)

    def save(self, image: ImageLike, path: str | os.PathLike[str], **options: Any) -> Path:
        """Write the edges of an image in the format of the path's suffix, as `pixeldiff detect -o PATH` does.

        Args:
            image: whatever `image.load` takes.
            path: an existing file of this name is replaced atomically.
            options: fields of `Look` and `Drawing`, such as `nms`, `max_size`, `threshold`, `background`,
                `line_width`.

        Returns:
            The path.
        """
        look, drawing = build({"format": format_of_name(path), "max_size": self.max_size} | options, Look, Drawing)
        look, drawing = resolve(look, drawing)
        photo = images.load(image) if drawing.background == "photo" else None
        prepared = prepare(image if photo is None else photo, look.max_size)
        check_size(prepared.size, look, drawing)
        result = detect_edges(self.network, prepared, look)
        atomic_write(Path(path), render(result, drawing, photo))
        return Path(path)

    def _look(self, values: dict[str, Any]) -> Look:
        if values["max_size"] is ...:
            values["max_size"] = self.max_size
        return Look(**values)
