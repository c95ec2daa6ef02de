"""Files on their way: their names, what a killed run has left of them, and why one could not be written.

A file is written beside its target as .pixeldiff-<machine>-<process>-<random>.tmp and renamed when it is whole. The
name says who writes it, so that the next run in that folder can tell a leftover from the work of another process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pixeldiff.errors import UserError

_NAME = re.compile(r"\.pixeldiff-([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp(\.\w+)?")
_DAY = 86400  # seconds; processes of other machines cannot be asked
_NO_ROOM = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "your share of the disk is full; make room",
    errno.EROFS: "the disk is read-only; choose another place with -o",
}


class WriteError(UserError):
    """A file could not be written."""


class NoRoomError(WriteError):
    """Nothing can be written any more, this file nor the next."""


def cannot_write(path: Path, error: Exception) -> WriteError:
    """What to tell of the system's error, or PyAV's; a NoRoomError where other files will fare no better."""
    if advice := _NO_ROOM.get(getattr(error, "errno", None) or 0):
        return NoRoomError(f"cannot write {path}: {advice}")
    return WriteError(f"cannot write {path} ({getattr(error, 'strerror', None) or error}); choose another place")


def refuse_existing(path: Path, overwrite: bool) -> None:
    """Nothing is replaced unasked."""
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists; give another name or --overwrite")


def name_unfinished(target: Path, suffix: str = "") -> Path:
    """A new name beside `target`; short, since names may be as long as the system bears."""
    return target.with_name(f".pixeldiff-{_machine()}-{os.getpid()}-{secrets.token_hex(4)}.tmp{suffix}")


@contextlib.contextmanager
def whole(target: Path, suffix: str = "", durable: bool = False) -> Iterator[Path]:
    """Where to write a file (or a folder) that gets the name `target` when the block ends well; else nothing is left.

    Missing folders are made. A `durable` file is on the disk before it gets its name, so that a power cut does not
    cost both it and the one before: for weights and checkpoints; pictures in a row would wait for the disk.
    """
    unfinished = name_unfinished(target, suffix)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        if durable:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        os.replace(unfinished, target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        _remove(unfinished)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    with whole(path) as unfinished, unfinished.open("xb") as file:
        file.write(content)


def remove_leftovers(folders: Iterable[Path]) -> None:
    """Unfinished files of processes that are no more: dead ones here, and those of elsewhere untouched for a day."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # a folder may be still to be made
            for entry in entries:
                if (name := _NAME.fullmatch(entry.name)) and not entry.is_symlink():
                    here = name[1] == _machine() and os.name == "posix"
                    old = time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY
                    if not _lives(int(name[2])) if here else old:
                        _remove(Path(entry.path))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _machine() -> str:
    """Where process numbers mean the same: this machine, and within it this container."""
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{platform.node()} {space}'.encode()):08x}"


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # somebody else's
        return True
    return True
