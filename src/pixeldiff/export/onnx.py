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
from pixeldiff.models.pidinet import PiDiNet
from pixeldiff.models.saving import describe_model, load_with_description, save_model
from pixeldiff.nn.layers import fuse
from pixeldiff.weights import describe
from pixeldiff.weights.description import METADATA_KEY, TRAINED

PARITY = 1e-4  # largest difference of probabilities between the network and its export
OPSET = 17


def align_channels(model: nn.Module, block: int = 8) -> nn.Module:
    """Fill the channels of every convolution up to a multiple of `block` with zeros, in place; the outputs are equal.

    ONNX Runtime has fast kernels for blocks of 8 channels. The widths 20, 30 and 60 do not fill them: aligned, small
    takes 28% less time, basic and tiny about 4% (one thread, 481x321). Right for networks whose layers between
    convolutions keep channels apart and zero at zero.
    """
    for name, conv in list(model.named_modules()):
        if not isinstance(conv, nn.Conv2d):
            continue
        depthwise = conv.groups == conv.in_channels > 1
        # Few channels (the image's 3, attention's 4, a map's 1) are no block and stay.
        outputs, inputs = (n if n < block else -(-n // block) * block for n in (conv.out_channels, conv.in_channels))
        aligned = nn.Conv2d(
            inputs,
            outputs,
            conv.kernel_size,  # type: ignore[arg-type]
            conv.stride,  # type: ignore[arg-type]
            conv.padding,  # type: ignore[arg-type]
            conv.dilation,  # type: ignore[arg-type]
            inputs if depthwise else 1,
            conv.bias is not None,
        )
        with torch.no_grad():
            for target, source in ((aligned.weight, conv.weight), (aligned.bias, conv.bias)):
                if target is not None and source is not None:
                    target.zero_()
                    target[tuple(slice(n) for n in source.shape)] = source
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, aligned)
    return model


class EdgeGraph(nn.Module):
    """What the ONNX file computes, from a trained edge network."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        fused = fuse(model)
        self.model = align_channels(fused) if isinstance(model, PiDiNet) else fused

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
