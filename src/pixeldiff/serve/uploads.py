"""Pictures from request bodies, in memory, within limits; each refusal has a status and a reason.

A body is a picture as such, or a form (multipart/form-data) whose first file is one. Starlette's own form parser writes
large files to disk; this one does not.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator

from PIL import Image, UnidentifiedImageError

from pixeldiff import image as pictures
from pixeldiff.errors import UserError
from pixeldiff.image import Picture

MAX_BYTES = 32 * 2**20
MAX_PIXELS = 50 * 10**6
_FORM_ROOM = 2**16  # for the form around a picture
_UNSAID = ("application/octet-stream", "application/x-www-form-urlencoded")  # the second is what curl says by itself


class Refused(Exception):
    """An answer other than a map: HTTP status and reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def read_body(chunks: AsyncIterator[bytes], announced: str | None) -> bytes:
    """The body, as long as it stays within MAX_BYTES."""
    limit = MAX_BYTES + _FORM_ROOM
    too_large = Refused(413, f"the upload is larger than {MAX_BYTES // 2**20} MB; scale the picture down")
    if announced is not None and announced.isdecimal() and int(announced) > limit:
        raise too_large
    parts: list[bytes] = []
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise too_large
        parts.append(chunk)
    return b"".join(parts)


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
    files: list[bytearray] = []
    header: dict[str, bytes] = {"name": b"", "value": b"", "disposition": b""}
    state = {"file": False, "ended": False}

    def begin() -> None:
        header.update(name=b"", value=b"", disposition=b"")

    def name(data: bytes, start: int, end: int) -> None:
        header["name"] += data[start:end]

    def value(data: bytes, start: int, end: int) -> None:
        header["value"] += data[start:end]

    def header_end() -> None:
        if header["name"].lower() == b"content-disposition":
            header["disposition"] = header["value"]
        header.update(name=b"", value=b"")

    def headers_finished() -> None:
        state["file"] = b"filename" in parse_options_header(header["disposition"])[1]
        if state["file"]:
            files.append(bytearray())

    def part_data(data: bytes, start: int, end: int) -> None:
        if state["file"]:
            files[-1] += data[start:end]

    def end() -> None:
        state["ended"] = True

    callbacks = {
        "on_part_begin": begin,
        "on_header_field": name,
        "on_header_value": value,
        "on_header_end": header_end,
        "on_headers_finished": headers_finished,
        "on_part_data": part_data,
        "on_end": end,
    }
    try:
        parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        parser.write(body)
        parser.finalize()
    except FormParserError:
        state["ended"] = False
    if not state["ended"]:
        raise Refused(422, "the form is cut short or not a form; send it again")
    if not files:
        raise Refused(422, "the form holds no file; add the picture as a file field")
    return bytes(files[0])


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
