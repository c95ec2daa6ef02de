"""FaceIndex: the embeddings of all faces in a folder, kept in a file beside it, so that a second search reads no image.

The file is NumPy's .npz with two arrays: a JSON text (the model, and for each image its name, size, time of change,
number of faces or error), and the vectors. A changed image is embedded again, a deleted one is dropped. Everything in a
file is checked, and embeddings of another model are an error.
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

from pixeldiff.errors import InputError, UserError
from pixeldiff.files import atomic_path, remove_stale_temp_files
from pixeldiff.parallel import ordered_map

SUFFIX = ".faces.npz"
_INDEX = "pixeldiff_faces"  # the first array; its name stands at the start of the file
_SAVE_SECONDS = 30.0  # between two saves of a long run
_BATCH = 16  # images that a worker embeds at once

Vectors = NDArray[np.float32]  # faces x size
Embed = Callable[[Path], Vectors]  # the faces of an image


@dataclass(frozen=True)
class IndexedImage:
    """What is known of an image at a point in time: the vectors of its faces, or why there are none."""

    size: int  # bytes
    changed: int  # nanoseconds since 1970
    vectors: Vectors
    error: str = ""


class FaceIndex:
    """Images of a folder by their names below it, as embedded by one model."""

    def __init__(self, file: Path, model: str, sha256: str, size: int) -> None:
        self.file, self.model, self.sha256, self.size = file, model, sha256, size
        self.images: dict[str, IndexedImage] = {}

    def read(self) -> None:
        """Read the file if it exists; raise an error if it is of another model."""
        if not self.file.exists():
            return
        self.check_foreign()
        try:
            model, sha256, self.images = _read(self.file, self.size)
        except Exception as error:  # a damaged archive raises whatever it meets
            reason = " ".join(str(error).split())[:100]
            raise InputError(f"{self.file} is damaged ({reason}); rebuild it with --rebuild") from error
        if sha256 != self.sha256:
            raise InputError(
                f"{self.file} holds embeddings of another model, {model!r}, which cannot be compared with those of "
                f"{self.model!r}; give that one with --model, or rebuild the file with --rebuild"
            )

    def check_foreign(self) -> None:
        """Raise an error if the file exists and is not an index: it is never replaced."""
        if not self.file.exists():
            return
        try:
            with self.file.open("rb") as file:
                start = file.read(64)
        except OSError as error:
            raise InputError(f"cannot read {self.file} ({error.strerror}); check its permissions") from error
        if _INDEX.encode() not in start:
            raise InputError(f"{self.file} is not an embedding file; name another file with --embeddings")

    def save(self) -> None:
        remove_stale_temp_files([self.file.parent])
        rows = [[name, one.size, one.changed, len(one.vectors), one.error] for name, one in self.images.items()]
        header = {"model": self.model, "sha256": self.sha256, "size": self.size, "images": rows}
        text = np.frombuffer(json.dumps(header).encode(), np.uint8)
        vectors = [one.vectors for one in self.images.values() if len(one.vectors)]
        stacked = np.concatenate(vectors) if vectors else np.zeros((0, self.size), np.float32)
        with atomic_path(self.file) as unfinished, unfinished.open("xb") as file:
            np.savez(file, pixeldiff_faces=text, vectors=stacked.astype("<f4", copy=False))  # _INDEX first

    def drop(self, folder: Path, names: Sequence[str]) -> list[str]:
        """Forget images that have changed or are gone; return those to embed."""
        stamps = {name: _stamp(os.path.join(folder, name)) for name in names}
        current = {name: one for name, one in self.images.items() if stamps.get(name) == (one.size, one.changed)}
        if len(current) < len(self.images):
            self.images = current
            self.save()
        return [name for name in names if name not in current]

    def add(
        self, folder: Path, names: Sequence[str], embed: Embed, threads: int, advance: Callable[[int], None]
    ) -> None:
        """Embed images. Those that are done are saved, also when the run is stopped."""
        if not names:
            return
        saved = time.monotonic()
        batches = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]

        def embed_batch(batch: Sequence[str]) -> list[tuple[str, IndexedImage]]:
            return [(name, _embed(folder / name, embed)) for name in batch]

        try:
            with ThreadPoolExecutor(threads) as pool:
                for done in ordered_map(pool, embed_batch, batches, 2 * threads):
                    self.images.update(done)
                    advance(len(done))
                    if time.monotonic() - saved > _SAVE_SECONDS:
                        self.save()
                        saved = time.monotonic()
        finally:
            self.save()

    def rank(self, vector: Vectors, exclude: Iterable[str] = ()) -> list[tuple[float, str]]:
        """Return cosine and name of each image with a face, by its most similar face, best first."""
        excluded = set(exclude)
        named = [(name, one.vectors) for name, one in self.images.items() if len(one.vectors) and name not in excluded]
        if not named:
            return []
        starts = np.cumsum([0, *(len(vectors) for _, vectors in named[:-1])])
        best = np.maximum.reduceat(np.concatenate([vectors for _, vectors in named]) @ vector, starts)
        order = np.argsort(-best, kind="stable")
        return [(float(best[index]), named[index][0]) for index in order]

    def failed(self) -> dict[str, str]:
        """Return the images without a vector, and why."""
        return {name: one.error for name, one in self.images.items() if one.error}


def _stamp(path: str | Path) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)  # reported when the image is read
    return status.st_size, status.st_mtime_ns


def _embed(path: Path, embed: Embed) -> IndexedImage:
    stamp = _stamp(path)  # before reading, so that a later change is noticed next time
    try:
        return IndexedImage(*stamp, embed(path))
    except UserError as error:
        return IndexedImage(*stamp, np.zeros((0, 0), np.float32), str(error))


def _read(path: Path, size: int) -> tuple[str, str, dict[str, IndexedImage]]:
    """Return the model, its hash and the images of a file; none if the vectors are of another length."""
    with np.load(path, allow_pickle=False) as arrays:
        if any(entry.compress_type for entry in arrays.zip.infolist()):  # small files that unpack to large ones
            raise ValueError("it is compressed")
        header, vectors = json.loads(arrays[_INDEX].tobytes()), arrays["vectors"]
    model, sha256, rows = (header[key] for key in ("model", "sha256", "images"))
    counts = [_check_row(row) for row in rows]
    if not isinstance(model, str) or not isinstance(sha256, str) or not _is_count(header["size"]):
        raise ValueError("its description")
    if vectors.dtype != np.float32 or vectors.shape != (sum(counts), header["size"]):
        raise ValueError("its number of vectors")
    if not np.isfinite(vectors).all():
        raise ValueError("numbers that are not finite")
    parts = np.split(vectors, np.cumsum(counts)[:-1]) if rows else []
    images = {row[0]: IndexedImage(row[1], row[2], part, row[4]) for row, part in zip(rows, parts, strict=True)}
    return model, sha256, images if header["size"] == size else {}


def _check_row(row: Any) -> int:
    """Check the row of an image and return its number of faces."""
    name, size, changed, faces, error = row
    if not (isinstance(name, str) and isinstance(error, str) and all(map(_is_count, (size, changed, faces)))):
        raise ValueError("its description")
    return int(faces)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
