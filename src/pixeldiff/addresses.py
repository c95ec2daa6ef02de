"""Addresses: local paths, s3://, gs:// and hdfs://, read, searched and written whole or not at all (pyarrow.fs).

    s3://bucket/photos?endpoint_override=127.0.0.1:5000&scheme=http

What follows the `?` says how to reach the store and is no part of a name. Local paths are the business of `files`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from glob import has_magic
from pathlib import Path
from typing import IO, Any

from pixeldiff.errors import DiskFullError, MissingExtra, OutputError, UserError
from pixeldiff.files import atomic_write, check_below, has_mark, name_unfinished, result_mark

_READERS = 32  # files of a store that are looked into at a time
SCHEMES = ("s3", "gs", "hdfs")
Bytes = IO[bytes]
_REMOTE = re.compile(r"(\w+)://([^/?]*)/*(.*?)/*(\?\w+=[^/]*)?", re.DOTALL)
_NO_ROOM = re.compile(r"No space left|quota|QUOTA|SlowDownQuota|XMinioStorageFull", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """A place in a store: `path` is bucket/key, on hdfs an absolute path, and here a path as it is."""

    path: str
    scheme: str = ""  # none: this machine
    host: str = ""  # of hdfs
    query: str = ""  # how to reach the store

    def __str__(self) -> str:
        """As it is shown: always text, which names of files need not be."""
        return self._plain.encode(errors="backslashreplace").decode()

    @property
    def full(self) -> str:
        """With all that is needed to come back: parse(address.full) == address."""
        return f"{self._plain}{self.query}"

    @property
    def _plain(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}" if self.scheme else self.path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def at(self, path: str | Path) -> Address:
        """Another place in the same store."""
        return replace(self, path=path.as_posix() if isinstance(path, Path) else path)

    def __truediv__(self, name: str) -> Address:
        """A place in this folder, never outside of it."""
        check_below(name.split("/"))
        return self.at(f"{self.path.rstrip('/')}/{name}")


def parse(text: str) -> Address:
    """An address from a user's word; of a local path the absolute one, for workers stand elsewhere."""
    found = _REMOTE.fullmatch(text)
    if found is None:
        return Address(str(Path(text).absolute()))
    scheme, host, path, query = found.groups("")
    if scheme not in SCHEMES:
        raise UserError(f"{text}: there are local paths and {', '.join(f'{one}://' for one in SCHEMES)} addresses")
    if scheme == "hdfs":
        return Address(f"/{path}", scheme, host, query)
    if not host:
        raise UserError(f"{text} names no bucket; it is {scheme}://bucket/folder")
    return Address(f"{host}/{path}".rstrip("/"), scheme, "", query)


def reached_as(one: Address, other: Address) -> Address:
    """An address without a word on how to reach its store, as another of the same kind is reached."""
    return replace(one, query=other.query) if one.scheme == other.scheme and not one.query else one


def is_remote(text: str) -> bool:
    return "://" in text


@lru_cache(maxsize=64)
def _store(scheme: str, place: str, query: str) -> Any:
    """pyarrow's file system of a bucket or host. Names are never part of the URI, which would decode them."""
    try:
        from pyarrow import fs
    except ImportError as error:
        raise MissingExtra("cluster", f"{scheme}:// addresses", error.name) from error
    if scheme == "s3" and hasattr(fs, "initialize_s3"):
        fs.ensure_s3_initialized()
    store, _ = fs.FileSystem.from_uri(f"{scheme}://{place}/{query}")
    return store


def _open(address: Address) -> Any:
    place = address.host if address.scheme == "hdfs" else address.path.partition("/")[0]
    try:
        return _store(address.scheme, place, address.query)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot reach {address} ({_reason(error)}); check the address and your rights") from error


def read(address: Address) -> bytes:
    """A file's content."""
    try:
        if not address.scheme:
            return Path(address.path).read_bytes()
        with _open(address).open_input_stream(address.path) as stream:
            content: bytes = stream.read()
            return content
    except FileNotFoundError as error:
        raise UserError(f"no file {address}; check the name") from error
    except OSError as error:
        raise UserError(f"cannot read {address} ({_reason(error)}); check the address and your rights") from error


def open_file(address: Address) -> contextlib.AbstractContextManager[Bytes]:
    """A file open for reading, to be closed again."""
    try:
        if not address.scheme:
            return open(address.path, "rb")
        opened: contextlib.AbstractContextManager[Bytes] = _open(address).open_input_file(address.path)
        return opened
    except FileNotFoundError as error:
        raise UserError(f"no file {address}; check the name") from error
    except OSError as error:
        raise UserError(f"cannot read {address} ({_reason(error)}); check the address and your rights") from error


