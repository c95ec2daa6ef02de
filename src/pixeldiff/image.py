"""Images in: read, turn upright, convert, resize, normalize. The only home of mean and std.

Inside the package an image is an array H x W x 3, RGB, uint8 or float32 in [0, 1]. Files are turned upright (EXIF),
transparent ones laid on white, 16-bit gray ones keep their depth, of animations the first frame counts.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from pixeldiff.edgemap import FloatMap as FloatMap
from pixeldiff.edgemap import to_8_bit
from pixeldiff.errors import MissingExtra, UserError

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
FACE = (112, 96)  # height and width of an aligned face
FACE_MEAN, FACE_STD = (0.5,) * 3, (128 / 255,) * 3  # SphereFace's (v - 127.5) / 128
CENTER = 224 / 256  # the part of the short side that a classifier sees, as on ImageNet

# The formats that Pillow decodes by itself, with the names that a folder is searched for; a file named explicitly is
# tried whatever its name. Pillow's others start programs (EPS: Ghostscript) or are no photos.
FORMATS = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "PPM": (".pbm", ".pgm", ".pnm", ".ppm"),
    "AVIF": (".avif",),
    "JPEG2000": (".jp2",),
    "HEIF": (".heic", ".heif"),  # through pillow-heif
}
_HEIC_HERE = importlib.util.find_spec("pillow_heif") is not None
SUFFIXES = tuple(sorted(one for name, own in FORMATS.items() if name != "HEIF" or _HEIC_HERE for one in own))
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

ImageArray = NDArray[Any]  # H x W x 3, uint8 or float32 in [0, 1]


class Tensor(Protocol):
    """A torch tensor, as far as it is looked at before it is an array; torch is not imported here."""

    def detach(self) -> Any: ...

    def cpu(self) -> Any: ...


ImageLike = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image.Image | NDArray[Any] | Tensor
_T = TypeVar("_T")
_BAND_PIXELS = 2**22  # converted at once
_ENOUGH = 0.95  # of the pixels that are asked for
_WEBP_SIDE = 16383  # of a frame; a damaged canvas may claim more, and its decoder holds four of them


def read(path: str | Path) -> ImageArray:
    """The image in a file."""
    return _from_path(path, from_pil)


def decode(content: bytes, name: str) -> ImageArray:
    """The image in a file's content; errors begin with its name."""
    with _named_errors(name):
        return _from_file(io.BytesIO(content), from_pil)


def read8(path: str | Path) -> NDArray[np.uint8]:
    """The image in a file with 8 bits per channel, an array of its own."""
    result: NDArray[np.uint8] = as_8_bit(read(path)).copy()
    return result


def as_8_bit(image: ImageArray) -> NDArray[np.uint8]:
    """uint8 as it is, floats in [0, 1] by the one rule."""
    return image if image.dtype == np.uint8 else to_8_bit(image, "the image")


def read_stored(path: str | Path) -> NDArray[Any]:
    """The numbers in an image file as they are: maps and labels. A palette is looked up, nothing else is done."""

    def stored(file: Image.Image) -> NDArray[Any]:
        if file.mode in ("CMYK", "YCbCr", "LAB", "HSV"):
            raise UserError(f"its colors are {file.mode}; save it as a gray or RGB image")
        return _pixels(file, lambda band: band if band.mode != "P" else band.convert("RGB"))

    return _from_path(path, stored)


def read_indices(path: str | Path) -> NDArray[Any]:
    """As `read_stored`, but of an image with a palette the numbers before they are looked up: masks of objects."""
    return _from_path(path, lambda file: _pixels(file, lambda band: band))


def stored_size(path: str | Path) -> tuple[int, int]:
    """Height and width in an image file, before it is turned upright; nothing is decoded."""
    return _from_path(path, lambda file: (file.height, file.width))


