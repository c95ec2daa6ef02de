"""The user's files: which are meant, where results go, what is never replaced, and whole or not at all.

Inputs are files, folders (searched to the bottom), globs and `-`; photo.jpg gives photo.edges.png, beside it or in the
folder that -o names. A file is written beside its target as .pixeldiff-<machine>-<process>-<random>.tmp and renamed
when it is whole; the name says who writes it, so that the next run in that folder can tell a leftover from the work of
another process.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import platform
import re
import shutil
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from pixeldiff.errors import DiskFullError, InputError, OutputError, UserError

STREAM = Path("-")  # standard input as a source, standard output as a target; a file of that name is ./-
EXISTS = "already exists, skipped (--overwrite replaces it)"

_NAME = re.compile(r"\.pixeldiff-([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp(\.\w+)?")
_WITHOUT_NOTE = (".npy", ".mat")  # nor are they images
_NOTE_BYTES = 2**16  # at each end of a file
_DAY = 86400  # seconds; processes of other machines cannot be asked
_NO_ROOM = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "your share of the disk is full; make room",
    errno.EROFS: "the disk is read-only; choose another place with -o",
}


@dataclass(frozen=True)
class Job:
    """One file and where its result goes; None if it has no files."""

    source: Path
    target: Path | None


@dataclass
class InputFiles:
    """Files to work on, each with the folder it was found under (None for a file named as such).

    `missing` says of what was not found why, `others` counts what else lies in the folders, by suffix.
    """

    what: str  # they are, in the plural
    files: list[tuple[Path, Path | None]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)


def find_files(inputs: Sequence[str], suffixes: Collection[str], what: str, out: str | None = None) -> InputFiles:
    """Files, folders and globs, each file once. Folders are searched for `suffixes`, and not in `out`; a file that is
    named counts whatever its suffix. Our own results are no input."""
    found = InputFiles(what)
    seen: set[str] = set()
    given_alone = len(inputs) == 1
    for given in inputs:
        if not given_alone and is_result(Path(given)) and Path(given).is_file():
            continue  # a shell has spread a glob
        try:
            own = _named(given, suffixes, out, found)
        except OSError as error:
            found.missing[given] = f"cannot look at {given} ({error.strerror}); check the name and the permissions"
            continue
        if not own:
            found.missing.setdefault(given, _nothing(given, suffixes, what))
        for one, root in own:
            if (key := os.path.realpath(one)) not in seen:  # unlike resolve, it bears links that lead to themselves
                seen.add(key)
                found.files.append((one, root))
    if not found.files and not found.missing:
        found.missing[inputs[0]] = f"{inputs[0]} and the others are results of ours; give one of them alone, or {what}"
    return found


def _named(given: str, suffixes: Collection[str], out: str | None, found: InputFiles) -> list[tuple[Path, Path | None]]:
    path = Path(given)
    if path == STREAM:
        return [(STREAM if given == "-" else path.absolute(), None)]
    if path.is_dir():
        files = list(search_folder(path, out, found.missing))
        found.others.update(one.suffix.lower() for one in files if one.suffix.lower() not in suffixes)
        return [(one, path) for one in files if one.suffix.lower() in suffixes]
    if path.exists():
        return [(path, None)]
    if not glob.has_magic(given):
        return []
    hits = sorted(Path(hit) for hit in glob.glob(given, recursive=True))
    _note_closed(given, found.missing)
    return [(hit, None) for hit in hits if hit.is_file() and not is_result(hit)]


def _note_closed(pattern: str, missing: dict[str, str]) -> None:
    """Add the folders to `missing` that a glob looks into and that cannot be read; the glob passes over them."""
    parts = Path(pattern).parts
    first = next(k for k, part in enumerate(parts) if glob.has_magic(part))
    for k in range(first, len(parts) + (parts[-1] == "**")):
        for folder in glob.glob(os.path.join(*parts[:k], "") if k else os.curdir, recursive=True):
            try:
                os.scandir(folder).close()
            except NotADirectoryError:
                continue
            except OSError as error:
                missing[folder] = _closed(error)


def _closed(error: OSError) -> str:
    return f"cannot look into {error.filename} ({error.strerror}); check its permissions"


def search_folder(folder: Path, out: str | None, missing: dict[str, str]) -> Iterator[Path]:
    """The files below a folder, folder by folder and in order; not those in `out`, hidden ones, nor our own results.
    `missing` hears of what may not be looked into."""

    def closed(error: OSError) -> None:
        missing[str(error.filename)] = _closed(error)

    passed = {os.path.realpath(one) for one in (folder, out) if one is not None}  # links may lead back up
    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        here = Path(place)
        visible = sorted((name for name in folders if not name.startswith(".")), reverse=True)
        below = {os.path.realpath(here / name): name for name in visible}
        folders[:] = sorted(name for path, name in below.items() if path not in passed)
        passed.update(below)
        files = (here / name for name in sorted(names) if not name.startswith("."))
        # Pipes and devices would wait for ever; a link to nothing is told when it is read.
        yield from (one for one in files if not is_result(one) and (one.is_file() or not one.exists()))


def read_source(source: Path) -> bytes:
    """Read an input file, or standard input."""
    if source == STREAM:
        return sys.stdin.buffer.read()
    if not os.path.exists(source):  # also a name too long for a file
        raise InputError(f"no file {str(source)[:300]}; check the name")
    if source.is_dir():
        raise InputError(f"{source} is a folder; give an image file")
    try:
        return source.read_bytes()
    except PermissionError as error:
        raise InputError(f"{source} may not be read; check its permissions") from error
    except OSError as error:
        raise InputError(f"cannot read {source} ({error.strerror or error}); copy it again") from error


def holds(path: Path, mark: bytes) -> bool:
    """Whether a file has `mark` near its start or its end, where formats keep what made them."""
    with contextlib.suppress(OSError):
        if path.is_file():  # a pipe would wait
            with path.open("rb") as file:
                return has_mark(file, mark)
    return False


def has_mark(file: IO[bytes], mark: bytes) -> bool:
    """As `holds`, of an open file."""
    if mark in file.read(_NOTE_BYTES):
        return True
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _NOTE_BYTES))
    return mark in file.read(_NOTE_BYTES)


def is_result(path: Path) -> bool:
    """Whether a command has made a file: its name allows it, and it holds the command. A user's cliff.edges.jpg does
    not. Only files of such names are opened."""
    mark = result_mark(path)
    return mark is not None and (not mark or holds(path, mark))


def result_mark(path: Path) -> bytes | None:
    """What a result of that name holds; nothing where the kind of file cannot, None if no result has such a name."""
    for command, infix in (("detect", ".edges."), ("objects", ".objects.")):
        if infix in path.name:
            return b"" if path.suffix.lower() in _WITHOUT_NOTE else f"pixeldiff {command} --model ".encode()
    return None


def _nothing(given: str, suffixes: Collection[str], what: str) -> str:
    if Path(given).is_dir():
        return f"no {what} in {given}; looked for {' '.join(suffixes)}"
    if glob.has_magic(given):
        return f"no file matches {given}"
    return f"no file {given}; check the name"


def destination(
    inputs: Sequence[str], out: str | None, written: Collection[str], known: Collection[str]
) -> Path | None:
    """The file that -o names, for one input and a name with a `written` suffix; None where it names a folder.

    `known` are suffixes that no folder for several results would have."""
    several = len(inputs) > 1 or Path(inputs[0]).is_dir()
    file = Path(out) if out and _names_file(out, written, known if several else None) else None
    if "-" in inputs and (several or file is None):
        raise UserError("- is stdin; give it alone, and with -o FILE, or with -o - for stdout")
    if file and several:
        raise UserError(f"-o {out} is one file, but there are several inputs; give a folder")
    if file == STREAM and sys.stdout.isatty():
        raise UserError("-o - writes a file to stdout, which is a terminal; send it on: -o - > edges.png")
    return file


def _names_file(out: str, written: Collection[str], known: Collection[str] | None) -> bool:
    suffix = Path(out).suffix.lower()
    if out == "-" or names_folder(out) or not suffix:
        return out == "-"
    if suffix not in written and (known is None or suffix in known):
        kinds = " ".join(written)
        raise UserError(f"-o {out}: results are not written as {suffix}; use {kinds}, or {out}/ for a folder")
    return suffix in written


def names_folder(out: str) -> bool:
    """Whether -o means a folder whatever its suffix: it is one, or is written like one."""
    return Path(out).is_dir() or out.endswith(("/", os.sep))


def plan_jobs(
    found: InputFiles, target: Path | None, folder: Path | None, ending: Callable[[Path], str | None]
) -> list[Job]:
    """Where each result goes: `target` for a single file; else photo.edges.png (where `ending` gives edges.png) beside
    the photo, or in `folder` with the tree below each input folder kept. Without an ending there are no files.

    Where two names would become one, the suffix stays in them: photo.jpg.edges.png, photo.png.edges.png.
    """
    if target is not None:
        if len(found.files) > 1:
            raise UserError(f"-o {target} is one file, but the input is {len(found.files)} {found.what}; give a folder")
        check_targets([target], [found.files[0][0]])
        return [Job(found.files[0][0], target)]
    if found.files and ending(found.files[0][0]) is None:
        return [Job(one, None) for one, _ in found.files]
    places = [
        (one, one.parent if folder is None else below(folder, one.parent.relative_to(root) if root else Path()))
        for one, root in found.files
    ]
    names = Counter(place / f"{one.stem}.{ending(one)}" for one, place in places)
    taken: dict[Path, Path] = {}
    for one, place in places:
        result = place / f"{one.stem}.{ending(one)}"
        if names[result] > 1:
            result = place / f"{one.name}.{ending(one)}"
        if result in taken:
            raise UserError(f"{taken[result]} and {one} would both become {result}; run them with different -o")
        taken[result] = one
    check_targets(taken, taken.values())
    return [Job(source, result) for result, source in taken.items()]


def below(folder: Path, name: Path) -> Path:
    """The place `name` in a folder, never outside of it: keys in a store, unlike paths here, may have `..` in them."""
    check_below(name.parts)
    return folder / name


def check_below(parts: Iterable[str]) -> None:
    """Refuse the parts of a name that would lead out of the folder which the name is joined to."""
    parts = list(parts)
    if ".." in parts:
        raise OutputError(f"the result of {'/'.join(parts)} would lie outside the output folder; give names without ..")


def check_targets(targets: Iterable[Path], sources: Iterable[Path]) -> None:
    """Refuse a result that would replace an input, its own or another's, --overwrite or not."""
    results, inputs = [one for one in targets if one != STREAM], set(sources) - {STREAM}
    existing = {key: one for one in results if (key := _identity(one))}
    same = [existing[key] for one in inputs if (key := _identity(one)) in existing] if existing else []
    if taken := [one for one in results if one in inputs] or same:  # paths in a store have no identity here
        raise OutputError(f"-o: {taken[0]} is the input itself, or another input; give another name or folder with -o")


