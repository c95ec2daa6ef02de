"""Pictures from request bodies, in memory, within limits; each refusal has a status and a reason.

A body is a picture as such, or a form (multipart/form-data) whose first file is one. Starlette's own form parser writes
large files to disk; this one does not.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable

from PIL import Image, UnidentifiedImageError

from pixeldiff import image as pictures
from pixeldiff.errors import UserError
from pixeldiff.image import Picture

MAX_BYTES = 32 * 2**20
MAX_PIXELS = 50 * 10**6
ROOM_BYTES = 2**28  # what unfinished uploads may hold together; then only small ones go on
SMALL_BYTES = 2**20
_FORM_ROOM = 2**16  # for the form around a picture
_UNSAID = ("application/octet-stream", "application/x-www-form-urlencoded")  # the second is what curl says by itself


class Refused(Exception):
    """An answer other than a map: HTTP status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


class Room:
    """The bytes that unfinished uploads hold together."""

    held = 0


async def read_body(chunks: AsyncIterator[bytes], announced: str | None, room: Room) -> bytes:
    """The body, as long as it stays within MAX_BYTES and all of them together within ROOM_BYTES."""
    limit = MAX_BYTES + _FORM_ROOM
    too_large = Refused(413, f"the upload is larger than {MAX_BYTES // 2**20} MB; scale the picture down")
    if announced is not None and announced.isdecimal() and int(announced) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in chunks:
            size += len(chunk)
            room.held += len(chunk)
            if size > limit:
                raise too_large
            if room.held > ROOM_BYTES and size > SMALL_BYTES:
                raise Refused(503, "many large uploads are under way; try again in a second")
            parts.append(chunk)
        return b"".join(parts)
    finally:
        room.held -= size


def picture_bytes(body: bytes, content_type: str) -> bytes:
    """The picture file in a body of this type."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        body = _first_file(body, content_type)
    elif kind and kind not in _UNSAID and not kind.startswith("image/"):
        raise Refused(415, f"send a picture or a form with one (multipart/form-data), not {kind}")
    if not body:
        raise Refused(422, "the upload is empty; send a picture")
    if len(body) > MAX_BYTES:
        raise Refused(413, f"the picture is larger than {MAX_BYTES // 2**20} MB; scale it down")
    return body


def _first_file(body: bytes, content_type: str) -> bytes:
    from python_multipart.exceptions import FormParserError
    from python_multipart.multipart import MultipartParser, parse_options_header

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise Refused(422, "the form has no boundary; let your client set the content type")
    form = _Form(lambda disposition: b"filename" in parse_options_header(disposition)[1])
    try:
        parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError:
        form.ended = False
    if not form.ended:
        raise Refused(422, "the form is cut short or not a form; send it again")
    if not form.files:
        raise Refused(422, "the form holds no file; add the picture as a file field")
    return bytes(form.files[0])


class _Form:
    """The files of a form, filled by python_multipart as it reads; `is_file` judges a part by its disposition."""

    def __init__(self, is_file: Callable[[bytes], bool]) -> None:
        self.files: list[bytearray] = []
        self.ended = False
        self._is_file = is_file
        self._name = self._value = self._disposition = b""
        self._in_file = False

    def callbacks(self) -> dict[str, Callable[..., None]]:
        names = ("part_begin", "header_field", "header_value", "header_end", "headers_finished", "part_data", "end")
        return {f"on_{name}": getattr(self, f"_{name}") for name in names}

    def _part_begin(self) -> None:
        self._name = self._value = self._disposition = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value
        self._name = self._value = b""

    def _headers_finished(self) -> None:
        self._in_file = self._is_file(self._disposition)
        if self._in_file:
            self.files.append(bytearray())

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            self.files[-1] += data[start:end]

    def _end(self) -> None:
        self.ended = True


def decode(content: bytes) -> Picture:
    """The picture in a file's bytes."""
    try:
        file = pictures.open_file(io.BytesIO(content))
    except Image.DecompressionBombError as error:
        raise _too_many_pixels() from error
    except UnidentifiedImageError as error:
        raise Refused(415, "this is not a picture of a known format; use JPEG, PNG, WebP, TIFF, BMP or GIF") from error
    except UserError as error:  # HEIC without its decoder
        raise Refused(415, str(error)) from error
    except Exception as error:  # what Pillow raises depends on where the damage is
        raise Refused(422, "the picture is damaged or cut short; save it again") from error
    with file:
        if file.width * file.height > MAX_PIXELS:
            raise _too_many_pixels()
        try:
            return pictures.from_pil(file)
        except UserError as error:
            raise Refused(422, str(error)) from error
        except Exception as error:
            raise Refused(422, "the picture is damaged or cut short; save it again") from error


def _too_many_pixels() -> Refused:
    return Refused(413, f"the picture has more than {MAX_PIXELS // 10**6} megapixels; scale it down")
