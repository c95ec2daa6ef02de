"""Images from request bodies, in memory and within limits; a RequestError has a status and a reason.

A body is an image, or a form (multipart/form-data) whose first file is one. Starlette's form parser writes large files
to disk; this one does not.
"""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator

from PIL import Image, UnidentifiedImageError

from pixeldiff import image as images
from pixeldiff.errors import UserError
from pixeldiff.image import ImageArray

MAX_BYTES = 32 * 2**20
MAX_PIXELS = 50 * 10**6
BUDGET_BYTES = 2**28  # of all unfinished uploads together; above it only small ones continue
SMALL_BYTES = 2**20
_FORM_BYTES = 2**16  # for the form around an image
_MAX_PARTS = 100
_MAX_PART_HEADERS = 2**13  # bytes, of a part
_FILE = re.compile(rb"\r\ncontent-disposition:[^\r\n]*;\s*filename\*?=", re.IGNORECASE)
_QUOTED = re.compile(rb'"[^"\r\n]*"')
_UNTYPED = ("application/octet-stream", "application/x-www-form-urlencoded")  # the second is curl's default


class RequestError(Exception):
    """A request that gets no map: HTTP status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class UploadBudget:
    """Bytes held by all unfinished uploads."""

    held = 0


async def read_body(chunks: AsyncIterator[bytes], announced: str | None, budget: UploadBudget) -> bytes:
    """Read a body of at most MAX_BYTES, if all unfinished ones together hold at most BUDGET_BYTES."""
    limit = MAX_BYTES + _FORM_BYTES
    too_large = RequestError(413, f"the upload is larger than {MAX_BYTES // 2**20} MB; scale the image down")
    if announced is not None and announced.isdecimal() and int(announced) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            budget.held += len(chunk)
            if size > limit:
                raise too_large
            if budget.held > BUDGET_BYTES and size > SMALL_BYTES:
                raise RequestError(503, "too many large uploads at once; try again in a second")
            parts.append(chunk)
        return b"".join(parts)
    finally:
        budget.held -= size


def image_bytes(body: bytes, content_type: str) -> bytes:
    """Return the image file in a body of this type."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        body = _first_file(body, content_type)
    elif kind and kind not in _UNTYPED and not kind.startswith("image/"):
        raise RequestError(415, f"send an image or a form with one (multipart/form-data), not {kind}")
    if not body:
        raise RequestError(422, "the upload is empty; send an image")
    if len(body) > MAX_BYTES:
        raise RequestError(413, f"the image is larger than {MAX_BYTES // 2**20} MB; scale it down")
    return body


def _first_file(body: bytes, content_type: str) -> bytes:
    """Return the first file of a form. It searches with `find`: a reader in Python would take a minute."""
    boundary = re.search(r';\s*boundary=(?:"([^"]+)"|([^\s;"]+))', content_type, re.IGNORECASE)
    if not boundary:
        raise RequestError(422, "the form has no boundary; let your client set the content type")
    mark = b"\r\n--" + (boundary[1] or boundary[2]).encode("latin-1")
    body = b"\r\n" + body
    at = body.find(mark)
    for _ in range(_MAX_PARTS):
        begin = at + len(mark)
        if at >= 0 and body.startswith(b"--", begin):
            raise RequestError(422, "the form holds no file; add the image as a file field")
        blank = body.find(b"\r\n\r\n", begin, begin + _MAX_PART_HEADERS)
        end = body.find(mark, blank + 4)
        if min(at, blank, end) < 0:
            raise RequestError(422, "the form is truncated or not a form; send it again")
        if _FILE.search(_QUOTED.sub(b"", body[begin:blank])):
            return body[blank + 4 : end]
        at = end
    raise RequestError(422, f"the form has no file among its first {_MAX_PARTS} fields; send the image first")


def decode(content: bytes) -> ImageArray:
    """Decode an image file."""
    try:
        file = images.open_file(io.BytesIO(content))
    except Image.DecompressionBombError as error:
        raise _too_many_pixels() from error
    except UnidentifiedImageError as error:
        raise RequestError(415, "not an image of a known format; use JPEG, PNG, WebP, TIFF, BMP or GIF") from error
    except UserError as error:  # HEIC without its decoder
        raise RequestError(415, str(error)) from error
    except Exception as error:  # what Pillow raises depends on where the damage is
        raise RequestError(422, "the image is corrupt or truncated; save it again") from error
    with file:
        if file.width * file.height > MAX_PIXELS:
            raise _too_many_pixels()
        try:
            return images.from_pil(file)
        except UserError as error:
            raise RequestError(422, str(error)) from error
        except Exception as error:
            raise RequestError(422, "the image is corrupt or truncated; save it again") from error


def _too_many_pixels() -> RequestError:
    return RequestError(413, f"the image has more than {MAX_PIXELS // 10**6} megapixels; scale it down")
