"""EdgeDetector: edge maps of pictures with ONNX Runtime.

    detector = EdgeDetector("tiny")
    edges = detector(image)                 # a path, bytes, array ... (`image.load`) in; float32 H x W in [0, 1] out
    detector.save(image, "edges.png")

A graph written by `pixeldiff export` has the input `image` (normalised RGB), the output `edges` (probabilities) and
the outputs `side_1` .. `side_4` (logits at the stages' own resolution). A picture too large for the memory budget goes
through in windows: the side logits are put together at their own resolution and fused once for the whole picture,

    edges = sigmoid(bias + sum_k w_k * resize(side_k)),

because resizing per window would shift the coarse maps wherever a side is no multiple of 8. With windows that overlap
by the network's reach the result is that of the whole picture up to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from pixeldiff import image as pictures
from pixeldiff import machine, weights
from pixeldiff.errors import UserError
from pixeldiff.files import write_whole
from pixeldiff.image import FloatMap, Picture, Source
from pixeldiff.runtime.drawing import Options
from pixeldiff.runtime.engine import onnxruntime, open_session
from pixeldiff.runtime.formats import SUFFIXES
from pixeldiff.runtime.sizes import DEFAULT_SIZE, SMALLEST, Seen, enlarge, see, seen_size, thin_lines
from pixeldiff.runtime.tiles import coarser, fuse, plan_tiles, sigmoid
from pixeldiff.weights.description import Fields, normalisation

TASK = "edges"
DEFAULT = "tiny"  # the shipped network that is meant where none is named
SIDES = ("side_1", "side_2", "side_3", "side_4")
PAPER_SCALES = (0.5, 1.0, 1.5)

_BATCH_PIXELS = 2**16  # small pictures of one size go through together up to here; beyond, a batch gains nothing
_WINDOW_PIXELS = 2 * 10**6  # larger windows save little margin
_BYTES_PER_PIXEL_AND_CHANNEL = 24  # peak of a run, measured on tiny, small and basic
_SHRINK_PIXELS = 2**18  # after larger runs the network's memory goes back; below, asking for it again costs more


class EdgeDetector:
    """A network ready to run. `model` is a shipped name or an .onnx file; `providers` go to onnxruntime as they are.

    One detector may be called from several threads; `streams` says how many at once, and they share the memory.
    `size` is the longest side the network sees: a number of pixels, "full", or None for the rule.
    `memory_budget` (bytes) bounds what the network may take for one picture; it may be changed at any time.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = DEFAULT,
        threads: int | None = None,
        providers: Sequence[Any] | None = None,
        streams: int = 1,
        size: int | str | None = None,
    ) -> None:
        if streams < 1:
            raise UserError(f"streams is at least 1, got {streams}")
        seen_size((1, 1), size)  # a wrong one is told now
        self.size = size
        self.threads, self.providers, self.streams = threads, providers, streams
        path, self.metadata = weights.runnable(model, TASK)
        self.path = path.absolute()
        self.mean, self.std = _check(self.metadata, path)
        self.session = open_session(path, threads, providers)
        if not {"edges", *SIDES} <= {output.name for output in self.session.get_outputs()}:
            raise UserError(f"{path} holds weights of another network; use a file written by pixeldiff export")
        self.name: str = self.metadata["name"]
        self.memory_budget = machine.memory_budget() // streams

    def __repr__(self) -> str:
        size = DEFAULT_SIZE if self.size is None else self.size
        return f"EdgeDetector({self.name!r}, threads={self.threads}, streams={self.streams}, size={size!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as what it was made from: shipped weights by their name, others by their file."""
        model = self.path.stem if self.path.parent == weights.FOLDER else self.path
        arguments = (model, self.threads, self.providers, self.streams, self.size)
        return EdgeDetector, arguments, {"memory_budget": self.memory_budget}

    @overload
    def __call__(
        self,
        image: list[Any] | tuple[Any, ...],
        *,
        side_outputs: bool = ...,
        scales: Sequence[float] | None = ...,
        thin: bool = ...,
        size: int | str | None = ...,
        threshold: float | None = ...,
        invert: bool = ...,
    ) -> list[FloatMap]: ...

    @overload
    def __call__(
        self,
        image: Source | Seen,
        *,
        side_outputs: bool = ...,
        scales: Sequence[float] | None = ...,
        thin: bool = ...,
        size: int | str | None = ...,
        threshold: float | None = ...,
        invert: bool = ...,
    ) -> FloatMap: ...

    def __call__(
        self,
        image: Source | Seen | list[Any] | tuple[Any, ...],
        *,
        side_outputs: bool = False,
        scales: Sequence[float] | None = None,
        thin: bool = False,
        size: int | str | None = None,
        threshold: float | None = None,
        invert: bool = False,
    ) -> FloatMap | list[FloatMap]:
        """The edge map of a picture (whatever `image.load` takes), float32 H x W of its own size; for a list of
        pictures a list of maps.

        `side_outputs` gives 5 x H x W: the four side maps, then the fused one. `scales` averages the maps of the
        picture at these sizes (the paper's multi-scale test is 0.5, 1, 1.5). `thin` applies the benchmark's
        non-maximum suppression. `size` is the longest side the network sees (`seen_size`), if not the detector's.
        `threshold` gives 1 where the map is at least that and 0 elsewhere, `invert` dark edges on white.
        """
        factors = _checked_scales(scales)
        options = _options("png", thin, threshold, invert)
        many = image if isinstance(image, list | tuple) else [image]
        seen = [one if isinstance(one, Seen) else see(one, self.size if size is None else size) for one in many]
        results: list[FloatMap] = [np.empty(0, np.float32)] * len(seen)
        for group in _batches([one.picture for one in seen]):
            maps = self._at_scales([seen[index].picture for index in group], side_outputs, factors)
            for index, own in zip(group, maps, strict=True):
                own = thin_lines(own, seen[index].size) if thin else enlarge(own, seen[index].size)
                plain = threshold is None and not invert
                results[index] = own if plain else np.stack([options.finish(one) for one in own])
        if not side_outputs:
            results = [own[0] for own in results]
        return results if many is image else results[0]

    def save(
        self,
        image: Source | Seen,
        path: str | os.PathLike[str],
        *,
        scales: Sequence[float] | None = None,
        thin: bool = False,
        size: int | str | None = None,
        threshold: float | None = None,
        invert: bool = False,
    ) -> None:
        """Write the map of a picture in the format that the name ends in, as `pixeldiff detect -o path` does.

        A file of that name is replaced, by a whole one or not at all.
        """
        options = _options(Path(path).suffix[1:].lower(), thin, threshold, invert)
        edges = self(image, scales=scales, thin=options.suppressed, size=size)
        write_whole(Path(path), options.encode(edges))

    def _at_scales(self, batch: list[Picture], sides: bool, scales: Sequence[float]) -> FloatMap:
        """Maps of pictures of one size, N x (5 or 1) x H x W, averaged over the scales."""
        height, width = batch[0].shape[:2]
        total: FloatMap | None = None
        for scale in scales:
            size = (max(1, round(height * scale)), max(1, round(width * scale)))
            maps = self._maps([_resized(one, size) for one in batch], sides)
            if size != (height, width):
                maps = np.stack([[pictures.resize(one, (height, width)) for one in own] for own in maps])
            total = maps if total is None else total + maps
        assert total is not None
        return total if len(scales) == 1 else total / np.float32(len(scales))

    def _maps(self, batch: list[Picture], sides: bool) -> FloatMap:
        height, width = batch[0].shape[:2]
        batch = [pictures.pad_to(one, SMALLEST) for one in batch]
        size = (batch[0].shape[0], batch[0].shape[1])
        if size[0] * size[1] > self._window_pixels():
            maps = np.stack([self._tiled(one, sides) for one in batch])
        elif sides:
            *logits, edges = self._run([*SIDES, "edges"], batch)
            soft = np.array([[sigmoid(pictures.resize(own[0], size)) for own in side] for side in logits])
            maps = np.stack([*soft, edges[:, 0]], axis=1)
        else:
            (maps,) = self._run(["edges"], batch)
        return maps[:, :, :height, :width]

    def _run(self, outputs: Sequence[str], batch: list[Picture]) -> list[FloatMap]:
        """What the graph gives, each output checked to be one map per picture at its own resolution."""
        options = onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        height, width = batch[0].shape[:2]
        if self.providers is None and height * width > _SHRINK_PIXELS:
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            results: list[FloatMap] = self.session.run(list(outputs), {"image": self._input(batch)}, options)
        except Exception as error:  # onnxruntime raises a class of its own for each kind of damage
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"{self.name} does not run ({reason}); export or download its file again") from error
        for name, result in zip(outputs, results, strict=True):
            k = SIDES.index(name) if name in SIDES else 0
            if result.shape != (len(batch), 1, height >> k, width >> k) or result.dtype != np.float32:
                raise UserError(f"{self.name} gives no maps of edges ({name}: {result.dtype} {result.shape})")
        return results

    def _input(self, batch: list[Picture]) -> FloatMap:
        return np.stack([pictures.normalise(one, self.mean, self.std) for one in batch])

    def _window_pixels(self) -> int:
        width = self.metadata.get("config", {}).get("width", 60)
        return min(_WINDOW_PIXELS, int(self.memory_budget / (_BYTES_PER_PIXEL_AND_CHANNEL * width)))

    def _tiled(self, picture: Picture, sides: bool) -> FloatMap:
        """The maps of one large picture, (5 or 1) x H x W."""
        try:
            recipe = self.metadata["tiles"]
            margin, stride, fusion, bias = (recipe[key] for key in ("reach", "stride", "fusion", "bias"))
        except KeyError as error:
            raise UserError(f"{self.name} does not say how to tile large pictures; export its weights again") from error
        height, width = picture.shape[:2]
        whole = [np.empty((height >> k, width >> k), np.float32) for k in range(len(SIDES))]
        for tile in plan_tiles(height, width, self._window_pixels(), margin, stride):
            parts = self._run(SIDES, [picture[tile.window]])
            for k, part in enumerate(parts):
                rows, columns = (coarser(core, 0, k) for core in tile.core)
                own = (coarser(c, w.start, k) for c, w in zip(tile.core, tile.window, strict=True))
                whole[k][rows, columns] = part[0, 0][tuple(own)]
        return fuse(whole, fusion, bias, sides)


