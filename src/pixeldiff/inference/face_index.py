"""Gallery: the vectors of all faces in a folder, kept in a file beside it, so that a second search reads no image.

The file: a line of magic, a line of JSON (the network, and of each image name, size, time of change, how many faces
or what was wrong), then the vectors, float32. An image that has changed is embedded anew, one that is gone is dropped.
Nothing in a file is believed; what another network has embedded is told, never mixed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError
from pixeldiff.files import atomic_path, remove_stale_temp_files

SUFFIX = ".faces"
MAGIC = b"pixeldiff faces 1\n"
_SAVED = 30.0  # seconds between two savings of a long run
_PART = 16  # images that a worker takes at once

Vectors = NDArray[np.float32]  # faces x size
Embed = Callable[[Path], Vectors]  # the faces of an image


@dataclass(frozen=True)
class ImageArray:
    """What is known of an image as it was then: its faces' vectors, or why there are none."""

    size: int  # bytes
    changed: int  # nanoseconds since 1970
    vectors: Vectors
    error: str = ""


class Gallery:
    """Images of a folder by their names below it, as one network sees them."""

    def __init__(self, file: Path, network: str, sha256: str, size: int) -> None:
        self.file, self.network, self.sha256, self.size = file, network, sha256, size
        self.images: dict[str, ImageArray] = {}

    def read(self) -> None:
        """What the file holds, if there is one; an error if it is another network's."""
        if not self.file.exists():
            return
        try:
            network, sha256, self.images = _parse(self.file.read_bytes(), self.size)
        except OSError as error:
            raise UserError(f"cannot read {self.file} ({error.strerror}); check its permissions") from error
        except _OtherError as error:
            raise UserError(f"{self.file} {error}; name another file with --embeddings") from error
        except UserError as error:
            raise UserError(f"{self.file} {error}; make it anew with --rebuild") from error
        if sha256 != self.sha256:
            raise UserError(
                f"{self.file} holds embeddings of another network, {network!r}, which cannot be compared with those of "
                f"{self.network!r}; give that one with --model, or make them anew with --rebuild"
            )

    def check_foreign(self) -> None:
        """Before a file is made anew: only one of ours is replaced."""
        if self.file.exists() and not (self.file.is_file() and self.file.open("rb").read(len(MAGIC)) == MAGIC):
            raise UserError(f"{self.file} is no embedding file; name another file with --embeddings")

    def save(self) -> None:
        remove_stale_temp_files([self.file.parent])
        rows = [[name, one.size, one.changed, len(one.vectors), one.error] for name, one in self.images.items()]
        header = {"network": self.network, "sha256": self.sha256, "size": self.size, "images": rows}
        with atomic_path(self.file) as unfinished, unfinished.open("xb") as file:
            file.write(MAGIC + json.dumps(header).encode() + b"\n")
            for one in self.images.values():
                file.write(one.vectors.astype("<f4").tobytes())

    def drop(self, folder: Path, names: Sequence[str]) -> list[str]:
        """Forget images that have changed or are gone; those that are to be embedded."""
        stamps = {name: _stamp(os.path.join(folder, name)) for name in names}
        there = {name: one for name, one in self.images.items() if stamps.get(name) == (one.size, one.changed)}
        if len(there) < len(self.images):
            self.images = there
            self.save()
        return [name for name in names if name not in there]

    def add(self, folder: Path, names: Sequence[str], embed: Embed, workers: int, tick: Callable[[int], None]) -> None:
        """Embed images. What is ready is kept, also when the run is stopped."""
        if not names:
            return
        saved = time.monotonic()
        parts = [names[start : start + _PART] for start in range(0, len(names), _PART)]

        def look(part: Sequence[str]) -> list[tuple[str, ImageArray]]:
            return [(name, _look(folder / name, embed)) for name in part]

        pool = ThreadPoolExecutor(workers)
        try:
            for done in pool.map(look, parts):
                self.images.update(done)
                tick(len(done))
                if time.monotonic() - saved > _SAVED:
                    self.save()
                    saved = time.monotonic()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            self.save()

    def rank(self, vector: Vectors, leave_out: Iterable[str] = ()) -> list[tuple[float, str]]:
        """Cosine and name of each image with a face, of its face that is most alike, best first."""
        out = set(leave_out)
        named = [(name, one.vectors) for name, one in self.images.items() if len(one.vectors) and name not in out]
        if not named:
            return []
        starts = np.cumsum([0, *(len(own) for _, own in named[:-1])])
        best = np.maximum.reduceat(np.concatenate([own for _, own in named]) @ vector, starts)
        order = np.argsort(-best, kind="stable")
        return [(float(best[index]), named[index][0]) for index in order]

    def failed(self) -> dict[str, str]:
        """Images without a vector, and why."""
        return {name: one.error for name, one in self.images.items() if one.error}


def _stamp(path: str | Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)  # told when it is read
    return found.st_size, found.st_mtime_ns


def _look(path: Path, embed: Embed) -> ImageArray:
    stamp = _stamp(path)  # before it is read: what changes meanwhile is seen the next time
    try:
        return ImageArray(*stamp, embed(path))
    except UserError as error:
        return ImageArray(*stamp, np.zeros((0, 0), np.float32), str(error))


class _OtherError(UserError):
    """A file that is none of ours, and is never replaced."""


def _parse(content: bytes, size: int) -> tuple[str, str, dict[str, ImageArray]]:
    if not content.startswith(MAGIC):
        raise _OtherError("is no embedding file")
    end = content.find(b"\n", len(MAGIC))
    try:
        header = json.loads(content[len(MAGIC) : end])
        network, sha256, own, rows = (header[key] for key in ("network", "sha256", "size", "images"))
        counts = [_checked(row) for row in rows]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError("is damaged (its description)") from error
    if not isinstance(network, str) or not isinstance(sha256, str) or not _is_count(own):
        raise UserError("is damaged (its description)")
    total = sum(counts)
    if end < 0 or len(content) - end - 1 != total * own * 4:
        raise UserError("is damaged or cut short")
    vectors = np.frombuffer(content, "<f4", total * own, end + 1).reshape(total, own)
    if not np.isfinite(vectors).all():
        raise UserError("is damaged (numbers that are not finite)")
    parts = np.split(vectors, np.cumsum(counts)[:-1]) if rows else []
    named = {row[0]: ImageArray(row[1], row[2], part, row[4]) for row, part in zip(rows, parts, strict=True)}
    return network, sha256, named if own == size else {}


def _checked(row: Any) -> int:
    """How many faces an image has, of a row that is one."""
    name, size, changed, faces, error = row
    if not (isinstance(name, str) and isinstance(error, str) and all(map(_is_count, (size, changed, faces)))):
        raise ValueError
    return int(faces)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
