"""EdgeModule, an edge network as a part of a PyTorch program: images B x C x H x W in [0, 1] in, maps out.

edges = EdgeModule("tiny").to(device)
maps = edges(images)                  # B x 1 x H x W in [0, 1], on the same device, with gradients

Colors are RGB; one channel is gray. The network runs at full image size: downscale large photos first, as
EdgeDetector does, which also reads files and is faster on a CPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from pixeldiff.errors import UserError
from pixeldiff.models.saving import load_with_description
from pixeldiff.weights import check_task
from pixeldiff.weights.description import normalization

TASK = "edges"


@runtime_checkable
class EdgeModel(Protocol):
    """What a model of an edge family offers besides nn.Module; its `forward` gives the fused logits."""

    def side_logits(self, x: Tensor) -> list[Tensor]:
        """Return maps of logits at the input's size, (N, 1, H, W), the fused one last."""


class EdgeModule(nn.Module):
    """Normalize images as the weights say, run the network, and turn logits into maps; `source` as for load_model."""

    mean: Tensor
    std: Tensor

    def __init__(self, source: str | Path = "tiny") -> None:
        super().__init__()
        self.network, described = load_with_description(source)
        check_task(source, described["task"], TASK)
        mean, std = normalization(described)
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
            actual = f"{images.dtype} {tuple(images.shape)}"
            raise UserError(f"images are floats B x 3 x H x W or B x 1 x H x W in [0, 1], not {actual}")
        _check_range(images.detach())
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits.sigmoid()


def _check_range(images: Tensor) -> None:
    """Raise an error if numbers lie outside [0, 1]; pass while a graph is recorded, and where there are shapes only."""
    recorded = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if recorded or (images.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if images.is_meta or not images.numel():
        return
    try:
        low, high = (float(end) for end in images.aminmax())
    except RuntimeError:  # under vmap, and of fake tensors, there are no numbers to look at
        return
    rounding = max(1e-6, torch.finfo(images.dtype).eps)
    if not (low >= -rounding and high <= 1 + rounding):  # also catches nan
        raise UserError(
            f"images have values from {low:.4g} to {high:.4g}, expected [0, 1]: divide levels by 255, and leave the "
            "normalization to EdgeModule"
        )
