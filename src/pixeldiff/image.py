"""Pictures in and out: read, convert, normalise, resize, plan tiles, write. The only home of mean and std.

Inside the package a picture is an array H x W x 3, RGB, uint8 or float32 in [0, 1]. Files are turned upright (EXIF),
transparent ones laid on white, 16-bit grey ones keep their depth, of animations the first frame counts.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from pixeldiff.errors import UserError

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# What a folder is searched for; a file named explicitly is tried whatever its name.
SUFFIXES = (
    ".avif",
    ".bmp",
    ".gif",
    ".jp2",
    ".jpeg",
    ".jpg",
    ".pbm",
    ".pgm",
    ".png",
    ".pnm",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
)

Picture = NDArray[Any]  # H x W x 3, uint8 or float32 in [0, 1]
FloatMap = NDArray[np.float32]

# What Pillow raises on damaged files depends on where the damage is.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)


def read(path: str | Path) -> Picture:
    """The picture in a file."""
    return _opened(Path(path), from_pil)


def read8(path: str | Path) -> NDArray[np.uint8]:
    """The picture in a file with 8 bits per channel, an array of its own."""
    return as_8_bit(read(path)).copy()


def as_8_bit(picture: Picture) -> NDArray[np.uint8]:
    """uint8 as it is, floats in [0, 1] rounded to 255 levels."""
    levels: NDArray[Any] = picture if picture.dtype == np.uint8 else np.round(picture * 255).astype(np.uint8)
    return levels


def read_stored(path: str | Path) -> NDArray[Any]:
    """The numbers in a picture file as they are: maps and labels. A palette is looked up, nothing else is done."""

    def stored(file: Image.Image) -> NDArray[Any]:
        if file.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
            raise UserError(f"its colours are {file.mode}; save it as a grey or RGB picture")
        return np.asarray(file if file.mode != "P" else file.convert("RGB"))

    return _opened(Path(path), stored)


def _opened(path: Path, convert: Callable[[Image.Image], NDArray[Any]]) -> NDArray[Any]:
    if not path.exists():
        raise UserError(f"no file {path}; check the name")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a picture file")
    try:
        with Image.open(path) as file:
            return convert(file)
    except Image.DecompressionBombError as error:
        limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
        raise UserError(f"{path} unpacks to more than {limit} megapixels; scale it down first") from error
    except UnidentifiedImageError as error:
        what = "is empty" if path.stat().st_size == 0 else "is not a picture of a known format"
        raise UserError(f"{path} {what}; use JPEG, PNG, WebP, TIFF, BMP, GIF or PNM") from error
    except PermissionError as error:
        raise UserError(f"{path} may not be read; check its permissions") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except _DAMAGE as error:
        raise UserError(f"{path} is damaged or cut short ({error}); copy or save it again") from error


def from_pil(picture: Image.Image) -> Picture:
    """The upright RGB array of a Pillow image of any mode."""
    if picture.mode == "I" and picture.format == "TIFF":
        raise UserError("whole numbers of 32 bits have no full scale; save it with 8 or 16 bits")
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I;16") or picture.mode in ("I", "F"):
        deep = np.asarray(picture).astype(np.float32)
        return from_array(deep if picture.mode == "F" else deep / 65535)
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return np.asarray(picture.convert("RGB"))


def from_array(array: NDArray[Any]) -> Picture:
    """An array H x W or H x W x 1, 3 or 4, uint8 or float in [0, 1], as H x W x 3; transparent pixels turn white."""
    channels = 1 if array.ndim == 2 else array.shape[-1]
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or array.size == 0:
        raise UserError(f"an array is H x W or H x W x 1, 3 or 4 (channels last), not {array.shape}")
    if array.dtype != np.uint8:
        array = _checked_float(array)
    if channels == 4:
        full = 255 if array.dtype == np.uint8 else 1
        alpha = array[..., 3:] / np.float32(full)
        array = array[..., :3] * alpha + full * (1 - alpha)
        return np.round(array).astype(np.uint8) if full == 255 else array
    array = array.reshape(*array.shape[:2], channels)
    return np.broadcast_to(array, (*array.shape[:2], 3))


def _checked_float(array: NDArray[Any]) -> FloatMap:
    if not np.issubdtype(array.dtype, np.floating):
        raise UserError(f"pixels are uint8 (0 to 255) or float (0 to 1), not {array.dtype}; convert them first")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # written so that nan fails too
        raise UserError(f"float pixels lie in 0 to 1, these in {low:g} to {high:g}; divide them by their full scale")
    return array.astype(np.float32, copy=False)


def load(source: Any) -> Picture:
    """A picture from whatever a caller has: a path, a Pillow image or an array."""
    if isinstance(source, (str, os.PathLike)):
        return read(Path(source))
    if isinstance(source, Image.Image):
        return from_pil(source)
    if isinstance(source, np.ndarray):
        return from_array(source)
    raise UserError(f"a picture is a path, a Pillow image or a numpy array, not {type(source).__name__}")


def normalise(picture: Picture) -> FloatMap:
    """(x - mean) / std as the networks expect it, 3 x H x W."""
    full = 255.0 if picture.dtype == np.uint8 else 1.0
    planes = np.empty((3, *picture.shape[:2]), np.float32)
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        np.multiply(picture[..., channel], np.float32(1 / (full * std)), out=planes[channel], dtype=np.float32)
        planes[channel] -= np.float32(mean / std)
    return planes


def resize(array: NDArray[Any], size: tuple[int, int], rows: slice = slice(None)) -> FloatMap:
    """Bilinear on the first two axes, pixel centres at half (torch's align_corners=False), no smoothing before.

    `rows` keeps a band of the result, for maps too large to have twice.
    """
    height, width = array.shape[:2]
    wanted = np.arange(size[0])[rows]
    if (height, width) == size:
        return array[wanted[0] : wanted[-1] + 1].astype(np.float32, copy=False)
    above, below, down = _between(wanted, size[0], height)
    left, right, along = _between(np.arange(size[1]), size[1], width)
    tail = (1,) * (array.ndim - 2)
    along, down = along.reshape(1, -1, *tail), down.reshape(-1, 1, *tail)
    band = array[above[0] : below[-1] + 1]
    across = band[:, left] * (1 - along) + band[:, right] * along
    first = above[0]
    result: FloatMap = across[above - first] * (1 - down)
    result += across[below - first] * down
    return result


def reduce(picture: Picture, size: tuple[int, int]) -> Picture:
    """A picture made smaller, smooth: each new pixel is a mean over all that it covers (Pillow's bilinear)."""
    if picture.shape[:2] == size:
        return picture
    to = (size[1], size[0])
    if picture.dtype == np.uint8:
        return np.asarray(Image.fromarray(picture).resize(to, Image.Resampling.BILINEAR))
    planes = [np.asarray(Image.fromarray(picture[..., c]).resize(to, Image.Resampling.BILINEAR)) for c in range(3)]
    return np.stack(planes, -1).clip(0, 1)


def _between(
    wanted: NDArray[np.int64], size: int, source: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatMap]:
    """The two source positions beside each wanted one of `size`, and the weight of the second."""
    position = np.clip((wanted + 0.5) * (source / size) - 0.5, 0, source - 1)
    low = np.floor(position).astype(np.int64)
    return low, np.minimum(low + 1, source - 1), (position - low).astype(np.float32)


def centre_square(picture: NDArray[np.uint8], size: int, part: float) -> NDArray[np.uint8]:
    """The middle of a picture, `part` of its short side, as size x size pixels (Pillow's smooth bilinear)."""
    height, width = picture.shape[:2]
    side = min(height, width) * part
    if (height, width) == (size, size) and side == size:
        return np.ascontiguousarray(picture)
    x, y = (width - side) / 2, (height - side) / 2
    image = Image.fromarray(np.ascontiguousarray(picture))
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, (x, y, x + side, y + side)))