def write(address: Address, content: bytes) -> None:
    """Write a file so that it appears whole or not at all: object stores show what was sent to its end, on hdfs a
    whole file gets its name."""
    if not address.scheme:
        atomic_write(Path(address.path), content)
        return
    store, moves = _open(address), address.scheme == "hdfs"
    target = name_unfinished(Path(address.path)).as_posix() if moves else address.path
    try:
        if moves:
            store.create_dir(target.rpartition("/")[0], recursive=True)
        with store.open_output_stream(target) as stream:
            stream.write(content)
        if moves:
            store.move(target, address.path)
    except OSError as error:
        kind = DiskFullError if _NO_ROOM.search(str(error)) else OutputError
        raise kind(f"cannot write {address} ({_reason(error)}); check the address, its room and your rights") from error


def written_at(address: Address) -> float | None:
    """When a file was written, by its store's own clock; None where there is none."""
    try:
        if not address.scheme:
            return Path(address.path).stat().st_mtime
        info = _open(address).get_file_info(address.path)
        return float(info.mtime_ns or 0) / 1e9 if info.is_file else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot look at {address} ({_reason(error)}); check the address and your rights") from error


def remove(address: Address) -> None:
    """A file or a whole folder of ours; nothing where there is nothing."""
    import shutil

    with contextlib.suppress(OSError):
        if not address.scheme:
            here = Path(address.path)
            shutil.rmtree(here) if here.is_dir() else here.unlink()
        elif (info := _open(address).get_file_info(address.path)).is_file:
            _open(address).delete_file(address.path)
        elif info.type.name == "Directory":
            _open(address).delete_dir(address.path)


def names(folder: Address) -> list[str]:
    """The files right in a folder, in order; none where there is no folder."""
    if not folder.scheme:
        here = Path(folder.path)
        return sorted(one.name for one in here.iterdir() if one.is_file()) if here.is_dir() else []
    files, _ = _within(folder)
    return [path.name for path in files]


def _within(folder: Address) -> tuple[list[Path], list[Path]]:
    """Files and folders right in a folder of a store, in order."""
    from pyarrow import fs

    try:
        found = _open(folder).get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    except OSError as error:
        raise UserError(f"cannot look into {folder} ({_reason(error)}); check the address and your rights") from error
    paths = sorted((Path(one.path), bool(one.is_file)) for one in found)
    return [path for path, file in paths if file], [path for path, file in paths if not file]


def is_folder(address: Address) -> bool:
    files, folders = _within(address)
    return bool(files or folders)


def walk(folder: Address, out: Address) -> Iterator[list[Path]]:
    """The files of a store below a folder, folder by folder, so that no more than one is held; not those in `out`,
    hidden ones, nor our own results."""
    files, folders = _within(folder)
    if kept := _without_results(folder, [one for one in files if not one.name.startswith(".")]):
        yield kept
    for inner in folders:
        if not inner.name.startswith(".") and folder.at(inner) != out:
            yield from walk(folder.at(inner), out)


def matching(pattern: Address, out: Address) -> list[Path]:
    """The files of a store that a glob means, in order; ** stands for any folders."""
    parts = pattern.path.split("/")
    fixed = next(k for k, part in enumerate(parts) if has_magic(part))
    if fixed == 0:
        raise UserError(f"{pattern} leaves the bucket open; name it")
    top = pattern.at("/".join(parts[:fixed]))
    groups = walk(top, out) if len(parts) > fixed + 1 else [_within(top)[0]]
    visible = (one for group in groups for one in group if not one.name.startswith("."))
    fitting = [one for one in visible if _fits(list(one.parts[-(len(one.parts) - fixed) :]), parts[fixed:])]
    return _without_results(pattern, fitting)


def _without_results(store: Address, files: list[Path]) -> list[Path]:
    """The files that no command has made; those named like results are opened, many at a time."""
    marks = {one: mark for one in files if (mark := result_mark(one)) is not None}
    if not marks:
        return files

    def is_ours(one: Path) -> bool:
        with contextlib.suppress(UserError, OSError), open_file(store.at(one)) as file:
            return has_mark(file, marks[one])
        return False

    with ThreadPoolExecutor(_READERS) as pool:
        ours = {one for one, is_one in zip(marks, pool.map(is_ours, marks), strict=True) if is_one}
    return [one for one in files if one not in ours]


def _fits(names: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not names
    if pattern[0] == "**":
        return _fits(names, pattern[1:]) or (bool(names) and _fits(names[1:], pattern))
    return bool(names) and fnmatchcase(names[0], pattern[0]) and _fits(names[1:], pattern[1:])


def _reason(error: Exception) -> str:
    """The gist of a store's message, which may be long and of several lines."""
    told = " ".join(str(getattr(error, "strerror", None) or error).split())
    found = re.search(r"AWS Error (\w+).*?: (.*)", told)
    return f"{found[1]}: {found[2]}"[:200] if found else told[:200]
