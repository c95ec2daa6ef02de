"""What both tasks do with their data: find the folder, normalise a batch."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from pixeldiff.errors import UserError
from pixeldiff.image import MEAN, STD


def find_root(root: str, origin: str) -> Path:
    """A data folder: as given, or under PIXELDIFF_DATA. `origin` says where to get it."""
    base = os.environ.get("PIXELDIFF_DATA")
    for path in (Path(root).expanduser(), *([Path(base) / root] if base else [])):
        if path.is_dir():
            return path
    raise UserError(
        f"no data folder {root!r}, neither here nor under PIXELDIFF_DATA ({base or 'not set'}); get it first: {origin}"
    )


def normalise(images: Tensor) -> Tensor:
    """uint8 RGB (N, 3, H, W) as the networks want it."""
    mean = torch.tensor(MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(STD, device=images.device).view(3, 1, 1) * 255
    return (images - mean) / std
