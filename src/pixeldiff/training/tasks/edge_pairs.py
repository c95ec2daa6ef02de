"""Crops of labeled images: the HED augmentation on the fly, one data set for every source.

The augmentation is that of HED (Xie and Tu, 2015): 16 rotations, a flip, three scales, each combination one entry of
the epoch. Color jitter is an addition, off by default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from pixeldiff.errors import InputError
from pixeldiff.training.tasks.edge_sources import IGNORED, MAX_SCALE, Pair, read_pair

SMALLEST = 8  # pixels on a side: three poolings leave one
CACHE_BYTES = 2**29  # decoded images that each process keeps: all of BSDS500
N = TypeVar("N", float, Tensor)
Sample = tuple[Tensor, Tensor, bool]  # image, label, whether that is soft


def inscribed(width: float, height: float, angle: float) -> tuple[float, float]:
    """Return the sides of the largest unrotated rectangle inside a rectangle rotated by `angle` (radians)."""
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
    center: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """Crop the image rotated by `angle` (radians), flipped and scaled: uint8 (3, H, W) and (1, H, W).

    `size` is the crop's (height, width); `center` is its center (y, x) on the scaled unrotated image, relative to the
    middle. Beyond its border, the image is padded by reflection and the label is IGNORED.
    """
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    truth = torch.from_numpy(label)[None, None].float()
    if scale < 1:  # average before sampling sparsely; of a label the largest value, or thin lines would fade
        shrunk = [max(1, round(side * scale)) for side in label.shape]
        pixels = F.interpolate(pixels, shrunk, mode="bilinear", antialias=True, align_corners=False)
        truth = _shrunk_label(truth, shrunk)
    height, width = truth.shape[2:]
    factor = 2.0 if scale < 1 else 2.0 / scale
    y = (torch.arange(size[0]) - (size[0] - 1) / 2)[:, None]
    x = (torch.arange(size[1]) - (size[1] - 1) / 2)[None, :] * (-1 if flip else 1)
    (row, column), (dy, dx) = _rotated(y, x, angle), center
    grid = torch.stack([(column + dx) * (factor / width), (row + dy) * (factor / height)], dim=-1)[None]
    pixels = F.grid_sample(pixels, grid, "bilinear", "reflection", align_corners=False)
    truth = F.grid_sample(truth, grid, "nearest", "border", align_corners=False)
    truth[0, 0][(grid[0].abs() > 1 + 1e-4).any(-1)] = IGNORED
    return pixels[0].round_().clamp_(0, 255).to(torch.uint8), truth[0].to(torch.uint8)


def _shrunk_label(label: Tensor, size: list[int]) -> Tensor:
    """Map every pixel of (1, 1, H, W) to one pixel of the smaller map, which takes the largest value.

    So a line of one pixel stays one pixel wide and unbroken; pooling windows overlap unless the factor is 1 / n.
    """
    rows, columns = (torch.arange(n).add(0.5).mul(m / n).long() for n, m in zip(label.shape[2:], size, strict=True))
    index = rows[:, None] * size[1] + columns
    return (
        label.new_zeros(size[0] * size[1]).scatter_reduce(0, index.flatten(), label.flatten(), "amax").view(1, 1, *size)
    )


def recolor(image: Tensor, saturation: float, contrast: float, gains: Tensor) -> Tensor:
    """Change the colors of uint8 (3, H, W): x -> gain (m + contrast (g + saturation (x - g) - m)), clipped.

    g is a pixel's gray (ITU-R 601), m the mean of g over the image, and there is one gain for each of R, G and B.
    """
    x = image.float()
    gray = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
    mean = gray.mean()
    x = gains.view(3, 1, 1) * (mean + contrast * (gray + saturation * (x - gray) - mean))
    return x.round_().clamp_(0, 255).to(torch.uint8)


def collate(samples: list[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """Make one batch of images of any sizes, padded at the bottom and right by replication, labeled IGNORED."""
    height = max(image.shape[1] for image, *_ in samples)
    width = max(image.shape[2] for image, *_ in samples)
    images = torch.empty(len(samples), 3, height, width, dtype=torch.uint8)
    labels = torch.full((len(samples), 1, height, width), IGNORED, dtype=torch.uint8)
    for k, (image, label, _) in enumerate(samples):
        h, w = image.shape[1:]
        images[k] = F.pad(image[None].float(), (0, width - w, 0, height - h), mode="replicate")[0].to(torch.uint8)
        labels[k, :, :h, :w] = label
    return images, labels, torch.tensor([soft for *_, soft in samples])


@dataclass(frozen=True)
class Augment:
    """How training images are changed. Rotations, flips and scales multiply the entries of an epoch."""

    rotations: int = 1  # 16 is HED's: every 22.5 degrees
    hflip: bool = False
    scale: tuple[float, ...] = (1.0,)  # HED's are 1, 0.5, 1.5
    crop: int = 0  # side of random square crops; 0 is the full image
    pad: str = "none"  # crops of rotated images stay inside the image; "reflect": they may reach beyond it
    color_jitter: float = 0.0  # up to 0.5: range of contrast and brightness; saturation twice, tint a quarter of it

    def __post_init__(self) -> None:
        for rule, value, holds in (
            ("rotations must be at least 1", self.rotations, self.rotations >= 1),
            (
                f"scale must be a list of numbers above 0 and below {MAX_SCALE}",
                list(self.scale),
                bool(self.scale) and all(0 < factor < MAX_SCALE for factor in self.scale),
            ),
            (f"crop must be 0 (full images) or at least {SMALLEST}", self.crop, not self.crop or self.crop >= SMALLEST),
            ("pad must be none or reflect", repr(self.pad), self.pad in ("none", "reflect")),
            ("pad is for crops: set augment.crop", repr(self.pad), self.pad == "none" or self.crop > 0),
            ("color_jitter must be 0 to 0.5", self.color_jitter, 0 <= self.color_jitter <= 0.5),
        ):
            if not holds:
                raise InputError(f"augment.{rule}, got {value}")


class EdgePairs(Dataset[Sample]):
    """Augmented pairs; the sample of (epoch, index) is a pure function of both and the seed."""

    def __init__(
        self,
        pairs: list[Pair],
        seed: int,
        augment: Augment | None = None,
        mixed_in: Sequence[tuple[list[Pair], float]] = (),
    ) -> None:
        """Take `pairs`, and of each list in `mixed_in` so many that they make this fraction of an epoch."""
        self.seed, self.augment = seed, augment or Augment()
        self.pairs = [*pairs, *(pair for more, _ in mixed_in for pair in more)]
        self.versions = self.augment.rotations * (1 + self.augment.hflip) * len(self.augment.scale)
        self._parts = _parts(pairs, mixed_in, self.versions)
        self._cache: dict[Pair, tuple[np.ndarray, np.ndarray]] = {}
        self._cache_left = CACHE_BYTES

    def __len__(self) -> int:
        return sum(length for _, length in self._parts)

    def name(self, index: int) -> str:
        pair, angle, flip, scale = self.entry(index)
        return f"{pair.image} (rotation {math.degrees(angle):g}, flip {int(flip)}, scale {scale:g})"

    def entry(self, index: int) -> tuple[Pair, float, bool, float]:
        """Return the image, rotation, flip and scale of an entry."""
        part, place = 0, index
        while place >= self._parts[part][1]:
            place -= self._parts[part][1]
            part += 1
        pairs, length = self._parts[part]
        image, version = divmod(place * len(pairs) * self.versions // length, self.versions)
        version, turn = divmod(version, self.augment.rotations)
        flip, scale = divmod(version, len(self.augment.scale))
        pair = pairs[image]
        return pair, 2 * math.pi * turn / self.augment.rotations, bool(flip), self.augment.scale[scale] * pair.scale

    def _decoded(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        if pair in self._cache:
            return self._cache[pair]
        image, label = read_pair(pair)
        # Access is random: once the cache is full, replacing old by new would gain nothing.
        if image.nbytes + label.nbytes <= self._cache_left:
            self._cache_left -= image.nbytes + label.nbytes
            self._cache[pair] = image, label
        return image, label

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        epoch, index = key
        pair, angle, flip, scale = self.entry(index)
        image, label = self._decoded(pair)
        rng = np.random.default_rng((self.seed, epoch, index))
        height, width = (max(1, round(side * scale)) for side in label.shape)
        crop, jitter = self.augment.crop, self.augment.color_jitter
        if self.augment.pad == "reflect" and crop:
            size = (crop, crop)
            dy, dx = _placed(rng, height, crop), _placed(rng, width, crop)
        else:
            inner = inscribed(width, height, angle)
            whole = (max(1, math.floor(inner[1] + 1e-6)), max(1, math.floor(inner[0] + 1e-6)))
            size = (min(crop or whole[0], whole[0]), min(crop or whole[1], whole[1]))
            dy, dx = _rotated(_placed(rng, whole[0], size[0]), _placed(rng, whole[1], size[1]), angle)
        if min(size) < SMALLEST:
            raise InputError(
                f"{self.name(index)} gives {size[1]}x{size[0]} pixels, and the networks need {SMALLEST} each way; "
                "remove the image from data.sources or small factors from augment.scale"
            )
        cropped, truth = warp(image, label, angle, flip, scale, size, (dy, dx))
        if jitter:
            saturation, contrast, brightness = rng.uniform(-jitter, jitter, 3) * (2, 1, 1) + 1
            tint = rng.uniform(-jitter, jitter, 3) / 4 + 1
            cropped = recolor(cropped, saturation, contrast, torch.tensor(brightness * tint, dtype=torch.float32))
        return cropped, truth, pair.is_soft

    def collate(self, samples: list[Sample]) -> tuple[Tensor, Tensor, Tensor]:
        return collate(samples)


def _parts(
    pairs: list[Pair], mixed_in: Sequence[tuple[list[Pair], float]], versions: int
) -> list[tuple[list[Pair], int]]:
    """Return the parts of an epoch with their lengths, such that each entry occurs at least once.

    What is too short for its fraction is repeated, spread evenly over its entries.
    """
    rest = 1 - sum(fraction for _, fraction in mixed_in)
    parts = [(part, fraction) for part, fraction in ((pairs, rest), *mixed_in) if part]
    if not mixed_in or len(parts) == 1:
        return [(part, len(part) * versions) for part, _ in parts]
    total = max(len(part) * versions / fraction for part, fraction in parts)
    return [(part, max(len(part) * versions, round(total * fraction))) for part, fraction in parts]


def _placed(rng: np.random.Generator, side: int, part: int) -> float:
    """Draw the middle of a part that starts at a random whole pixel of the side, relative to the middle of the side.

    Whole pixels: what is neither rotated nor scaled is not interpolated.
    """
    slack = side - part
    first = int(rng.integers(0, slack + 1)) if slack > 0 else slack // 2
    return first - slack / 2


def _rotated(y: N, x: N, angle: float) -> tuple[N, N]:
    """Map a point of the rotated image to the unrotated one, both relative to the middle."""
    cos, sin = math.cos(angle), math.sin(angle)
    return sin * x + cos * y, cos * x - sin * y
