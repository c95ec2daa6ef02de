"""A ComfyUI node pack: edges of a batch of images. Put (or link) this folder into ComfyUI's custom_nodes.

Images are tensors B x H x W x 3, float in [0, 1], in and out.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import torch

from pixeldiff import EdgeDetector, weights
from pixeldiff.compat.controlnet import PREPROCESS, PidiNetDetector
from pixeldiff.detector import DEFAULT, TASK
from pixeldiff.render.drawing import Options


@lru_cache(maxsize=4)
def _detector(model: str, preprocess: str) -> PidiNetDetector:
    """Kept between runs."""
    return PidiNetDetector(EdgeDetector(model), preprocess)


class PixeldiffEdges:
    """Edge maps of the images' own size."""

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
                "thin": ("BOOLEAN", {"default": False}),
                "threshold": ("FLOAT", {"default": 0.0, "min": 0.0, "max": 1.0, "step": 0.01}),
                "invert": ("BOOLEAN", {"default": False}),
            },
            # Not required, so that workflows saved without it still run.
            "optional": {"size": ("INT", {"default": 0, "min": 0, "max": 16384, "step": 64})},
        }

    def detect(
        self,
        image: torch.Tensor,
        model: str = DEFAULT,
        preprocess: str = PREPROCESS[0],
        thin: bool = False,
        threshold: float = 0.0,
        invert: bool = False,
        size: int = 0,
    ) -> tuple[torch.Tensor]:
        """A threshold of 0 leaves the map soft; `size` is the longer side the network sees, 0 leaves it the choice."""
        batch = np.clip(image.detach().cpu().float().numpy(), 0, 1)
        options = Options(thin=thin, threshold=threshold or None, invert=invert)
        maps = _detector(model, preprocess).maps(list(batch), thin=thin, size=size or None)
        edges = np.stack([options.finish(one) for one in maps])
        return (torch.from_numpy(edges)[..., None].repeat(1, 1, 1, 3),)


NODE_CLASS_MAPPINGS = {"PixeldiffEdges": PixeldiffEdges}
NODE_DISPLAY_NAME_MAPPINGS = {"PixeldiffEdges": "Edges (pixeldiff)"}
