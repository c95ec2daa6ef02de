"""What both tasks do with a batch of pictures."""

from __future__ import annotations

import torch
from torch import Tensor

from pixeldiff.image import MEAN, STD


def normalise(images: Tensor) -> Tensor:
    """uint8 RGB (N, 3, H, W) as the networks want it."""
    mean = torch.tensor(MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(STD, device=images.device).view(3, 1, 1) * 255
    return (images - mean) / std