def _from_path(path: str | Path, convert: Callable[[Image.Image], _T]) -> _T:
    path = Path(path)
    if not os.path.exists(path):  # also a name too long for a file
        raise UserError(f"no file {str(path)[:300]}; check the name")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give an image file")
    with _named_errors(str(path)), open(path, "rb") as file:
        # From memory where it is small: Pillow asks for as many bytes as a damaged length says.
        small = path.is_file() and path.stat().st_size < 2**28
        return _from_file(io.BytesIO(file.read()) if small else file, convert)


def _from_file(file: IO[bytes], convert: Callable[[Image.Image], _T]) -> _T:
    with open_file(file) as image:
        return convert(image)


def open_file(file: IO[bytes]) -> Image.Image:
    """Pillow's image in an open file, of one of FORMATS. On damaged files Pillow raises anything."""
    if not file.seekable():
        file = io.BytesIO(file.read())
    for learn in (Image.preinit, Image.init):  # the second takes a tenth of a second
        learn()
        with contextlib.suppress(UnidentifiedImageError):
            image = Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
            if image.format == "WEBP" and max(image.size) > _WEBP_SIDE:
                raise UserError(f"WebP has at most {_WEBP_SIDE} pixels a side, this claims {max(image.size)}")
            return image
    file.seek(0)
    head = file.read(12)
    if not head:
        raise UnidentifiedImageError("is empty")
    if head[4:8] != b"ftyp" or head[8:] not in _HEIC_BRANDS:
        raise UnidentifiedImageError("is not an image of a known format")
    try:
        from pillow_heif import register_heif_opener
    except ImportError as error:
        raise MissingExtra("heic", "a HEIC image", error.name) from error
    register_heif_opener()
    return Image.open(file, formats=["HEIF"])


@contextlib.contextmanager
def _named_errors(name: str) -> Iterator[None]:
    """What goes wrong with an image, as one line that begins with its name; without Pillow's warnings."""
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():  # in several threads the filters would get lost
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
        try:
            yield
        except Image.DecompressionBombError as error:
            limit = 2 * (Image.MAX_IMAGE_PIXELS or 0) // 10**6
            raise UserError(f"{name} unpacks to more than {limit} megapixels; scale it down first") from error
        except UnidentifiedImageError as error:
            what = str(error) if str(error).startswith("is ") else "is damaged"
            raise UserError(f"{name} {what}; use JPEG, PNG, WebP, TIFF, BMP, GIF or PNM") from error
        except PermissionError as error:
            raise UserError(f"{name} may not be read; check its permissions") from error
        except UserError as error:
            raise UserError(f"{name}: {error}") from error
        except MemoryError as error:
            raise UserError(f"{name} needs more memory than there is; scale it down first") from error
        except Exception as error:  # depends on where the damage is, and on the decoder
            why = " ".join(str(error).split())
            raise UserError(f"{name} is damaged or cut short ({why}); copy or save it again") from error


def from_pil(image: Image.Image) -> ImageArray:
    """The upright RGB array of a Pillow image of any mode."""
    if image.mode == "I" and image.format == "TIFF":
        raise UserError("whole numbers of 32 bits have no full scale; save it with 8 or 16 bits")
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:  # otherwise it would be copied
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):
        deep = _pixels(image, lambda band: band).astype(np.float32)
        deep /= 1 if image.mode == "F" else 65535
        return from_array(deep)
    return _pixels(image, _on_white if image.has_transparency_data else _as_rgb)


def _as_rgb(image: Image.Image) -> Image.Image:
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")


