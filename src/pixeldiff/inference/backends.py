"""What runs an edge network: our own engine, from the trained file, or ONNX Runtime, from an exported graph.

Both take images of one size (uint8 or float32 in [0, 1], H x W x 3) and give maps, N x (5 or 1) x H x W: with `sides`
the four side maps, then the fused one. Our engine takes large images in strips of rows by itself. A graph written by
`pixeldiff export` has the input `image` (normalized RGB), the output `edges` (probabilities) and the outputs `side_1`
.. `side_4` (logits at the stages' own resolution). An image too large for the memory budget goes through in windows:
the side logits are put together at their own resolution and fused once for the full image,

    edges = sigmoid(bias + sum_k w_k * resize(side_k)),

because resizing per window would shift the coarse maps wherever a side is no multiple of 8. With windows that overlap
by the network's reach the result is that of the full image up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff import _native
from pixeldiff import image as images
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.edge_file import read_edges
from pixeldiff.inference.tiles import coarser, fuse, plan_tiles, sigmoid
from pixeldiff.weights.description import TRAINED, JsonReader, normalization

SIDES = ("side_1", "side_2", "side_3", "side_4")
ENGINES = {"native": TRAINED, "onnx": ".onnx"}  # and the files they run

_WORKSPACE = 96 * 2**20  # bytes for our engine: strips that stay in the caches as far as they can
_WINDOW_PIXELS = 2 * 10**6  # larger windows save little margin
_BYTES_PER_PIXEL_AND_CHANNEL = 24  # peak of a run of onnxruntime, measured on tiny, small and basic
_SHRINK_PIXELS = 2**18  # after larger runs its memory goes back; below, asking for it again costs more


class NativeNetwork:
    """A trained network on our own engine."""

    engine = "native"

    def __init__(self, path: Path, described: dict[str, Any], threads: int | None) -> None:
        if threads is not None and threads < 1:
            raise UserError(f"threads is at least 1, got {threads}")
        self.mean, self.std = _check(described, path)
        file, self.threads = read_edges(path), threads or 0
        config = file.config
        switches = (config.cdcm, config.csam, config.shortcuts)
        self._network = _native.EdgeNetwork(
            config.width, config.side_channels, config.pattern, *switches, weights=file.weights
        )
        every = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
        self._table = np.ascontiguousarray(images.normalize(every, self.mean, self.std)[:, 0])

    def run(self, batch: FloatMap) -> FloatMap:
        """Edges of normalized images, N x 3 x H x W: what bench times."""
        return np.stack([self._network.planes(one, threads=self.threads)[0][None] for one in batch])

    def maps(self, batch: list[ImageArray], sides: bool, budget: int) -> FloatMap:
        return np.stack([self._one(image, sides, min(budget, _WORKSPACE)) for image in batch])

    def _one(self, image: ImageArray, sides: bool, memory: int) -> FloatMap:
        if image.dtype == np.uint8:
            whole = np.ascontiguousarray(image)
            edges, logits = self._network.picture(whole, self._table, sides, self.threads, memory)
        else:
            planes = images.normalize(image, self.mean, self.std)
            edges, logits = self._network.planes(planes, sides, self.threads, memory)
        size = (edges.shape[0], edges.shape[1])
        return np.stack([*(sigmoid(images.resize(side, size)) for side in logits), edges]) if sides else edges[None]


class GraphNetwork:
    """An exported network on ONNX Runtime."""

    engine = "onnx"

    def __init__(
        self, path: Path, described: dict[str, Any], threads: int | None, providers: Sequence[Any] | None
    ) -> None:
        try:
            from pixeldiff.inference import onnx_session as engine
        except ImportError as error:
            raise MissingExtra("onnx", str(path), error.name) from error
        self.mean, self.std = _check(described, path)
        self.described, self.providers, self._onnxruntime = described, providers, engine.onnxruntime
        self.session = engine.open_session(path, threads, providers)
        if not {"edges", *SIDES} <= {output.name for output in self.session.get_outputs()}:
            raise UserError(f"{path} holds weights of another network; use a file written by pixeldiff export")

    def run(self, batch: FloatMap) -> FloatMap:
        """Edges of normalized images, N x 3 x H x W: what bench times."""
        edges: FloatMap = self.session.run(["edges"], {"image": batch})[0]
        return edges

    def maps(self, batch: list[ImageArray], sides: bool, budget: int) -> FloatMap:
        size = (batch[0].shape[0], batch[0].shape[1])
        width = self.described.get("config", {}).get("width", 60)
        most = min(_WINDOW_PIXELS, int(budget / (_BYTES_PER_PIXEL_AND_CHANNEL * width)))
        if size[0] * size[1] > most:
            return np.stack([self._tiled(one, sides, most) for one in batch])
        if not sides:
            return self._outputs(["edges"], batch)[0]
        *logits, edges = self._outputs([*SIDES, "edges"], batch)
        soft = np.array([[sigmoid(images.resize(own[0], size)) for own in side] for side in logits])
        return np.stack([*soft, edges[:, 0]], axis=1)

    def _outputs(self, outputs: Sequence[str], batch: list[ImageArray]) -> list[FloatMap]:
        """What the graph gives, each output checked to be one map per image at its own resolution."""
        options = self._onnxruntime.RunOptions()
        options.only_execute_path_to_fetches = True
        height, width = batch[0].shape[:2]
        if self.providers is None and height * width > _SHRINK_PIXELS:
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        name = self.described["name"]
        planes = np.stack([images.normalize(one, self.mean, self.std) for one in batch])
        try:
            results: list[FloatMap] = self.session.run(list(outputs), {"image": planes}, options)
        except Exception as error:  # onnxruntime raises a class of its own for each kind of damage
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"{name} does not run ({reason}); export or download its file again") from error
        for output, result in zip(outputs, results, strict=True):
            k = SIDES.index(output) if output in SIDES else 0
            if result.shape != (len(batch), 1, height >> k, width >> k) or result.dtype != np.float32:
                raise UserError(f"{name} gives no maps of edges ({output}: {result.dtype} {result.shape})")
        return results

    def _tiled(self, image: ImageArray, sides: bool, most: int) -> FloatMap:
        """The maps of one large image, (5 or 1) x H x W."""
        try:
            recipe = self.described["tiles"]
            margin, stride, fusion, bias = (recipe[key] for key in ("reach", "stride", "fusion", "bias"))
        except KeyError as error:
            name = self.described["name"]
            raise UserError(f"{name} does not say how to tile large images; export its weights again") from error
        height, width = image.shape[:2]
        whole = [np.empty((height >> k, width >> k), np.float32) for k in range(len(SIDES))]
        for tile in plan_tiles(height, width, most, margin, stride):
            parts = self._outputs(SIDES, [image[tile.window]])
            for k, part in enumerate(parts):
                rows, columns = (coarser(core, 0, k) for core in tile.core)
                own = (coarser(c, w.start, k) for c, w in zip(tile.core, tile.window, strict=True))
                whole[k][rows, columns] = part[0, 0][tuple(own)]
        return fuse(whole, fusion, bias, sides)


def open_edges(
    path: Path,
    described: dict[str, Any],
    threads: int | None,
    providers: Sequence[Any] | None,
    engine: str | None,
) -> NativeNetwork | GraphNetwork:
    """The network of a file on the engine asked for, or the one that the file is for."""
    if engine is None:
        engine = "onnx" if path.suffix == ENGINES["onnx"] or providers is not None else "native"
    if engine not in ENGINES:
        raise UserError(f"engine is {' or '.join(ENGINES)}, not {engine!r}")
    if providers is not None and engine != "onnx":
        raise UserError("providers are those of ONNX Runtime; give engine='onnx' with them")
    if path.suffix != ENGINES[engine]:
        other = f"{path.stem}{ENGINES[engine]}"
        raise UserError(
            f"the {engine} engine runs {ENGINES[engine]} files, not {path.name}; "
            + (f"export it first: pixeldiff export {path.stem} -o {other}" if engine == "onnx" else f"give {other}")
        )
    if engine == "onnx":
        return GraphNetwork(path, described, threads, providers)
    return NativeNetwork(path, described, threads)


def _check(described: dict[str, Any], path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and deviation that the network expects; an error if what the file says cannot be."""
    if "preprocessing" not in described:
        raise UserError(f"{path} does not say how it sees images; export it again")
    try:
        config = JsonReader(described.get("config", {}), "the config").table
        JsonReader({"width": 1, **config}, "the config").integer("width", 1, 4096)
        if "tiles" in described:
            tiles = JsonReader(described["tiles"], "the tiles")
            tiles.integer("reach", 0, 4096)
            tiles.integer("stride", 2 ** (len(SIDES) - 1), 2 ** (len(SIDES) - 1))
            tiles.numbers("fusion", len(SIDES))
            tiles.number("bias")
        return normalization(described)
    except UserError as error:
        raise UserError(f"{path} is damaged: {error}; export or download it again") from error