def _identity(path: Path) -> tuple[int, int] | None:
    """What two names of one file have in common; None if there is no file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def check_overwrite(path: Path, overwrite: bool) -> None:
    """Nothing is replaced unasked."""
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists; give another name or --overwrite")


def make_folder(folder: Path) -> None:
    """A folder for results; say it before the work if they cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file, not a folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise UserError(f"cannot write to {folder} ({why}); choose another folder with -o") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"cannot write to {folder} (no permission); choose another folder with -o")


def cannot_write(path: Path, error: Exception) -> OutputError:
    """What to tell of the system's error, or PyAV's; a DiskFullError where other files will fare no better."""
    if advice := _NO_ROOM.get(getattr(error, "errno", None) or 0):
        return DiskFullError(f"cannot write {path}: {advice}")
    return OutputError(f"cannot write {path} ({getattr(error, 'strerror', None) or error}); choose another place")


def name_unfinished(target: Path, suffix: str = "") -> Path:
    """A new name beside `target`; short, since names may be as long as the system bears."""
    return target.with_name(f".pixeldiff-{_machine()}-{os.getpid()}-{os.urandom(4).hex()}.tmp{suffix}")


@contextlib.contextmanager
def atomic_path(target: Path, suffix: str = "", durable: bool = False) -> Iterator[Path]:
    """Where to write a file (or a folder) that gets the name `target` when the block ends well; else nothing is left.

    Missing folders are made. A `durable` file is on the disk before it gets its name, so that a power cut does not
    cost both it and the one before: for weights and checkpoints; images in a row would wait for the disk.
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


def atomic_write(path: Path, content: bytes) -> None:
    """Write a file so that it appears complete or not at all."""
    with atomic_path(path) as unfinished, unfinished.open("xb") as file:
        file.write(content)


def write_result(target: Path, content: bytes) -> None:
    """A result in its file, or on stdout."""
    if target == STREAM:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        atomic_write(target, content)


def remove_stale_temp_files(folders: Iterable[Path]) -> None:
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
