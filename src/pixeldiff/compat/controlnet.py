"""PidiNetDetector: the class that image-generation tools call, without torch.

    detector = PidiNetDetector.from_pretrained("tiny")
    lines = detector(image, detect_resolution=512, image_resolution=512, safe=True)

It takes the arguments of PidiNetDetector of controlnet_aux 0.0.10. That class feeds the network BGR / 255 without
normalization, changes the image's size and takes one image at a time. This one prepares the image as the network was
trained, keeps its size unless a resolution is given, and takes lists. `preprocess="controlnet"` gives the old maps, for
generators trained on them.
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
from pixeldiff.errors import InputError
from pixeldiff.image import FloatMap, ImageArray
from pixeldiff.inference.edges import DEFAULT, TASK, EdgeNetwork, EdgeResult, Look, detect_batch
from pixeldiff.inference.sizes import DEFAULT_SIZE

PREPROCESS = ("correct", "controlnet")
_GRID = 64  # generators want sides that are multiples of this
_SCRIBBLE_BLUR = 3.0  # standard deviation in pixels, before and after the lines are picked


class PidiNetDetector:
    """Detect edges as the ControlNet preprocessors do. One object may be called from several threads."""

    def __init__(self, network: EdgeNetwork, preprocess: str = "correct") -> None:
        if preprocess not in PREPROCESS:
            raise InputError(f"invalid preprocess {preprocess!r}; expected {' or '.join(PREPROCESS)}")
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
        """Open a pretrained model by name, a weights file, or a folder with one (`filename` says which).

        The name of a hub repository opens the pretrained `tiny`. Nothing is ever downloaded; `cache_dir` and
        `local_files_only` have no effect.
        """
        return cls(EdgeNetwork(_find_weights(pretrained_model_or_path, filename)), preprocess)

    def to(self, device: Any) -> PidiNetDetector:
        """Return the detector itself, for callers that move models to a device; it runs on the CPU."""
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
        """Draw white edges on black, RGB, of an image (Pillow, array or path); a list gives a list.

        Args:
            input_image: an image or a list of images.
            detect_resolution: shorter side of the image for the network; both sides become multiples of 64.
            image_resolution: shorter side of the result; both sides become multiples of 64.
            safe: round the map to three levels.
            output_type: "pil" or "np"; older programs give `return_pil`.
            scribble: draw strong lines as if with a pen.
            apply_filter: make the map black and white at one half, before `safe`.
            max_size: longer side at which the network runs, as for EdgeDetector; `detect_resolution` alone sets no
                limit.
            others: keywords without effect; a warning names them.
        """
        as_pil = _wants_pil(output_type, others)
        batch = list(input_image) if isinstance(input_image, list | tuple) else [input_image]
        loaded = [images.as_8_bit(images.load(_as_levels(image))) for image in batch]
        scaled = [_scaled(image, detect_resolution) for image in loaded]
        if max_size is ...:
            max_size = None if detect_resolution is not None else DEFAULT_SIZE
        results = []
        for source, result in zip(loaded, self.detect(scaled, Look(max_size)), strict=True):
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
        # The network subtracts the mean and divides by the deviation; its input is then BGR / 255.
        mean, std = (np.array(v, np.float32) for v in (self.network.mean, self.network.std))
        return image[..., ::-1] * std + mean


def _wants_pil(output_type: str | bool, others: dict[str, Any]) -> bool:
    """Return whether the result is a Pillow image; warn of older spellings and keywords without effect."""
    if "return_pil" in others:
        output_type = bool(others.pop("return_pil"))
    if isinstance(output_type, bool):
        message = 'return_pil, and True or False as output_type, are deprecated; use output_type="pil" or "np"'
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        output_type = "pil" if output_type else "np"
    if others:
        warnings.warn(f"keywords without effect here: {', '.join(others)}", stacklevel=3)
    if output_type not in ("pil", "np"):
        raise InputError(f'invalid output_type {output_type!r}; expected "pil" or "np"')
    return output_type == "pil"


def _as_levels(image: Any) -> Any:
    """Convert wide integers from 0 to 255, which numpy makes of lists, to uint8; leave all else to `image.load`."""
    if not isinstance(image, np.ndarray) or image.dtype.kind not in "iu" or image.dtype.str[1:] in ("u1", "u2"):
        return image
    return image.astype(np.uint8) if image.size and image.min() >= 0 and image.max() <= 255 else image


def _find_weights(name: str | os.PathLike[str], filename: str | None) -> str | os.PathLike[str]:
    """Return what EdgeNetwork opens for a name: a folder's weights file, or the default for a hub repository."""
    path, suffixes = Path(name), weights.suffixes(TASK)
    if path.is_dir():
        files = [path / filename] if filename else sorted(file for file in path.iterdir() if file.suffix in suffixes)
        if len(files) != 1:
            raise InputError(f"{path} holds {len(files)} {' or '.join(suffixes)} files; choose one with filename")
        return files[0]
    if "/" in os.fspath(name) and not path.exists() and path.suffix not in suffixes:
        warnings.warn(f"nothing is downloaded: opened the pretrained {DEFAULT!r} instead of {name}", stacklevel=3)
        return DEFAULT
    return name


def _scaled_size(image: ImageArray, resolution: int | None) -> tuple[int, int]:
    """Return height and width with the shorter side at `resolution`, both multiples of 64; None keeps them."""
    height, width = image.shape[:2]
    if resolution is None:
        return height, width
    if not isinstance(resolution, int | float | np.number) or not 1 <= resolution < float("inf"):
        raise InputError(f"invalid resolution {resolution!r}; expected the shorter side in pixels, at least 1")
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
    """Draw a map in a style, H x W x 3."""
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
    """Draw the ridges of the blurred drawing above one half, with a stroke that reaches 6 pixels beyond them."""
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
    """Apply a Gaussian of _SCRIBBLE_BLUR pixels, with reflect padding."""
    reach = round(3 * _SCRIBBLE_BLUR)
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / _SCRIBBLE_BLUR) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    for axis in (0, 1):
        length = plane.shape[axis]
        padded = np.pad(plane, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="symmetric")
        plane = sum(tap * padded.take(range(k, k + length), axis) for k, tap in enumerate(taps))
    return plane