def _pixels(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> NDArray[Any]:
    """The array of convert(image), some rows at a time: at once, Pillow would hold a large one up to five times."""
    width, height = image.size
    rows = max(1, _BAND_PIXELS // width)
    if rows >= height:
        return np.asarray(convert(image))
    result: NDArray[Any] | None = None
    for top in range(0, height, rows):
        band = np.asarray(convert(image.crop((0, top, width, min(top + rows, height)))))
        if result is None:
            result = np.empty((height, *band.shape[1:]), band.dtype)
        result[top : top + rows] = band
    assert result is not None
    return result


def from_array(array: NDArray[Any]) -> ImageArray:
    """An array H x W or H x W x 1, 3 or 4 as H x W x 3: uint8, uint16 (65,535 is white), bool, or float in [0, 1].

    Transparent pixels turn white.
    """
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4) or array.size == 0:
        raise UserError(f"an array is H x W or H x W x 1, 3 or 4 (channels last), not {array.shape}")
    if array.dtype.kind == "b":
        array = array * np.uint8(255)
    elif array.dtype.kind == "u" and array.dtype.itemsize == 2:
        array = array / np.float32(65535)
    elif array.dtype != np.uint8:
        array = _checked_float(array)
    if channels == 4:
        full = np.float32(255 if array.dtype == np.uint8 else 1)
        alpha = array[..., 3:] / full
        blended = array[..., :3] / full * alpha + (1 - alpha)
        return to_8_bit(blended, "the image") if full == 255 else blended
    array = array.reshape(*array.shape[:2], channels)
    return np.broadcast_to(array, (*array.shape[:2], 3))


def _checked_float(array: NDArray[Any]) -> FloatMap:
    if not np.issubdtype(array.dtype, np.floating):
        raise UserError(f"pixels are uint8, uint16, bool or float (0 to 1), not {array.dtype}; convert them first")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0 and high <= 1):  # written so that nan fails too
        raise UserError(f"float pixels lie in 0 to 1, these in {low:g} to {high:g}; divide them by their full scale")
    return array.astype(np.float32, copy=False)


def from_tensor(tensor: Any) -> ImageArray:
    """A torch tensor C x H x W or 1 x C x H x W (or H x W), of the types that arrays have; torch is not needed here."""
    shape = tuple(tensor.shape)
    if len(shape) == 4 and shape[0] == 1:
        tensor = tensor[0]
    if tensor.ndim not in (2, 3) or (tensor.ndim == 3 and tensor.shape[0] not in (1, 3, 4)):
        raise UserError(f"a tensor is C x H x W or 1 x C x H x W (C 1, 3 or 4), not {shape}; give a batch as a list")
    try:
        tensor = tensor.detach().cpu()
        array = (tensor.float() if tensor.is_floating_point() else tensor).numpy()  # numpy has no bfloat16
    except (TypeError, RuntimeError) as error:
        raise UserError(f"this tensor has no plain pixels ({error}); give a dense tensor of real numbers") from error
    return from_array(array if array.ndim == 2 else array.transpose(1, 2, 0))


def load(source: ImageLike) -> ImageArray:
    """An image from whatever a caller has: a path, a file's bytes, a file open for reading ("rb"), a Pillow image, an
    array (`from_array`) or a torch tensor (`from_tensor`)."""
    if _is_encoded(source):
        return _from_encoded(source, "the image", from_pil)
    if isinstance(source, Image.Image):
        with _named_errors("the Pillow image"):
            return from_pil(source)
    if isinstance(source, np.ndarray):
        return from_array(source)
    if hasattr(source, "detach") and hasattr(source, "cpu"):
        return from_tensor(source)
    raise UserError(
        "an image is a path, bytes, a file opened with 'rb', a Pillow image, a numpy array or a torch tensor, "
        f"not {type(source).__name__}"
    )


def _is_encoded(source: ImageLike) -> bool:
    """Whether an image comes as a file: a path, its bytes, or open for reading."""
    opened = hasattr(source, "read") and not isinstance(source, io.TextIOBase)
    return opened or isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview))


def _from_encoded(source: Any, name: str, convert: Callable[[Image.Image], _T]) -> _T:
    """Convert the image of a file, however it is given; errors begin with its path or `name`."""
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source), convert)
    file = io.BytesIO(source) if isinstance(source, (bytes, bytearray, memoryview)) else source
    with _named_errors(name):
        return _from_file(file, convert)


