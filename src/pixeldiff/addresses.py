"""Addresses of files: local paths, s3://, gs:// and hdfs://, through fsspec over pyarrow's file systems.

    s3://bucket/photos?endpoint_override=127.0.0.1:5000&scheme=http

The part after the `?` says how to reach the store; it is not part of the name.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from pixeldiff.errors import DiskFullError, InputError, MissingExtra, OutputError
from pixeldiff.files import atomic_write, check_below, name_unfinished

SCHEMES = ("s3", "gs", "hdfs")
_REMOTE = re.compile(r"(\w+)://([^/?]*)/*(.*?)/*(\?\w+=[^/]*)?", re.DOTALL)
_NO_ROOM = re.compile(r"No space left|quota|SlowDownQuota|XMinioStorageFull", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """A place in a store: `path` is bucket/key, on hdfs and on this machine an absolute path."""

    path: str
    scheme: str = ""  # none: this machine
    host: str = ""  # of hdfs
    query: str = ""  # how to reach the store

    def __str__(self) -> str:
        """Return the address as text, which names of files need not be."""
        return self._plain.encode(errors="backslashreplace").decode()

    @property
    def full(self) -> str:
        """The text that parses to this address."""
        return f"{self._plain}{self.query}"

    @property
    def _plain(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}" if self.scheme else self.path

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def at(self, path: str | Path) -> Address:
        """Return another place in the same store."""
        return replace(self, path=path.as_posix() if isinstance(path, Path) else path)

    def __truediv__(self, name: str) -> Address:
        """Return a place in this folder, never outside of it."""
        check_below(name.split("/"))
        return self.at(f"{self.path.rstrip('/')}/{name}")


def parse(text: str) -> Address:
    """Parse an address; local paths become absolute, for workers run in other folders."""
    match = _REMOTE.fullmatch(text)
    if match is None:
        return Address(str(Path(text).absolute()))
    scheme, host, path, query = match.groups("")
    if scheme not in SCHEMES:
        raise InputError(f"unknown address {text}; give a local path or {', '.join(f'{name}://' for name in SCHEMES)}")
    if scheme == "hdfs":
        return Address(f"/{path}", scheme, host, query)
    if not host:
        raise InputError(f"{text} names no bucket; give {scheme}://bucket/folder")
    return Address(f"{host}/{path}".rstrip("/"), scheme, "", query)


def is_remote(text: str) -> bool:
    """Return whether a text is an address of a store, not a local path."""
    return "://" in text


@lru_cache(maxsize=64)
def _open_store(scheme: str, place: str, query: str) -> Any:
    """Open the file system of a bucket or host. Names are never part of the URI, which would decode them."""
    try:
        from fsspec.implementations import arrow, local
        from pyarrow import fs
    except ImportError as error:
        raise MissingExtra("cluster", f"{scheme or 'local'} addresses", error.name) from error
    if not scheme:
        return local.LocalFileSystem(skip_instance_cache=True)
    if scheme == "s3" and hasattr(fs, "initialize_s3"):
        fs.ensure_s3_initialized()
    return arrow.ArrowFSWrapper(fs.FileSystem.from_uri(f"{scheme}://{place}/{query}")[0], skip_instance_cache=True)


def store(address: Address) -> Any:
    """Return the fsspec file system that an address lies in."""
    place = address.host if address.scheme == "hdfs" else address.path.partition("/")[0]
    try:
        return _open_store(address.scheme, place if address.scheme else "", address.query)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot reach {address} ({_reason(error)}); check the address and your rights") from error


@contextlib.contextmanager
def _named_errors(what: str, address: Address) -> Iterator[None]:
    """Turn errors of a store into an InputError; a missing file stays a FileNotFoundError."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise InputError(f"cannot {what} {address} ({_reason(error)}); check the address and your rights") from error


def read(address: Address) -> bytes:
    """Read a file."""
    try:
        with _named_errors("read", address):
            content: bytes = store(address).cat_file(address.path)
            return content
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"no file {address}; check the name") from error


def open_file(address: Address) -> IO[bytes]:
    """Open a file for reading."""
    try:
        with _named_errors("read", address):
            file: IO[bytes] = store(address).open(address.path, "rb")
            return file
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"no file {address}; check the name") from error


def write(address: Address, content: bytes) -> None:
    """Write a file that appears complete or not at all: object stores show only complete uploads; on hdfs and local
    disks a complete file gets its name."""
    if not address.scheme:
        atomic_write(Path(address.path), content)
        return
    files, moves = store(address), address.scheme == "hdfs"
    target = name_unfinished(Path(address.path)).as_posix() if moves else address.path
    try:
        if moves:
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
        with files.fs.open_output_stream(target) as stream:
            stream.write(content)
        if moves:
            files.fs.move(target, address.path)
    except OSError as error:
        kind = DiskFullError if _NO_ROOM.search(str(error)) else OutputError
        raise kind(f"cannot write {address} ({_reason(error)}); check the address, its room and your rights") from error


def written_at(address: Address) -> float | None:
    """Return when a file was written, by the clock of its store; None if it does not exist."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), _named_errors("look at", address):
        info = store(address).info(address.path)
        time = info["mtime"]
        return (time if isinstance(time, float) else time.timestamp()) if info["type"] == "file" else None
    return None


def remove(address: Address) -> None:
    """Remove a file or a folder, if it exists."""
    with contextlib.suppress(OSError):
        store(address).rm(address.path, recursive=True)


def entries(folder: Address) -> tuple[list[Path], list[Path]]:
    """Return the files and the folders right in a folder, in order; none if it does not exist."""
    try:
        with _named_errors("look into", folder):
            found = store(folder).ls(folder.path, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    paths = sorted((Path(entry["name"]), str(entry["type"])) for entry in found if entry["name"] != folder.path)
    return [path for path, kind in paths if kind == "file"], [path for path, kind in paths if kind == "directory"]


def walk(folder: Address, depth: int = 10**6) -> Iterator[tuple[list[Path], list[Path]]]:
    """Yield (files, folders) of each folder below one, which holds no more than one folder at a time; folders that the
    caller takes out of the list are not entered. Unlike fsspec's walk, errors below the first folder are raised."""
    files, folders = entries(folder)
    yield files, folders
    for inner in folders if depth > 1 else ():
        yield from walk(folder.at(inner), depth - 1)


def _reason(error: Exception) -> str:
    """Shorten the message of a store, which may be long and of several lines."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    match = re.search(r"AWS Error (\w+).*?: (.*)", text)
    return f"{match[1]}: {match[2]}"[:200] if match else text[:200]