def pad_to(picture: Picture, size: int) -> Picture:
    """The picture, continued by its last row and column up to `size` x `size`."""
    height, width = picture.shape[:2]
    if height >= size and width >= size:
        return picture
    return np.pad(picture, ((0, max(0, size - height)), (0, max(0, size - width)), (0, 0)), mode="edge")


@dataclass(frozen=True)
class Tile:
    """`window` is what the network sees, `core` the part of it that is kept; rows and columns of the picture."""

    window: tuple[slice, slice]
    core: tuple[slice, slice]


def plan_tiles(height: int, width: int, max_pixels: int, margin: int, stride: int) -> list[Tile]:
    """Cores that cover the picture once, in windows of at most `max_pixels` with `margin` pixels around each core.

    Of all grids the one whose windows have the least area together. All borders inside the picture are multiples of
    `stride`, so that pooling falls on the same grid in every window. If no grid is small enough, the smallest.
    """
    margin = -(-margin // stride) * stride
    grids = [(h, w) for h in _core_sizes(height, margin, stride) for w in _core_sizes(width, margin, stride)]

    def window_pixels(core: tuple[int, int]) -> int:
        return min(core[0] + 2 * margin, height) * min(core[1] + 2 * margin, width)

    def total_pixels(core: tuple[int, int]) -> int:
        return (height + 2 * margin * ((height - 1) // core[0])) * (width + 2 * margin * ((width - 1) // core[1]))

    fitting = [core for core in grids if window_pixels(core) <= max_pixels]
    core = min(fitting, key=total_pixels) if fitting else min(grids, key=window_pixels)
    return [
        Tile((row[0], column[0]), (row[1], column[1]))
        for row in _spans(height, core[0], margin)
        for column in _spans(width, core[1], margin)
    ]


def _core_sizes(length: int, margin: int, stride: int) -> list[int]:
    """The lengths of 1, 2, 3 ... equal cores, down to half a margin: below that nearly all work would be margin."""
    most = max(1, 2 * length // max(margin, stride))
    return sorted({-(-length // (count * stride)) * stride for count in range(1, most + 1)})


def _spans(length: int, core: int, margin: int) -> Iterable[tuple[slice, slice]]:
    for start in range(0, length, core):
        stop = min(start + core, length)
        yield slice(max(0, start - margin), min(length, stop + margin)), slice(start, stop)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all; missing folders are made."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # short: names may be as long as the system bears
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "xb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise UserError(f"cannot write {path} ({error.strerror or error}); choose another place") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