def load_near(source: ImageLike, side: int, name: str = "the image") -> tuple[ImageArray, tuple[int, int]]:
    """Load an image for a network that looks at about `side` pixels along its long side; return its true size, too.

    A JPEG file comes at a half, a quarter or an eighth of its size where that leaves nearly as many, which is much
    quicker. So do its bytes and an open file: pixels depend on the file, not on how it is given. Errors about bytes
    and open files begin with `name`.
    """

    def near(file: Image.Image) -> tuple[ImageArray, tuple[int, int]]:
        turned = file.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
        size = (file.width, file.height) if turned else (file.height, file.width)
        if file.format == "JPEG":
            factor = _ENOUGH * side / max(size)
            file.draft(None, (max(1, int(file.width * factor)), max(1, int(file.height * factor))))
        return from_pil(file), size

    if _is_encoded(source):
        return _from_encoded(source, name, near)
    image = load(source)
    return image, (image.shape[0], image.shape[1])


def preprocessing(**square: float) -> dict[str, Any]:
    """How networks trained here see images, as their files say it; `square` is size and crop of `center_square`."""
    return {**square, "mean": list(MEAN), "std": list(STD)}


def face_preprocessing() -> dict[str, Any]:
    """How networks for faces see images that are aligned already."""
    return {"size": list(FACE), "mean": list(FACE_MEAN), "std": list(FACE_STD)}


def normalize(image: ImageArray, means: Sequence[float], stds: Sequence[float]) -> FloatMap:
    """(x - mean) / std of each channel, 3 x H x W."""
    full = 255.0 if image.dtype == np.uint8 else 1.0
    planes = np.empty((3, *image.shape[:2]), np.float32)
    for channel, (mean, std) in enumerate(zip(means, stds, strict=True)):
        np.multiply(image[..., channel], np.float32(1 / (full * std)), out=planes[channel], dtype=np.float32)
        planes[channel] -= np.float32(mean / std)
    return planes


def resize(array: NDArray[Any], size: tuple[int, int], rows: slice = slice(None)) -> FloatMap:
    """Bilinear on the first two axes, pixel centers at half (torch's align_corners=False), no smoothing before.

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


def reduce(image: ImageArray, size: tuple[int, int]) -> ImageArray:
    """An image made smaller, smooth: each new pixel is a mean over all that it covers (Pillow's bilinear)."""
    if image.shape[:2] == size:
        return image
    to = (size[1], size[0])
    if image.dtype == np.uint8:
        return np.asarray(Image.fromarray(image).resize(to, Image.Resampling.BILINEAR))
    planes = [np.asarray(Image.fromarray(image[..., c]).resize(to, Image.Resampling.BILINEAR)) for c in range(3)]
    return np.stack(planes, -1).clip(0, 1)


def _between(
    wanted: NDArray[np.int64], size: int, source: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatMap]:
    """The two source positions beside each wanted one of `size`, and the weight of the second."""
    position = np.clip((wanted + 0.5) * (source / size) - 0.5, 0, source - 1)
    low = np.floor(position).astype(np.int64)
    return low, np.minimum(low + 1, source - 1), (position - low).astype(np.float32)


def center_square(pixels: NDArray[np.uint8], size: int, part: float) -> NDArray[np.uint8]:
    """The middle of an image, `part` of its short side, as size x size pixels (Pillow's smooth bilinear)."""
    height, width = pixels.shape[:2]
    side = min(height, width) * part
    if (height, width) == (size, size) and side == size:
        return np.ascontiguousarray(pixels)
    x, y = (width - side) / 2, (height - side) / 2
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, (x, y, x + side, y + side)))


def pad_to(image: ImageArray, size: int) -> ImageArray:
    """The image, continued by its last row and column up to `size` x `size`."""
    height, width = image.shape[:2]
    if height >= size and width >= size:
        return image
    return np.pad(image, ((0, max(0, size - height)), (0, max(0, size - width)), (0, 0)), mode="edge")
