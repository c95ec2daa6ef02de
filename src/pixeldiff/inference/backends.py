"""What runs an edge network: the C++ engine, ONNX Runtime or PyTorch, behind one protocol.

| backend | runs | on |
|---|---|---|
| native | .safetensors files with a layout for the engine (PiDiNets), large images in strips | device "cpu" |
| onnx | .onnx files of `pixeldiff export`, the fused map only | the device's provider, or any of onnxruntime's |
| torch | every trained edge network, needs the extra `train` | any device of torch |
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pixeldiff import _native
from pixeldiff import image as images
from pixeldiff.errors import InputError, MissingExtra, UserError
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.edge_file import ENGINE_KEY, read_edges
from pixeldiff.weights.description import normalization

DEFAULT_DEVICE = "cpu"
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}
TORCH_BACKEND = "pixeldiff.models.edge_backend"  # the training side, imported only where it is needed

_WORKSPACE = 96 * 2**20  # bytes for the C++ engine: strips that stay in the caches as far as they can


def side_names(count: int) -> list[str]:
    """Return the names of side outputs, from the finest."""
    return [f"side_{number}" for number in range(1, count + 1)]


SIDES = tuple(side_names(4))  # of a PiDiNet


class EdgeBackend(Protocol):
    """An open edge network."""

    name: str  # native, onnx or torch
    mean: tuple[float, ...]  # that images are normalized with
    std: tuple[float, ...]

    def maps(self, batch: list[ImageArray], sides: bool, memory: int) -> FloatMap:
        """Return maps in [0, 1] of images of one size, (N, 1, H, W), or with `sides` (N, S + 1, H, W), the fused last.

        Images are uint8 or float32 in [0, 1], (H, W, 3). `memory` bounds what the network takes, in bytes, where the
        backend can work in strips.
        """

    def run(self, batch: FloatMap) -> FloatMap:
        """Return maps of normalized images, (N, 3, H, W) -> (N, 1, H, W)."""


class NativeBackend:
    """A trained network on the C++ engine."""

    name = "native"

    def __init__(self, path: Path, described: dict[str, Any], threads: int | None) -> None:
        self.mean, self.std = _normalization(described, path)
        file, self.threads = read_edges(path), threads or 0
        config = file.config
        switches = (config.cdcm, config.csam, config.shortcuts)
        self._network = _native.EdgeNetwork(
            config.width, config.side_channels, config.kernel_sizes, *switches, weights=file.weights
        )
        levels = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
        self._table = np.ascontiguousarray(images.normalize(levels, self.mean, self.std)[:, 0])

    def run(self, batch: FloatMap) -> FloatMap:
        return np.stack([self._network.planes(planes, threads=self.threads)[0][None] for planes in batch])

    def maps(self, batch: list[ImageArray], sides: bool, memory: int) -> FloatMap:
        return np.stack([self._maps(image, sides, min(memory, _WORKSPACE)) for image in batch])

    def _maps(self, image: ImageArray, sides: bool, memory: int) -> FloatMap:
        if image.dtype == np.uint8:
            pixels = np.ascontiguousarray(image)
            edges, logits = self._network.picture(pixels, self._table, sides, self.threads, memory)
        else:
            planes = images.normalize(image, self.mean, self.std)
            edges, logits = self._network.planes(planes, sides, self.threads, memory)
        size = (edges.shape[0], edges.shape[1])
        return np.stack([*(_sigmoid(images.resize(side, size)) for side in logits), edges]) if sides else edges[None]


class OnnxBackend:
    """An exported network on ONNX Runtime, images at once."""

    name = "onnx"

    def __init__(
        self, path: Path, described: dict[str, Any], threads: int | None, providers: Sequence[Any] | None
    ) -> None:
        try:
            from pixeldiff.inference.onnx_session import open_session
        except ImportError as error:
            raise MissingExtra("onnx", str(path), error.name) from error
        self.mean, self.std = _normalization(described, path)
        self.path, self.session = path, open_session(path, threads, providers)
        if "edges" not in {output.name for output in self.session.get_outputs()}:
            raise InputError(f"{path} holds weights of another network; use a file written by pixeldiff export")

    def run(self, batch: FloatMap) -> FloatMap:
        try:
            edges: FloatMap = self.session.run(["edges"], {"image": batch})[0]
        except Exception as error:  # onnxruntime raises a class for each kind of damage
            reason = str(error).splitlines()[0][:200]
            raise InputError(f"{self.path} does not run ({reason}); export or download it again") from error
        if edges.shape != (len(batch), 1, *batch.shape[2:]) or edges.dtype != np.float32:
            raise InputError(f"{self.path} gives no maps of edges ({edges.dtype} {edges.shape})")
        return edges

    def maps(self, batch: list[ImageArray], sides: bool, memory: int) -> FloatMap:
        if sides:
            raise InputError(f"{self.path} has the fused map only; for side outputs use the .safetensors file")
        return self.run(np.stack([images.normalize(image, self.mean, self.std) for image in batch]))


def open_edges(
    path: Path,
    described: dict[str, Any],
    threads: int | None = None,
    device: str = DEFAULT_DEVICE,
    providers: Sequence[Any] | None = None,
) -> EdgeBackend:
    """Open an edge network on the backend that its file and the device ask for."""
    if threads is not None and threads < 1:
        raise UserError(f"threads is at least 1, got {threads}")
    if path.suffix == ".onnx":
        return OnnxBackend(path, described, threads, providers or [_provider(device)])
    if providers is not None:
        raise UserError(f"providers are those of ONNX Runtime, which runs .onnx files, not {path.name}; give a device")
    if device == DEFAULT_DEVICE and ENGINE_KEY in described:
        return NativeBackend(path, described, threads)
    try:
        module = importlib.import_module(TORCH_BACKEND)
    except ImportError as error:
        raise MissingExtra("train", f"{path.name} on device {device!r}", error.name) from error
    backend: EdgeBackend = module.TorchBackend(path, threads, device)
    return backend


def _provider(device: str) -> Any:
    """Return onnxruntime's provider for a device named as in torch: "cpu", "cuda", "cuda:1", "mps"."""
    kind, _, index = device.partition(":")
    if kind not in PROVIDERS or (index and not index.isdecimal()):
        raise UserError(f"unknown device {device!r}; expected {', '.join(PROVIDERS)} or a numbered one such as cuda:1")
    return (PROVIDERS[kind], {"device_id": int(index)}) if index else PROVIDERS[kind]


def _normalization(described: dict[str, Any], path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation that the network expects."""
    try:
        return normalization(described)
    except UserError as error:
        raise InputError(f"{path} is damaged: {error}; export or download it again") from error


def _sigmoid(logits: FloatMap) -> FloatMap:
    result: FloatMap = 1 / (1 + np.exp(np.minimum(-logits, np.float32(88))))
    return result