def _check(described: dict[str, Any], path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and deviation that the network expects; an error if what the file says cannot be."""
    if "preprocessing" not in described:
        raise UserError(f"{path} does not say how it sees pictures; export it again")
    try:
        config = Fields(described.get("config", {}), "the config").table
        Fields({"width": 1, **config}, "the config").whole("width", 1, 4096)
        if "tiles" in described:
            tiles = Fields(described["tiles"], "the tiles")
            tiles.whole("reach", 0, 4096)
            tiles.whole("stride", 2 ** (len(SIDES) - 1), 2 ** (len(SIDES) - 1))
            tiles.numbers("fusion", len(SIDES))
            tiles.number("bias")
        return normalisation(described)
    except UserError as error:
        raise UserError(f"{path} is damaged: {error}; export or download it again") from error


def _checked_scales(scales: Sequence[float] | None) -> Sequence[float]:
    if scales is None:
        return (1.0,)
    try:
        factors = tuple(map(float, scales))
    except (TypeError, ValueError):
        factors = ()
    if not factors or not all(0 < factor <= 8 for factor in factors):
        raise UserError(f"scales are factors above 0 and at most 8, such as {PAPER_SCALES}, not {scales!r}")
    return factors


def _batches(loaded: list[Picture]) -> list[list[int]]:
    """Indices of pictures to run together: of one size, and few enough pixels to gain from it."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for index, picture in enumerate(loaded):
        by_size.setdefault(picture.shape[:2], []).append(index)
    batches = []
    for (height, width), indices in by_size.items():
        count = max(1, _BATCH_PIXELS // (height * width))
        batches += [indices[start : start + count] for start in range(0, len(indices), count)]
    return batches


def _resized(picture: Picture, size: tuple[int, int]) -> Picture:
    if picture.shape[:2] == size:
        return picture
    full = 255 if picture.dtype == np.uint8 else 1
    result: Picture = pictures.resize(picture, size) / np.float32(full)
    return result


def _options(format: str, thin: bool, threshold: float | None, invert: bool) -> Options:
    """The command's own way from a map to numbers and files."""
    if format not in SUFFIXES:
        raise UserError(f"edges are written as {', '.join(SUFFIXES)}, not {format!r}; end the name with one of them")
    if threshold is not None and (isinstance(threshold, str) or not 0 <= threshold <= 1):
        raise UserError(f"threshold is a number from 0 to 1, not {threshold!r}")
    return Options(SUFFIXES[format], thin, threshold, invert)
