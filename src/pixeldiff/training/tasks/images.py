"""Preprocessing of a batch of images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pixeldiff.image import MEAN, STD


def normalize(images: Tensor, means: Sequence[float] = MEAN, stds: Sequence[float] = STD) -> Tensor:
    """Normalize uint8 RGB (N, 3, H, W) for a network."""
    mean = torch.tensor(means, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(stds, device=images.device).view(3, 1, 1) * 255
    return (images - mean) / std
