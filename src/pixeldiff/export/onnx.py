"""Weights to a file that runs without torch; nothing is written unless it gives the network's own results.

The ONNX graph computes only what the fused edge map needs: folded kernels, the fusion weights w_k merged into the
1x1 reductions, and the reductions before the upsampling,

    edges = sigmoid(b + sum_k upsample(w_k * side_k)).

Input `image`: float32 (N, 3, H, W), normalized RGB, any N, H, W. Output `edges`: (N, 1, H, W) in [0, 1]. The outputs
`side_1` .. `side_4` are the side logits at their stage's resolution, by-products that cost nothing.
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

from pixeldiff.errors import UserError
from pixeldiff.files import atomic_path
from pixeldiff.image import FloatMap
from pixeldiff.models.pidinet import PiDiNet, upsample
from pixeldiff.models.saving import describe_model, load_with_description, save_model
from pixeldiff.nn.layers import fuse
from pixeldiff.weights.description import METADATA_KEY, TRAINED

PARITY = 1e-4  # largest difference of probabilities between the network and its export
OUTPUTS = ("edges", "side_1", "side_2", "side_3", "side_4")
OPSET = 17


def align_channels(model: nn.Module, block: int = 8) -> nn.Module:
    """Fill the channels of every convolution up to a multiple of `block` with zeros; same outputs. Changes `model`.

    ONNX Runtime has its quick kernels for blocks of 8 channels. The widths 20, 30 and 60 leave them: filled up, small
    takes 28% less time, basic and tiny about 4% (one thread, 481x321).
    """
    for name, conv in list(model.named_modules()):
        if not isinstance(conv, nn.Conv2d):
            continue
        depthwise = conv.groups == conv.in_channels > 1
        assert depthwise or conv.groups == 1
        # Few channels (the image's 3, attention's 4, a map's 1) are no block and stay.
        outputs, inputs = (n if n < block else -(-n // block) * block for n in (conv.out_channels, conv.in_channels))
        wide = nn.Conv2d(
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
            for filled, own in ((wide.weight, conv.weight), (wide.bias, conv.bias)):
                if filled is not None and own is not None:
                    filled.zero_()
                    filled[tuple(slice(n) for n in own.shape)] = own
        parent, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(parent), leaf, wide)
    return model


class EdgeGraph(nn.Module):
    """What the ONNX file computes, from a trained PiDiNet."""

    def __init__(self, model: PiDiNet) -> None:
        super().__init__()
        self.model: PiDiNet = align_channels(fuse(model))  # type: ignore[assignment]
        scales = model.fusion.weight.detach().flatten().tolist()
        with torch.no_grad():
            for side, scale in zip(self.model.sides, scales, strict=True):
                side.reduce.weight.mul_(scale)  # type: ignore[union-attr, operator]
                side.reduce.bias.mul_(scale)  # type: ignore[union-attr, operator]
        # A side that the fusion ignores cannot be recovered from its weighted map; it is then reported as zero.
        self.unscale = [1.0 / scale if scale else 0.0 for scale in scales]
        self.bias = float(model.fusion.bias.detach())  # type: ignore[union-attr]

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        weighted = self.model.side_maps(image)
        size = (image.shape[-2], image.shape[-1])
        total = weighted[0] + self.bias
        for one in weighted[1:]:
            total = total + upsample(one, size)
        sides = [one * scale for one, scale in zip(weighted, self.unscale, strict=True)]
        return torch.sigmoid(total), *sides


def export_weights(source: str | Path, destination: str | Path, pattern: str | None = None) -> float:
    """A weights file (or a pretrained model's name) to `destination`; returns the largest deviation seen."""
    model, described = load_with_description(source, pattern)
    if not isinstance(model, PiDiNet):
        raise UserError(f"{source} holds a {described['family']}; this export is for edge networks, PiDiNets")
    if Path(destination).suffix == TRAINED:
        return export_trained(model, destination, described)
    return export_onnx(model, destination, described)


def export_trained(model: PiDiNet, destination: str | Path, metadata: dict[str, Any]) -> float:
    """Write `model` as the .safetensors file that our own engine runs; the deviation as for `export_onnx`."""
    from pixeldiff.inference.backends import NativeNetwork

    with atomic_path(Path(destination), TRAINED, durable=True) as draft:
        save_model(model, draft, metadata)
        return _checked(model, NativeNetwork(draft, describe_model(model, metadata), 1).run)


def export_onnx(model: PiDiNet, destination: str | Path, metadata: dict[str, Any] | None = None) -> float:
    """Write `model` as ONNX and return its largest deviation from the network; an error if that exceeds PARITY."""
    import onnx

    model = model.eval()
    described = {**describe_model(model, metadata), "tiles": tile_recipe(model)}
    with atomic_path(Path(destination), ".onnx", durable=True) as draft:
        _write_graph(EdgeGraph(model).eval(), draft)
        proto = onnx.load(draft)
        onnx.helper.set_model_props(proto, {METADATA_KEY: json.dumps(described)})
        onnx.save(proto, draft)
        return _checked(model, _session(draft))


def tile_recipe(model: PiDiNet) -> dict[str, Any]:
    """What the runtime needs to put a large image together from windows: how far a pixel's influence reaches,
    the grid of the poolings, and the fusion, which is done once for the full image."""
    reach = model.stem.pairs.support // 2
    furthest, step = 0, 1
    for stage, side in zip(model.stages, model.sides, strict=True):
        for block in stage.children():
            if block.opens_stage:
                reach += step  # 2x2 pooling
                step *= 2
            reach += step * (block.depthwise.pairs.support // 2)  # type: ignore[assignment, operator, union-attr]
        branch = [layer for layer in side.modules() if isinstance(layer, nn.Conv2d) and layer.kernel_size != (1, 1)]
        views = [layer.dilation[0] for layer in branch if layer.dilation[0] > 1]
        plain = sum(layer.dilation[0] == 1 for layer in branch)
        furthest = max(furthest, reach + step * (max(views, default=0) + plain))
    return {
        "reach": furthest,
        "stride": step,
        "fusion": model.fusion.weight.detach().flatten().tolist(),
        "bias": float(model.fusion.bias.detach()),  # type: ignore[union-attr]
    }


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


def _write_graph(graph: EdgeGraph, path: Path) -> None:
    axes = {name: {0: "n", 2: "height", 3: "width"} for name in ("image", "edges")}
    axes |= {name: {0: "n", 2: f"height_{name}", 3: f"width_{name}"} for name in OUTPUTS[1:]}
    trace(graph, path, OUTPUTS, axes)


def _session(path: Path) -> Callable[[FloatMap], FloatMap]:
    from pixeldiff.inference.onnx_session import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # small images; waiting threads would cost more than they help
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda batch: session.run(["edges"], {"image": batch})[0]


def _checked(model: PiDiNet, run: Callable[[FloatMap], FloatMap]) -> float:
    """Largest difference of probabilities on seeded noise of even and odd sizes, one and two images; an error if it
    exceeds PARITY."""
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
