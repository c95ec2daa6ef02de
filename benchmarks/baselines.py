"""Latency of edge networks beside an unfused torch network and a plain ONNX export, run in turns on the same batches.

    python benchmarks/baselines.py [MODEL ...] > figures.json

Speed does not depend on the weights: the baselines have random ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixeldiff import image, machine
from pixeldiff.export.onnx import OPSET
from pixeldiff.inference.edges import EdgeNetwork
from pixeldiff.inference.onnx_session import open_session
from pixeldiff.jobs.bench import SIZES, latencies, network_of, synthetic_image
from pixeldiff.models import create_model
from pixeldiff.models.pidinet import PiDiNet
from pixeldiff.nn.layers import fuse


class _Probabilities(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        return torch.sigmoid(self.model(image))


class TorchNetwork:
    """The unfused network as a researcher runs it: logits, then the sigmoid."""

    def __init__(self, model: nn.Module, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = _Probabilities(model).eval()

    def __call__(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            result: NDArray[np.float32] = self.model(torch.from_numpy(batch)).numpy()
        return result


def baselines(name: str, threads: int, folder: Path) -> dict[str, Any]:
    """Return what else runs the edge network of that name, each taking a normalized batch."""
    model = create_model(name)
    assert isinstance(model, PiDiNet)
    _write_plain(model, folder / "plain.onnx")
    session = open_session(folder / "plain.onnx", threads, None)
    return {
        "plain_onnx": lambda batch: session.run(None, {"image": batch}),
        "torch_unfused": TorchNetwork(model, threads),
    }


def _write_plain(model: PiDiNet, path: Path) -> None:
    """The fused network exported as it stands, with its one output."""
    axes = {"image": {0: "n", 2: "height", 3: "width"}, "edges": {0: "n", 2: "height", 3: "width"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Probabilities(fuse(model)).eval(),
            (torch.zeros(1, 3, 64, 96),),
            str(path),
            input_names=["image"],
            output_names=["edges"],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def measure(name: str, threads: int) -> dict[str, Any]:
    """Time a pretrained model and its baselines in turns, at each size."""
    network = EdgeNetwork(name, threads)
    with tempfile.TemporaryDirectory() as folder:
        networks = {"runtime": network_of(network), **baselines(name, threads, Path(folder))}
        sizes = {f"{width}x{height}": synthetic_image(height, width) for height, width in SIZES}
        return {
            size: latencies(networks, image.normalize(pixels, network.mean, network.std)[None])
            for size, pixels in sizes.items()
        }


def main() -> None:
    threads = machine.cores()
    figures = {name: measure(name, threads) for name in sys.argv[1:] or ["tiny"]}
    machine_is = machine.describe(threads, Path(__file__)) | {"torch": torch.__version__}
    print(json.dumps({"machine": machine_is, "latency": figures}, indent=1))


if __name__ == "__main__":
    main()
