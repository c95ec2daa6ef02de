"""What `pixeldiff bench` compares the runtime with when torch is there: the torch network, and a plain ONNX export.

Speed does not depend on the weights: a network that is not shipped is measured with random ones.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixeldiff.export.onnx import OPSET
from pixeldiff.inference.onnx_session import open_session
from pixeldiff.models import create_model, list_models
from pixeldiff.models.pidinet import PiDiNet
from pixeldiff.models.saving import save_model
from pixeldiff.nn.layers import fuse
from pixeldiff.weights import canonical_name, cards


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
    """What else runs the edge network of that name, each taking a normalized batch; nothing for other words."""
    key = canonical_name(name)
    if key not in list_models() or not isinstance(model := create_model(key), PiDiNet):
        return {}
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


def write_random(name: str, folder: Path) -> Path | None:
    """A weights file of the network of that name, if torch knows it and it is not shipped."""
    key = canonical_name(name)
    if key in cards() or key not in list_models():
        return None
    path = folder / f"{key}.safetensors"
    save_model(
        calibrate_batch_norm(create_model(key)),
        path,
        {"license": "Apache-2.0", "note": "random weights, for timing only"},
    )
    return path


def calibrate_batch_norm(model: nn.Module) -> nn.Module:
    """A network of random weights whose batch norms have seen something: else the numbers of a deep one grow without
    bounds, and no export would agree with it."""
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    before = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = None  # the mean of all batches
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(0)))
    for layer, momentum in zip(norms, before, strict=True):
        layer.momentum = momentum
    return model.eval()


def torch_version() -> str:
    return torch.__version__
