"""A ComfyUI node pack: edges of a batch of images. Put (or link) this folder into ComfyUI's custom_nodes.

Images are tensors B x H x W x 3, float in [0, 1], in and out.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pixeldiff import image as images
from pixeldiff import weights
from pixeldiff.compat.controlnet import PREPROCESS, PidiNetDetector
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeNetwork, Look
from pixeldiff.options import Choice, Flag, Number, Option, build, options_of
from pixeldiff.render.drawing import Drawing, draw, levels

OPTIONS = {option.name: option for option in options_of(Look, Drawing, front="node")}
_LARGEST = 16384


@lru_cache(maxsize=4)
def _detector(model: str, preprocess: str) -> PidiNetDetector:
    """Open a model, and keep it between runs."""
    return PidiNetDetector(EdgeNetwork(model), preprocess)


def _widget(option: Option) -> tuple[Any, dict[str, Any]]:
    """Describe an option as ComfyUI does; for a number that may be none, 0 is none."""
    kind, info = option.kind, {"default": option.default, "tooltip": option.help}
    if isinstance(kind, Flag):
        return "BOOLEAN", info
    if isinstance(kind, Choice):
        return [choice for choice in kind.choices if choice != "transparent"], info  # IMAGE has three channels
    if isinstance(kind, Number):
        low = 0 if kind.none else kind.low
        info |= {"default": option.default or 0, "min": low, "max": min(kind.high, _LARGEST)}
        return ("INT", info | {"step": 1}) if kind.whole else ("FLOAT", info | {"step": 0.01})
    return "STRING", info | {"default": kind.text(option.default)}


def _value(option: Option, widget: Any) -> Any:
    """Convert what a widget holds to an option's value."""
    if isinstance(option.kind, Number) and option.kind.none and widget == 0:
        return None
    return option.parse(widget) if isinstance(widget, str) else widget


class PixeldiffEdges:
    """Edge maps of the images' size."""

    CATEGORY = "image/preprocessors"
    RETURN_TYPES = ("IMAGE",)
    RETURN_NAMES = ("edges",)
    FUNCTION = "detect"

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        return {
            "required": {
                "image": ("IMAGE",),
                "model": (list(weights.shipped(TASK)), {"default": DEFAULT}),
                "preprocess": (list(PREPROCESS), {"default": PREPROCESS[0]}),
            },
            # Optional, so that workflows saved before an option was added still run.
            "optional": {name: _widget(option) for name, option in OPTIONS.items()},
        }

    def detect(
        self, image: torch.Tensor, model: str = DEFAULT, preprocess: str = PREPROCESS[0], **widgets: Any
    ) -> tuple[torch.Tensor]:
        """Detect and draw the edges of a batch; `widgets` are the optional inputs."""
        batch = list(np.clip(image.detach().cpu().float().numpy(), 0, 1))
        values = {name: _value(OPTIONS[name], widget) for name, widget in widgets.items()}
        look, drawing = build(values, Look, Drawing)
        results = _detector(model, preprocess).detect(batch, look)
        if drawing.background == "photo":
            drawn = [
                draw(result, drawing, images.from_array(photo)) for result, photo in zip(results, batch, strict=True)
            ]
            colors = np.stack([np.asarray(one, np.float32) / 255 for one in drawn])
            return (torch.from_numpy(colors),)
        edges = np.stack([levels(result, drawing) for result in results])
        return (torch.from_numpy(edges)[..., None].repeat(1, 1, 1, 3),)


NODE_CLASS_MAPPINGS = {"PixeldiffEdges": PixeldiffEdges}
NODE_DISPLAY_NAME_MAPPINGS = {"PixeldiffEdges": "Edges (pixeldiff)"}
