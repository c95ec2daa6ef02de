"""Pictures with edge labels: one pair-list dataset for every layout in use, and the HED augmentation on the fly.

A label is the share of annotators who marked a pixel, 0 to 1, kept as uint8 (255 = all). IGNORED is a value
between "nobody" and any eta: what a rotated or padded picture does not cover is labelled so, and the loss skips it.
The augmentation is that of HED (Xie and Tu, 2015): 16 rotations, a flip, three scales, each combination one entry of
the epoch. Random colours are ours, and off unless a recipe asks for them.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from pixeldiff import image as pictures
from pixeldiff.data.bsds import split_folders
from pixeldiff.data.lists import list_columns, list_pictures, read_json_list, read_list, visible
from pixeldiff.data.truth import read_bsds, read_shares
from pixeldiff.errors import UserError

IGNORED = 1
SMALLEST = 8  # pixels on a side: three poolings leave one
LARGEST_SCALE = 100  # more is a slip
CACHE_BYTES = 2**29  # decoded pictures that each process keeps: all of BSDS500
N = TypeVar("N", float, Tensor)


@dataclass(frozen=True)
class Pair:
    image: Path
    label: Path
    scale: float = 1.0  # both are resized by it (the third column of NYUD's lists)


def list_pairs(root: Path, source: str) -> list[Pair]:
    """The pairs that one entry of `data.sources` names, all files checked to be there.

    - "train": a split of a raw BSDS500, images/train/<id>.jpg with groundTruth/train/<id>.mat
    - "train_pair.lst": a list, one "image label" or "image label scale" per line, with tabs if names have spaces
    - "train_rgb.json": a JSON array of [image, label]
    - "photos:edges": two folders, a label has the name of its picture whatever the suffix
    Names in a list are relative to the root; where they are not, to the list's own folder.
    """
    root = root.absolute()  # so that what already stands under the root stays where it is when `_found` joins it
    if ":" in source:
        pairs = _folder_pairs(root, *source.split(":", 1))
    elif source.endswith((".lst", ".txt")):
        lines = enumerate(read_list(root / source).splitlines(), 1)
        pairs = [_list_pair(line, f"{root / source}, line {n}") for n, line in lines if line.strip()]
    elif source.endswith(".json"):
        pairs = [Pair(Path(image), Path(label)) for image, label in read_json_list(root / source)]
    elif all(folder.is_dir() for folder in split_folders(root, source)):
        images, labels = split_folders(root, source)
        pairs = [Pair(path, labels / f"{path.stem}.mat") for path in list_pictures(images)]
    else:
        raise UserError(
            f"{root} has no split {source!r} (images/{source} with groundTruth/{source}); a source may also be a "
            'list (.lst, .txt), a JSON list or "folder of images:folder of labels"'
        )
    if not pairs:
        raise UserError(f"{source!r} in {root} holds no pictures")
    if jpeg := [pair.label for pair in pairs if pair.label.suffix.lower() in (".jpg", ".jpeg")]:
        raise UserError(f"{jpeg[0]} is a JPEG, whose noise beside each edge the loss would skip; save labels as PNG")
    folders = (root, (root / source).parent)
    return [Pair(_found(pair.image, folders), _found(pair.label, folders), pair.scale) for pair in pairs]


def _found(path: Path, folders: tuple[Path, ...]) -> Path:
    for folder in folders:
        if os.path.isfile(folder / path):  # Path.is_file raises where the name is too long for a file
            return folder / path
    raise UserError(f"no file {str(folders[0] / path)[:300]}; complete the data or take it out of the list")


def _folder_pairs(root: Path, images: str, labels: str) -> list[Pair]:
    by_name = {path.stem: path for path in list_pictures(root / labels)}
    by_name |= {path.stem: path for path in visible(root / labels) if path.suffix == ".mat"}
    pairs = []
    for image in list_pictures(root / images):
        if image.stem not in by_name:
            raise UserError(f"{image} has no label; put {image.stem}.png into {root / labels}")
        pairs.append(Pair(image, by_name[image.stem]))
    return pairs


def _list_pair(line: str, where: str) -> Pair:
    columns = list_columns(line)
    try:
        scale = float(columns[2]) if len(columns) == 3 else 1.0
    except ValueError:
        scale = 0.0
    if len(columns) in (2, 3) and 0 < scale < LARGEST_SCALE:
        return Pair(Path(columns[0]), Path(columns[1]), scale)
    raise UserError(
        f'{where} is not "image label" or "image label scale": {line[:200]!r}; put tabs between them where names have '
        "spaces"
    )


def read_label_shares(path: Path) -> np.ndarray:
    """The share of annotators as uint8 (H, W): from a BSDS500 .mat file, or channel 0 of a picture."""
    if path.suffix == ".mat":
        shares: np.ndarray = np.rint(np.mean(read_bsds(path), axis=0) * 255).astype(np.uint8)
        return shares
    return np.array(read_shares(path))


def read_pair(pair: Pair) -> tuple[np.ndarray, np.ndarray]:
    """Picture and label, checked to be of one size."""
    image, label = pictures.read8(pair.image), read_label_shares(pair.label)
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
    picture = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    truth = torch.from_numpy(label)[None, None].float()
    if scale < 1:  # average before sampling sparsely; of a label the largest share, or thin lines would fade
        shrunk = [max(1, round(side * scale)) for side in label.shape]
        picture = F.interpolate(picture, shrunk, mode="bilinear", antialias=True, align_corners=False)
        truth = _shrunk_label(truth, shrunk)
    height, width = truth.shape[2:]
    factor = 2.0 if scale < 1 else 2.0 / scale
    y = (torch.arange(size[0]) - (size[0] - 1) / 2)[:, None]
    x = (torch.arange(size[1]) - (size[1] - 1) / 2)[None, :] * (-1 if flip else 1)
    (row, column), (dy, dx) = _rotated(y, x, angle), centre
    grid = torch.stack([(column + dx) * (factor / width), (row + dy) * (factor / height)], dim=-1)[None]
    picture = F.grid_sample(picture, grid, "bilinear", "reflection", align_corners=False)
    truth = F.grid_sample(truth, grid, "nearest", "border", align_corners=False)
    truth[0, 0][(grid[0].abs() > 1 + 1e-4).any(-1)] = IGNORED
    return picture[0].round_().clamp_(0, 255).to(torch.uint8), truth[0].to(torch.uint8)


def _shrunk_label(label: Tensor, size: list[int]) -> Tensor:
    """Every pixel of (1, 1, H, W) falls on one pixel of the smaller map, where the largest share stays.

    So a line of one pixel stays one pixel wide and unbroken; pooling windows overlap unless the factor is 1 / n.
    """
    rows, columns = (torch.arange(n).add(0.5).mul(m / n).long() for n, m in zip(label.shape[2:], size, strict=True))
    index = rows[:, None] * size[1] + columns
    return (
        label.new_zeros(size[0] * size[1]).scatter_reduce(0, index.flatten(), label.flatten(), "amax").view(1, 1, *size)
    )


def recolour(image: Tensor, saturation: float, contrast: float, gains: Tensor) -> Tensor:
    """Other colours for uint8 (3, H, W): x -> gain (m + contrast (g + saturation (x - g) - m)), clipped.

    g is a pixel's grey (ITU-R 601), m the mean of g over the picture, and there is one gain for each of R, G and B.
    """
    x = image.float()
    grey = (x * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0)
    mean = grey.mean()
    x = gains.view(3, 1, 1) * (mean + contrast * (grey + saturation * (x - grey) - mean))
    return x.round_().clamp_(0, 255).to(torch.uint8)


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
        colour: float = 0.0,
    ) -> None:
        self.pairs, self.seed = pairs, seed
        self.rotations, self.scales, self.crop, self.fill, self.colour = rotations, scales, crop, fill, colour
        self.versions = rotations * (1 + flips) * len(scales)
        self._cache: dict[Pair, tuple[np.ndarray, np.ndarray]] = {}
        self._room = CACHE_BYTES

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
        pair = self.pairs[picture]
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

    def __getitem__(self, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
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
                "take the picture out of data.sources or leave out small data.scales"
            )
        window, truth = warp(image, label, angle, flip, scale, size, (dy, dx))
        if self.colour:
            saturation, contrast, brightness = rng.uniform(-self.colour, self.colour, 3) * (2, 1, 1) + 1
            tint = rng.uniform(-self.colour, self.colour, 3) / 4 + 1
            window = recolour(window, saturation, contrast, torch.tensor(brightness * tint, dtype=torch.float32))
        return window, truth


def _placed(rng: np.random.Generator, side: int, part: int) -> float:
    """Where the middle of a part lies that starts at a random whole pixel of the side, relative to its middle.

    Whole pixels: where nothing is rotated or scaled, nothing shall be interpolated.
    """
    slack = side - part
    first = int(rng.integers(0, slack + 1)) if slack > 0 else slack // 2
    return first - slack / 2


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
