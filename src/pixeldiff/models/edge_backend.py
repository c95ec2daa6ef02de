"""Run any trained edge network with torch, for `inference.backends`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pixeldiff import image as images
from pixeldiff.errors import InputError, UserError
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.models.edge_module import EdgeModel
from pixeldiff.models.saving import load_with_description
from pixeldiff.weights.description import normalization


class TorchBackend:
    """A model of any edge family on a device of torch; `side_logits` gives its maps of logits, the fused one last."""

    name = "torch"

    def __init__(self, path: Path, threads: int | None, device: str) -> None:
        model, described = load_with_description(path)
        if not isinstance(model, EdgeModel):
            raise InputError(f"{path} holds a {described['family']}, which gives no maps of edges")
        try:
            self.device = torch.device(device)
            model.to(self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0][:200]
            raise UserError(f"invalid device {device!r} ({reason}); use cpu, or one that this machine has") from error
        self.model: EdgeModel = model
        if threads is not None:
            torch.set_num_threads(threads)
        self.mean, self.std = normalization(described)

    def run(self, batch: FloatMap) -> FloatMap:
        return self._numpy(self._logits(batch)[-1:])

    def maps(self, batch: list[ImageArray], sides: bool, memory: int) -> FloatMap:
        planes = np.stack([images.normalize(image, self.mean, self.std) for image in batch])
        return self._numpy(self._logits(planes)[0 if sides else -1 :])

    def _logits(self, planes: FloatMap) -> list[Tensor]:
        with torch.inference_mode():
            return self.model.side_logits(torch.from_numpy(planes).to(self.device))

    @staticmethod
    def _numpy(logits: list[Tensor]) -> FloatMap:
        with torch.inference_mode():
            maps: FloatMap = torch.cat(logits, dim=1).float().sigmoid().cpu().numpy()
        return maps
