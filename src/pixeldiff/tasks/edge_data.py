"""Pictures with edge labels: one pair-list dataset for every layout in use, and the HED augmentation on the fly.

A label is the share of annotators who marked a pixel, 0 to 1, kept as uint8 (255 = all). IGNORED is a value
between "nobody" and any eta: what a rotated or padded picture does not cover is labelled so, and the loss skips it.
The augmentation is that of HED: 16 rotations, a flip, three scales, each combination one entry of the epoch.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from pixeldiff.errors import UserError

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
IGNORED = 1
N = TypeVar("N", float, Tensor)


@dataclass(frozen=True)
class Pair:
    image: Path
    label: Path


def find_root(root: str) -> Path:
    """A data folder: as given, or under PIXELDIFF_DATA."""
    base = os.environ.get("PIXELDIFF_DATA")
    for path in (Path(root), *([Path(base) / root] if base else [])):
        if path.is_dir():
            return path
    raise UserError(
        f"no data folder {root!r}, neither here nor under PIXELDIFF_DATA ({base or 'not set'}); "
        "BSDS500 is at https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/"
    )


def list_pairs(root: Path, source: str) -> list[Pair]:
    """The pairs that one entry of `data.sources` names: a split of a raw BSDS500 folder."""
    images, labels = root / "images" / source, root / "groundTruth" / source
    if not images.is_dir() or not labels.is_dir():
        raise UserError(f"{root} has no images/{source} with groundTruth/{source}")
    return [Pair(path, labels / f"{path.stem}.mat") for path in sorted(images.glob("*.jpg"))]


def read_image(path: Path) -> np.ndarray:
    """RGB, uint8 (H, W, 3)."""
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def read_label(path: Path) -> np.ndarray:
    """The share of annotators as uint8 (H, W): from a BSDS500 .mat file, or channel 0 of a picture."""
    if path.suffix == ".mat":
        return np.rint(np.mean(read_annotators(path), axis=0) * 255).astype(np.uint8)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))[..., 0]


def read_annotators(path: Path) -> list[np.ndarray]:
    """The boundary maps of a BSDS500 .mat file, one boolean array per annotator."""
    from scipy.io import loadmat

    truth = loadmat(path)["groundTruth"]
    return [truth[0, k]["Boundaries"][0, 0] > 0 for k in range(truth.shape[1])]


@lru_cache(maxsize=1024)
def _decoded(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    image, label = read_image(pair.image), read_label(pair.label)
    if image.shape[:2] != label.shape:
        raise UserError(
            f"{pair.image} is {image.shape[1]}x{image.shape[0]} but its label {pair.label} is "
            f"{label.shape[1]}x{label.shape[0]}; make them the same size"
        )
    return image, label


def inscribed(width: float, height: float, angle: float) -> tuple[float, float]:
    """Sides of the largest upright rectangle inside a width x height rectangle rotated by `angle` (radians)."""
    long, short = max(width, height), min(width, height)
    sin, cos = abs(math.sin(angle)), abs(math.cos(angle))
    if short <= 2 * sin * cos * long or abs(sin - cos) < 1e-10:
        # Two corners touch the long sides, the other two lie on the middle line between them.
        half = 0.5 * short
        a, b = (half / sin, half / cos) if width >= height else (half / cos, half / sin)
    else:
        double = cos * cos - sin * sin
        a, b = (width * cos - height * sin) / double, (height * cos - width * sin) / double
    return a, b


def warp(
    image: np.ndarray,
    label: np.ndarray,
    angle: float,
    flip: bool,
    scale: float,
    size: tuple[int, int],
    centre: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """A window of the picture rotated by `angle` (radians), mirrored and scaled: uint8 (3, H, W) and (1, H, W).

    `size` is the window's (height, width); `centre` is its centre (y, x) on the scaled upright picture, relative to the
    middle. Beyond the picture's border the image is mirrored and the label IGNORED.
    """
    stacked = torch.from_numpy(np.concatenate([image, label[..., None]], axis=2)).permute(2, 0, 1)[None].float()
    if scale < 1:  # average before sampling sparsely, or thin labels fall between the samples
        shrunk = [max(1, round(s * scale)) for s in stacked.shape[2:]]
        stacked = F.interpolate(stacked, shrunk, mode="bilinear", antialias=True, align_corners=False)
    height, width = stacked.shape[2:]
    factor = 1.0 if scale < 1 else 1.0 / scale
    y = (torch.arange(size[0]) - (size[0] - 1) / 2)[:, None]
    x = (torch.arange(size[1]) - (size[1] - 1) / 2)[None, :] * (-1 if flip else 1)
    (row, column), (dy, dx) = _rotated(y, x, angle), centre
    grid = torch.stack([(column + dx) * (2 * factor / width), (row + dy) * (2 * factor / height)], dim=-1)
    sampled = F.grid_sample(stacked, grid[None], "bilinear", "reflection", align_corners=False)
    sampled = sampled.round_().clamp_(0, 255).to(torch.uint8)[0]
    outside = (grid.abs() > 1 + 1e-4).any(-1)
    sampled[3][outside] = IGNORED
    return sampled[:3], sampled[3:]


class EdgePairs:
    """The pairs of a recipe's [data] table, augmented; entry `index` of epoch `epoch` is a pure function of both."""

    def __init__(
        self,
        pairs: list[Pair],
        seed: int,
        rotations: int = 1,
        flips: bool = False,
        scales: tuple[float, ...] = (1.0,),
        crop: int = 0,
        fill: bool = False,
    ) -> None:
        self.pairs, self.seed = pairs, seed
        self.rotations, self.scales, self.crop, self.fill = rotations, scales, crop, fill
        self.versions = rotations * (1 + flips) * len(scales)

    def __len__(self) -> int:
        return len(self.pairs) * self.versions

    def name(self, index: int) -> str:
        pair, angle, flip, scale = self.entry(index)
        return f"{pair.image} (rotation {math.degrees(angle):g}, flip {int(flip)}, scale {scale:g})"

    def entry(self, index: int) -> tuple[Pair, float, bool, float]:
        """The picture, rotation, flip and scale of an entry."""
        picture, version = divmod(index, self.versions)
        version, turn = divmod(version, self.rotations)
        flip, scale = divmod(version, len(self.scales))
        return self.pairs[picture], 2 * math.pi * turn / self.rotations, bool(flip), self.scales[scale]

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
        epoch, index = key
        pair, angle, flip, scale = self.entry(index)
        image, label = _decoded(pair)
        rng = np.random.default_rng((self.seed, epoch, index))
        height, width = label.shape[0] * scale, label.shape[1] * scale
        inner = inscribed(width, height, angle)[::-1]
        whole = tuple(max(1, math.floor(side + 1e-6)) for side in inner)
        size = tuple(self.crop if self.fill else min(self.crop, side) for side in whole) if self.crop else whole
        if self.fill:
            centre = tuple((rng.random() - 0.5) * max(0.0, side - self.crop) for side in (height, width))
        else:
            y, x = ((rng.random() - 0.5) * (side - part) for side, part in zip(whole, size, strict=True))
            centre = _rotated(y, x, angle)
        return warp(image, label, angle, flip, scale, (size[0], size[1]), (centre[0], centre[1]))


def _rotated(y: N, x: N, angle: float) -> tuple[N, N]:
    """A point of the rotated picture on the upright one, both relative to the middle."""
    cos, sin = math.cos(angle), math.sin(angle)
    return sin * x + cos * y, cos * x - sin * y


def collate(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Pictures of any sizes as one batch: padded at the bottom and right by replication, labelled IGNORED there."""
    height = max(image.shape[1] for image, _ in samples)
    width = max(image.shape[2] for image, _ in samples)
    images = torch.empty(len(samples), 3, height, width, dtype=torch.uint8)
    labels = torch.full((len(samples), 1, height, width), IGNORED, dtype=torch.uint8)
    for k, (image, label) in enumerate(samples):
        h, w = image.shape[1:]
        images[k] = F.pad(image[None].float(), (0, width - w, 0, height - h), mode="replicate")[0].to(torch.uint8)
        labels[k, :, :h, :w] = label
    return images, labels


def normalise(images: Tensor) -> Tensor:
    """uint8 RGB (N, 3, H, W) as the networks want it."""
    mean = torch.tensor(MEAN, device=images.device).view(3, 1, 1) * 255
    std = torch.tensor(STD, device=images.device).view(3, 1, 1) * 255
    return (images - mean) / std
