"""Edge networks to files that run without torch; nothing is written unless it gives the network's own results.

The ONNX graph is the fused edge map of any edge family, with kernels folded: input `image`, float32 (N, 3, H, W),
normalized RGB, any N, H and W; output `edges`, (N, 1, H, W) in [0, 1].
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pixeldiff.errors import InputError, UserError
from pixeldiff.files import atomic_path
from pixeldiff.image import FloatMap
from pixeldiff.models.edge_module import EdgeModel
from pixeldiff.models.saving import describe_model, load_with_description, save_model
from pixeldiff.nn.layers import fuse
from pixeldiff.weights import describe
from pixeldiff.weights.description import METADATA_KEY, TRAINED

PARITY = 1e-4  # largest difference of probabilities between the network and its export
OPSET = 17


class EdgeGraph(nn.Module):
    """What the ONNX file computes, from a trained edge network."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = fuse(model)

    def forward(self, image: Tensor) -> Tensor:
        logits: list[Tensor] = self.model.side_logits(image)  # type: ignore[operator]
        return torch.sigmoid(logits[-1])


def export_weights(source: str | Path, destination: str | Path, pattern: str | None = None) -> float:
    """Write a weights file (or a pretrained model, by name) to `destination`; return the largest difference found."""
    model, described = load_with_description(source, pattern)
    if not isinstance(model, EdgeModel):
        raise InputError(f"{source} holds a {described['family']}, not an edge network")
    if Path(destination).suffix == TRAINED:
        return export_trained(model, destination, described)
    return export_onnx(model, destination, described)


def export_trained(model: nn.Module, destination: str | Path, metadata: dict[str, Any]) -> float:
    """Write `model` as a .safetensors file and return its largest difference from the network when it runs."""
    from pixeldiff.inference.backends import open_edges

    with atomic_path(Path(destination), TRAINED, durable=True) as draft:
        save_model(model, draft, metadata)
        return _check_parity(model, open_edges(draft, describe(draft), 1).run)


def export_onnx(model: nn.Module, destination: str | Path, metadata: dict[str, Any] | None = None) -> float:
    """Write `model` as ONNX and return its largest difference from the network; an error if that exceeds PARITY."""
    import onnx

    model = model.eval()
    described = describe_model(model, metadata)
    with atomic_path(Path(destination), ".onnx", durable=True) as draft:
        axes = {name: {0: "n", 2: "height", 3: "width"} for name in ("image", "edges")}
        trace(EdgeGraph(model).eval(), draft, ("edges",), axes)
        proto = onnx.load(draft)
        onnx.helper.set_model_props(proto, {METADATA_KEY: json.dumps(described)})
        onnx.save(proto, draft)
        return _check_parity(model, _open(draft, described))


def trace(graph: nn.Module, path: Path, outputs: tuple[str, ...], axes: dict[str, dict[int, str]]) -> None:
    """Write a graph of (N, 3, H, W) images; `axes` names the sizes that may change."""
    # The tracing exporter: ten times quicker than the newer one here, a graph as good, and no further dependency.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            (torch.zeros(2, 3, 64, 96),),
            str(path),
            input_names=["image"],
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


def _open(path: Path, described: dict[str, Any]) -> Callable[[FloatMap], FloatMap]:
    from pixeldiff.inference.backends import OnnxBackend

    return OnnxBackend(path, described, 1, None).run


def _check_parity(model: nn.Module, run: Callable[[FloatMap], FloatMap]) -> float:
    """Return the largest difference of probabilities on seeded noise of even and odd sizes, one and two images."""
    generator = torch.Generator().manual_seed(0)
    worst = 0.0
    for shape in ((1, 3, 64, 96), (2, 3, 65, 47), (1, 3, 33, 101)):
        image = torch.randn(shape, generator=generator)
        with torch.no_grad():
            expected = torch.sigmoid(model(image)).numpy()
        worst = max(worst, float(np.abs(run(image.numpy()) - expected).max()))
    if not worst <= PARITY:
        raise UserError(f"the exported network deviates by {worst:.1e} (at most {PARITY:.0e}); nothing written")
    return worst
