"""PidiNetDetector: the class that image-generation tools call, on EdgeDetector. No torch.

    detector = PidiNetDetector.from_pretrained("tiny")
    lines = detector(image, detect_resolution=512, image_resolution=512, safe=True)

It takes what PidiNetDetector of controlnet_aux 0.0.10 takes. That one feeds the network BGR / 255 without
normalization, changes the image's size and takes one at a time. Here the image is prepared as the network was
trained, keeps its size unless a resolution is asked for, and may be a list. `preprocess="controlnet"` gives the old
maps, for generators trained on such.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pixeldiff import image as images
from pixeldiff import weights
from pixeldiff.edgemap import to_8_bit
from pixeldiff.errors import UserError
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeNetwork, EdgeResult, Look, detect_batch
from pixeldiff.inference.sizes import DEFAULT_SIZE

PREPROCESS = ("correct", "controlnet")
_GRID = 64  # generators want sides that are multiples of this
_SCRIBBLE_BLUR = 3.0  # standard deviation in pixels, before and after the lines are picked


class PidiNetDetector:
    """Edge maps in the manner of the ControlNet preprocessors. One object may be kept and called from anywhere."""

    def __init__(self, network: EdgeNetwork, preprocess: str = "correct") -> None:
        if preprocess not in PREPROCESS:
            raise UserError(f"preprocess is one of {', '.join(PREPROCESS)}, not {preprocess!r}")
        self.network = network
        self.preprocess = preprocess

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_or_path: str | os.PathLike[str] = DEFAULT,
        filename: str | None = None,
        cache_dir: str | None = None,
        local_files_only: bool = False,
        *,
        preprocess: str = "correct",
    ) -> PidiNetDetector:
        """A pretrained model's name, a weights file, or a folder with one (`filename` says which).

        The name of a hub repository stands for the shipped `tiny`; nothing is ever downloaded, whatever `cache_dir` and
        `local_files_only` say.
        """
        return cls(EdgeNetwork(_weights(pretrained_model_or_path, filename)), preprocess)

    def to(self, device: Any) -> PidiNetDetector:
        """For callers that move models about; this one runs on the CPU."""
        return self

    def __call__(
        self,
        input_image: Any,
        detect_resolution: int | None = None,
        image_resolution: int | None = None,
        safe: bool = False,
        output_type: str | bool = "pil",
        scribble: bool = False,
        apply_filter: bool = False,
        *,
        max_size: int | EllipsisType | None = ...,
        **others: Any,
    ) -> Any:
        """White edges on black, RGB, for an image (Pillow, array or path), or a list of them for a list.

        `detect_resolution` scales the shorter side for the network, `image_resolution` that of the result, both to
        multiples of 64; without them the sizes stay. `max_size` is the longer side at which the network runs, as
        EdgeDetector takes it; `detect_resolution` alone sets no limit. `apply_filter` makes the map black and white
        at one half, then `safe` rounds it to three levels, `scribble` draws strong lines as if with a pen.
        `output_type` is "pil" or "np", in older programs `return_pil`. Other keywords change nothing.
        """
        as_pil = _wants_pil(output_type, others)
        many = list(input_image) if isinstance(input_image, list | tuple) else [input_image]
        loaded = [images.as_8_bit(images.load(_as_levels(one))) for one in many]
        seen = [_scaled(one, detect_resolution) for one in loaded]
        if max_size is ...:
            max_size = None if detect_resolution is not None else DEFAULT_SIZE
        results = []
        for source, result in zip(loaded, self.detect(seen, Look(max_size)), strict=True):
            drawn = _styled(result.edges, _scaled_size(source, image_resolution), safe, scribble, apply_filter)
            results.append(Image.fromarray(drawn) if as_pil else drawn)
        return results if isinstance(input_image, list | tuple) else results[0]

    def detect(self, batch: list[ImageArray], look: Look) -> list[EdgeResult]:
        """Detect the edges of images, as `inference.edges.detect_batch` after the `preprocess` chosen."""
        return detect_batch(self.network, [self._prepared(image) for image in batch], look)

    def _prepared(self, image: ImageArray) -> ImageArray:
        image = images.from_array(image)
        if self.preprocess == "correct":
            return image
        if image.dtype == np.uint8:
            image = image / np.float32(255)
        # The network will take away the mean and divide by the deviation; what the network sees is then BGR / 255.
        mean, std = (np.array(v, np.float32) for v in (self.network.mean, self.network.std))
        return image[..., ::-1] * std + mean


def _wants_pil(output_type: str | bool, others: dict[str, Any]) -> bool:
    """Whether a Pillow image is wanted, also in the words of older programs; keywords without effect are told."""
    if "return_pil" in others:
        output_type = bool(others.pop("return_pil"))
    if isinstance(output_type, bool):
        message = 'return_pil, and True or False as output_type, are deprecated; use output_type="pil" or "np"'
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        output_type = "pil" if output_type else "np"
    if others:
        warnings.warn(f"keywords without effect here: {', '.join(others)}", stacklevel=3)
    if output_type not in ("pil", "np"):
        raise UserError(f'output_type is "pil" or "np", not {output_type!r}')
    return output_type == "pil"


def _as_levels(given: Any) -> Any:
    """Wide whole numbers from 0 to 255, which numpy makes of lists, are levels; all else is what `image` says it is."""
    if not isinstance(given, np.ndarray) or given.dtype.kind not in "iu" or given.dtype.str[1:] in ("u1", "u2"):
        return given
    return given.astype(np.uint8) if given.size and given.min() >= 0 and given.max() <= 255 else given


def _weights(given: str | os.PathLike[str], filename: str | None) -> str | os.PathLike[str]:
    path, suffixes = Path(given), weights.suffixes(TASK)
    if path.is_dir():
        found = [path / filename] if filename else sorted(one for one in path.iterdir() if one.suffix in suffixes)
        if len(found) != 1:
            raise UserError(f"{path} holds {len(found)} {' or '.join(suffixes)} files; say which with filename")
        return found[0]
    if "/" in os.fspath(given) and not path.exists() and path.suffix not in suffixes:
        warnings.warn(f"nothing is downloaded: the shipped {DEFAULT!r} stands in for {given}", stacklevel=3)
        return DEFAULT
    return given


def _scaled_size(image: ImageArray, resolution: int | None) -> tuple[int, int]:
    """Height and width with the shorter side at `resolution`, both multiples of 64; or as they are."""
    height, width = image.shape[:2]
    if resolution is None:
        return height, width
    if not isinstance(resolution, int | float | np.number) or not 1 <= resolution < float("inf"):
        raise UserError(f"a resolution is the shorter side in pixels, at least 1, not {resolution!r}")
    factor = resolution / min(height, width)
    return max(1, round(height * factor / _GRID)) * _GRID, max(1, round(width * factor / _GRID)) * _GRID


def _scaled(image: ImageArray, resolution: int | None) -> ImageArray:
    height, width = _scaled_size(image, resolution)
    if (height, width) == image.shape[:2]:
        return image
    method = Image.Resampling.LANCZOS if height > image.shape[0] else Image.Resampling.BOX
    return np.asarray(Image.fromarray(image).resize((width, height), method))


def _styled(
    edges: FloatMap, size: tuple[int, int], safe: bool, scribble: bool, apply_filter: bool
) -> NDArray[np.uint8]:
    """The finished drawing, H x W x 3."""
    if apply_filter:
        edges = (edges > 0.5).astype(np.float32)
    if safe:
        edges = np.minimum(np.floor(edges * 3), 2) / np.float32(2)
    drawn = to_8_bit(edges)
    if drawn.shape != size:
        drawn = np.asarray(Image.fromarray(drawn).resize(size[::-1], Image.Resampling.BILINEAR))
    if scribble:
        drawn = _pen(drawn)
    return np.repeat(drawn[..., None], 3, axis=2)


def _pen(drawn: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Ridges above one half of the blurred drawing, with a stroke that reaches 6 pixels beyond them."""
    soft = _blurred(drawn.astype(np.float32))
    around = np.pad(soft, 1, mode="edge")
    height, width = soft.shape

    def moved(down: int, right: int) -> FloatMap:
        return around[1 + down : 1 + down + height, 1 + right : 1 + right + width]

    # A ridge is no lower than its two neighbors in one of the four directions.
    ridge = np.zeros(soft.shape, bool)
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        ridge |= (soft >= moved(down, right)) & (soft >= moved(-down, -right))
    lines = np.where(ridge & (soft > 127), np.float32(255), np.float32(0))
    result: NDArray[np.uint8] = np.where(_blurred(lines) > 4, np.uint8(255), np.uint8(0))
    return result


def _blurred(plane: FloatMap) -> FloatMap:
    """A Gaussian of _SCRIBBLE_BLUR pixels, borders reflected."""
    reach = round(3 * _SCRIBBLE_BLUR)
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / _SCRIBBLE_BLUR) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    for axis in (0, 1):
        length = plane.shape[axis]
        padded = np.pad(plane, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="symmetric")
        plane = sum(tap * padded.take(range(k, k + length), axis) for k, tap in enumerate(taps))
    return plane
