"""Windows of labeled images: the HED augmentation on the fly, one dataset for every source.

The augmentation is that of HED (Xie and Tu, 2015): 16 rotations, a flip, three scales, each combination one entry of
the epoch. Random colors are ours, and off unless a recipe asks for them.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from pixeldiff.errors import UserError
from pixeldiff.training.tasks.edge_sources import IGNORED, Pair, read_pair

SMALLEST = 8  # pixels on a side: three poolings leave one
CACHE_BYTES = 2**29  # decoded images that each process keeps: all of BSDS500
N = TypeVar("N", float, Tensor)
Sample = tuple[Tensor, Tensor, bool]  # image, label, whether that is soft


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
    center: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """A window of the image rotated by `angle` (radians), mirrored and scaled: uint8 (3, H, W) and (1, H, W).

    `size` is the window's (height, width); `center` is its center (y, x) on the scaled upright image, relative to the
    middle. Beyond the image's border the image is mirrored and the label IGNORED.
    """
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    truth = torch.from_numpy(label)[None, None].float()
    if scale < 1:  # average before sampling sparsely; of a label the largest share, or thin lines would fade
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
    """Every pixel of (1, 1, H, W) falls on one pixel of the smaller map, where the largest share stays.

    So a line of one pixel stays one pixel wide and unbroken; pooling windows overlap unless the factor is 1 / n.
    """
    rows, columns = (torch.arange(n).add(0.5).mul(m / n).long() for n, m in zip(label.shape[2:], size, strict=True))
    index = rows[:, None] * size[1] + columns
    return (
        label.new_zeros(size[0] * size[1]).scatter_reduce(0, index.flatten(), label.flatten(), "amax").view(1, 1, *size)
    )


def recolor(image: Tensor, saturation: float, contrast: float, gains: Tensor) -> Tensor:
    """Other colors for uint8 (3, H, W): x -> gain (m + contrast (g + saturation (x - g) - m)), clipped.

    g is a pixel's gray (ITU-R 601), m the mean of g over the image, and there is one gain for each of R, G and B.
    """
    x = image.float()
    gray = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
    mean = gray.mean()
    x = gains.view(3, 1, 1) * (mean + contrast * (gray + saturation * (x - gray) - mean))
    return x.round_().clamp_(0, 255).to(torch.uint8)


def collate(samples: list[Sample]) -> tuple[Tensor, Tensor, Tensor]:
    """Images of any sizes as one batch: padded at the bottom and right by replication, labeled IGNORED there."""
    height = max(image.shape[1] for image, *_ in samples)
    width = max(image.shape[2] for image, *_ in samples)
    images = torch.empty(len(samples), 3, height, width, dtype=torch.uint8)
    labels = torch.full((len(samples), 1, height, width), IGNORED, dtype=torch.uint8)
    for k, (image, label, _) in enumerate(samples):
        h, w = image.shape[1:]
        images[k] = F.pad(image[None].float(), (0, width - w, 0, height - h), mode="replicate")[0].to(torch.uint8)
        labels[k, :, :h, :w] = label
    return images, labels, torch.tensor([soft for *_, soft in samples])


class EdgePairs(Dataset[Sample]):
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
        color: float = 0.0,
        share: float = 0.0,
    ) -> None:
        self.pairs, self.seed = pairs, seed
        self.rotations, self.scales, self.crop, self.fill, self.color = rotations, scales, crop, fill, color
        self.versions = rotations * (1 + flips) * len(scales)
        self._parts = _mixed(pairs, self.versions, share)
        self._cache: dict[Pair, tuple[np.ndarray, np.ndarray]] = {}
        self._room = CACHE_BYTES

    def __len__(self) -> int:
        return sum(length for _, length in self._parts)

    def name(self, index: int) -> str:
        pair, angle, flip, scale = self.entry(index)
        return f"{pair.image} (rotation {math.degrees(angle):g}, flip {int(flip)}, scale {scale:g})"

    def entry(self, index: int) -> tuple[Pair, float, bool, float]:
        """The image, rotation, flip and scale of an entry."""
        part, place = 0, index
        while place >= self._parts[part][1]:
            place -= self._parts[part][1]
            part += 1
        pairs, length = self._parts[part]
        image, version = divmod(place * len(pairs) * self.versions // length, self.versions)
        version, turn = divmod(version, self.rotations)
        flip, scale = divmod(version, len(self.scales))
        pair = pairs[image]
        return pair, 2 * math.pi * turn / self.rotations, bool(flip), self.scales[scale] * pair.scale

    def _decoded(self, pair: Pair) -> tuple[np.ndarray, np.ndarray]:
        if pair in self._cache:
            return self._cache[pair]
        image, label = read_pair(pair)
        # Access is random: once the room is used up, exchanging old for new would gain nothing.
        if image.nbytes + label.nbytes <= self._room:
            self._room -= image.nbytes + label.nbytes
            self._cache[pair] = image, label
        return image, label

    def __getitem__(self, key: tuple[int, int]) -> Sample:
        epoch, index = key
        pair, angle, flip, scale = self.entry(index)
        image, label = self._decoded(pair)
        rng = np.random.default_rng((self.seed, epoch, index))
        height, width = (max(1, round(side * scale)) for side in label.shape)
        if self.fill and self.crop:
            size = (self.crop, self.crop)
            dy, dx = _placed(rng, height, self.crop), _placed(rng, width, self.crop)
        else:
            inner = inscribed(width, height, angle)
            whole = (max(1, math.floor(inner[1] + 1e-6)), max(1, math.floor(inner[0] + 1e-6)))
            size = (min(self.crop or whole[0], whole[0]), min(self.crop or whole[1], whole[1]))
            dy, dx = _rotated(_placed(rng, whole[0], size[0]), _placed(rng, whole[1], size[1]), angle)
        if min(size) < SMALLEST:
            raise UserError(
                f"{self.name(index)} gives {size[1]}x{size[0]} pixels, and the networks need {SMALLEST} each way; "
                "take the image out of data.sources or leave out small data.scales"
            )
        window, truth = warp(image, label, angle, flip, scale, size, (dy, dx))
        if self.color:
            saturation, contrast, brightness = rng.uniform(-self.color, self.color, 3) * (2, 1, 1) + 1
            tint = rng.uniform(-self.color, self.color, 3) / 4 + 1
            window = recolor(window, saturation, contrast, torch.tensor(brightness * tint, dtype=torch.float32))
        return window, truth, pair.is_soft

    def collate(self, samples: list[Sample]) -> tuple[Tensor, Tensor, Tensor]:
        return collate(samples)


def _mixed(pairs: list[Pair], versions: int, share: float) -> list[tuple[list[Pair], int]]:
    """The parts of an epoch with their lengths: all entries once, or, with a share for those that no person has
    labeled, one of the two kinds more often, spread evenly over its entries."""
    if not share:
        return [(pairs, len(pairs) * versions)]
    parts = [[pair for pair in pairs if pair.by_people is people] for people in (True, False)]
    if not all(parts):
        raise UserError(
            "data.share mixes what people have labeled with soft: or objects: sources; name some of each in "
            "data.sources, or leave the share out"
        )
    first, second = (len(part) * versions for part in parts)
    return [
        (parts[0], max(first, round(second * (1 - share) / share))),
        (parts[1], max(second, round(first * share / (1 - share)))),
    ]


def _placed(rng: np.random.Generator, side: int, part: int) -> float:
    """Where the middle of a part lies that starts at a random whole pixel of the side, relative to its middle.

    Whole pixels: where nothing is rotated or scaled, nothing shall be interpolated.
    """
    slack = side - part
    first = int(rng.integers(0, slack + 1)) if slack > 0 else slack // 2
    return first - slack / 2


def _rotated(y: N, x: N, angle: float) -> tuple[N, N]:
    """A point of the rotated image on the upright one, both relative to the middle."""
    cos, sin = math.cos(angle), math.sin(angle)
    return sin * x + cos * y, cos * x - sin * y
