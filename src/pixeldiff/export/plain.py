"""What `pixeldiff bench` compares the runtime with when torch is there: the torch network, and a plain ONNX export.

Speed does not depend on the weights: a network that is not shipped is measured with random ones.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.export.onnx import OPSET, export_onnx
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

    def __init__(self, name: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = _Probabilities(create_model(name)).eval()

    def __call__(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode():
            result: NDArray[np.float32] = self.model(torch.from_numpy(batch)).numpy()
        return result


def write_plain_onnx(name: str, path: Path) -> None:
    """The fused network exported as it stands, with its one output."""
    axes = {"image": {0: "n", 2: "height", 3: "width"}, "edges": {0: "n", 2: "height", 3: "width"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Probabilities(fuse(create_model(name))).eval(),
            (torch.zeros(1, 3, 64, 96),),
            str(path),
            input_names=["image"],
            output_names=["edges"],
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def write_random_onnx(name: str, path: Path) -> None:
    """What `pixeldiff export` would write for this network, with random weights."""
    model = create_model(name)
    if not isinstance(model, PiDiNet):
        raise UserError(f"{name} is no edge network; train it, export it to .pdn and give that file")
    export_onnx(model, path, {"model": name, "licence": "Apache-2.0", "note": "random weights, for timing only"})


def torch_version() -> str:
    return torch.__version__
