"""Detectors as ONNX files; nothing is written unless the file gives the results of the network.

Input `image`: float32 (N, 3, H, W), normalized RGB, any N, H and W multiples of 32. Outputs: `boxes` (N, points, 4),
left, top, right, bottom in pixels, and `scores` (N, points, classes) in [0, 1]. With `nms` the graph also has
non-maximum suppression: `detected_boxes` (K, 4), `detected_scores`, `detected_labels` and `detected_images` (K,).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.export.onnx import PARITY, trace
from pixeldiff.files import atomic_path
from pixeldiff.inference.objects import MOST, OVERLAP, THRESHOLD
from pixeldiff.models.detector import Detector
from pixeldiff.models.saving import describe_model, load_with_description
from pixeldiff.nn.layers import fuse
from pixeldiff.weights.description import METADATA_KEY

OUTPUTS = ("boxes", "scores")


class BoxGraph(nn.Module):
    """A detector as the ONNX file computes it: kernels folded, boxes decoded."""

    def __init__(self, model: Detector) -> None:
        super().__init__()
        self.model: Detector = fuse(model)  # type: ignore[assignment]

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        logits, boxes = self.model.decode(self.model(image))
        return boxes, torch.sigmoid(logits)


def export_objects(source: str | Path, destination: str | Path, pattern: str | None = None, nms: bool = False) -> float:
    """Export a weights file or a pretrained model to `destination`; return the largest deviation."""
    model, described = load_with_description(source, pattern)
    if not isinstance(model, Detector):
        raise UserError(
            f"{source} holds a {described['family']}, the body of a detector; train its next stage, then export"
        )
    return export_detector(model, destination, described, nms)


def export_detector(
    model: Detector, destination: str | Path, metadata: dict[str, Any] | None = None, nms: bool = False
) -> float:
    """Write `model` as ONNX and return its largest deviation from the network; an error if that exceeds PARITY."""
    import onnx

    model = model.eval()
    described = describe_model(model, metadata)
    described.setdefault("labels", [f"class {k}" for k in range(model.config.classes)])
    axes = {"image": {0: "n", 2: "height", 3: "width"}, **{name: {0: "n", 1: "points"} for name in OUTPUTS}}
    with atomic_path(Path(destination), ".onnx", durable=True) as unfinished:
        trace(BoxGraph(model).eval(), unfinished, OUTPUTS, axes)
        proto = onnx.load(unfinished)
        onnx.helper.set_model_props(proto, {METADATA_KEY: json.dumps(described)})
        if nms:
            _add_suppression(proto)
        onnx.checker.check_model(proto)
        onnx.save(proto, unfinished)
        deviation = _deviation(model, unfinished)
        if not deviation <= PARITY:
            raise UserError(f"the exported graph deviates by {deviation:.1e} (at most {PARITY:.0e}); nothing written")
    return deviation


def _add_suppression(proto: Any) -> None:
    """Append ONNX's NonMaxSuppression with pixeldiff's thresholds, and outputs of what it selects."""
    from onnx import TensorProto, helper, numpy_helper

    graph = proto.graph
    constants: dict[str, Any] = {
        "nms_most": np.array([MOST], np.int64),
        "nms_overlap": np.array([OVERLAP], np.float32),
        "nms_threshold": np.array([THRESHOLD], np.float32),
        "nms_of_box": np.array([0, 2], np.int64),
        "nms_image": np.array(0, np.int64),
        "nms_class": np.array(1, np.int64),
    }
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    arguments = ["boxes", "nms_scores", "nms_most", "nms_overlap", "nms_threshold"]
    graph.node.extend(
        [
            helper.make_node("Transpose", ["scores"], ["nms_scores"], perm=[0, 2, 1]),
            helper.make_node("NonMaxSuppression", arguments, ["nms_selected"]),  # K x (image, class, point)
            helper.make_node("Gather", ["nms_selected", "nms_of_box"], ["nms_places"], axis=1),
            helper.make_node("GatherND", ["boxes", "nms_places"], ["detected_boxes"]),
            helper.make_node("GatherND", ["nms_scores", "nms_selected"], ["detected_scores"]),
            helper.make_node("Gather", ["nms_selected", "nms_class"], ["detected_labels"], axis=1),
            helper.make_node("Gather", ["nms_selected", "nms_image"], ["detected_images"], axis=1),
        ]
    )
    kinds = {"scores": TensorProto.FLOAT, "labels": TensorProto.INT64, "images": TensorProto.INT64}
    graph.output.append(helper.make_tensor_value_info("detected_boxes", TensorProto.FLOAT, ["detected", 4]))
    graph.output.extend(helper.make_tensor_value_info(f"detected_{n}", kind, ["detected"]) for n, kind in kinds.items())


def _deviation(model: Detector, path: Path) -> float:
    """Return the largest difference on seeded noise of several sizes, of scores and (relative) of boxes."""
    from pixeldiff.inference.onnx_session import open_session

    session = open_session(path, 1, None)
    generator = torch.Generator().manual_seed(0)
    largest = 0.0
    for shape in ((1, 3, 64, 96), (2, 3, 96, 32), (1, 3, 160, 128)):
        image = torch.randn(shape, generator=generator)
        with torch.no_grad():
            logits, corners = model.decode(model(image))
        boxes, scores = session.run(list(OUTPUTS), {"image": image.numpy()})
        difference = (torch.from_numpy(boxes) - corners).abs() / (max(shape[2:]) + corners.abs())
        largest = max(
            largest, float(difference.max()), float((torch.from_numpy(scores) - logits.sigmoid()).abs().max())
        )
    return largest
