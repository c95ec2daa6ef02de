"""Files of the user: find inputs, name results, protect what exists, and write files atomically.

Inputs are files, folders (searched recursively), globs and `-`; photo.jpg gives photo.edges.png, beside it or in the
folder that -o names. A file is written beside its target as .pixeldiff-<machine>-<process>-<random>.tmp and renamed
when it is complete. The name holds the writer, so that a later run in that folder removes only files of dead processes.
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
_WITHOUT_PROVENANCE = (".npy", ".mat")  # nor are they images
_MARK_BYTES = 2**16  # at each end of a file
_DAY = 86400  # seconds; processes of other machines cannot be asked
_NO_ROOM = {
    errno.ENOSPC: "the disk is full; make room",
    errno.EDQUOT: "your share of the disk is full; make room",
    errno.EROFS: "the disk is read-only; choose another place with -o",
}


@dataclass(frozen=True)
class Job:
    """An input file and the main file of its result; None if the result has no files."""

    source: Path
    target: Path | None


@dataclass
class InputFiles:
    """Input files, each with the input folder it is in (None for a file that was named itself).

    `missing` gives the reason for each input without files; `others` counts the other files in the folders by suffix.
    """

    what: str  # the kind of files, in the plural
    files: list[tuple[Path, Path | None]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)


def find_files(inputs: Sequence[str], suffixes: Collection[str], what: str, out: str | None = None) -> InputFiles:
    """Find the files that files, folders and globs mean, each file once.

    Folders are searched for `suffixes`, except in `out`; a file that is named itself may have any suffix. Results of
    pixeldiff are inputs only if they are named alone.
    """
    found = InputFiles(what)
    known: set[str] = set()
    for text in inputs:
        if len(inputs) > 1 and is_result(Path(text)) and Path(text).is_file():
            continue  # a shell has expanded a glob
        try:
            files = _find(text, suffixes, out, found)
        except OSError as error:
            found.missing[text] = f"cannot look at {text} ({error.strerror}); check the name and the permissions"
            continue
        if not files:
            found.missing.setdefault(text, _explain_missing(text, suffixes, what))
        for path, root in files:
            if (key := os.path.realpath(path)) not in known:  # unlike resolve, it accepts links to themselves
                known.add(key)
                found.files.append((path, root))
    if not found.files and not found.missing:
        found.missing[inputs[0]] = f"all inputs are results of pixeldiff, {inputs[0]} first; give one alone, or {what}"
    return found


def _find(text: str, suffixes: Collection[str], out: str | None, found: InputFiles) -> list[tuple[Path, Path | None]]:
    path = Path(text)
    if path == STREAM:
        return [(STREAM if text == "-" else path.absolute(), None)]
    if path.is_dir():
        files = list(search_folder(path, out, found.missing))
        found.others.update(file.suffix.lower() for file in files if file.suffix.lower() not in suffixes)
        return [(file, path) for file in files if file.suffix.lower() in suffixes]
    if path.exists():
        return [(path, None)]
    if not glob.has_magic(text):
        return []
    matches = sorted(Path(match) for match in glob.glob(text, recursive=True))
    _note_closed(text, found.missing)
    return [(match, None) for match in matches if match.is_file() and not is_result(match)]


def _note_closed(pattern: str, missing: dict[str, str]) -> None:
    """Add the folders to `missing` that a glob would search but cannot read; the glob itself ignores them."""
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
    """Yield the files below a folder, folder by folder and in order, except those in `out`, hidden files and results of
    pixeldiff. Folders that cannot be read are added to `missing`."""

    def closed(error: OSError) -> None:
        missing[str(error.filename)] = _closed(error)

    entered = {os.path.realpath(path) for path in (folder, out) if path is not None}  # links may lead back up
    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        parent = Path(place)
        visible = sorted((name for name in folders if not name.startswith(".")), reverse=True)
        inner = {os.path.realpath(parent / name): name for name in visible}
        folders[:] = sorted(name for path, name in inner.items() if path not in entered)
        entered.update(inner)
        files = (parent / name for name in sorted(names) if not name.startswith("."))
        # Pipes and devices would wait for ever; a link to nothing is an error when it is read.
        yield from (file for file in files if not is_result(file) and (file.is_file() or not file.exists()))


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
    """Return whether a file has `mark` near its start or its end, where formats hold the provenance."""
    with contextlib.suppress(OSError):
        if path.is_file():  # a pipe would wait
            with path.open("rb") as file:
                return has_mark(file, mark)
    return False


def has_mark(file: IO[bytes], mark: bytes) -> bool:
    """Return the same as `holds` for an open file."""
    if mark in file.read(_MARK_BYTES):
        return True
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - _MARK_BYTES))
    return mark in file.read(_MARK_BYTES)


def is_result(path: Path) -> bool:
    """Return whether pixeldiff made a file: its name allows it, and it holds the command. A user's cliff.edges.jpg does
    not. Only files with such names are opened."""
    mark = result_mark(path)
    return mark is not None and (not mark or holds(path, mark))


def result_mark(path: Path) -> bytes | None:
    """Return what a result with that name holds: b"" for formats without provenance, None for names of no result."""
    for command, infix in (("detect", ".edges."), ("objects", ".objects.")):
        if infix in path.name:
            return b"" if path.suffix.lower() in _WITHOUT_PROVENANCE else f"pixeldiff {command} --model ".encode()
    return None


def _explain_missing(text: str, suffixes: Collection[str], what: str) -> str:
    if Path(text).is_dir():
        return f"no {what} in {text}; looked for {' '.join(suffixes)}"
    if glob.has_magic(text):
        return f"no file matches {text}"
    return f"no file {text}; check the name"


def destination(
    inputs: Sequence[str], out: str | None, written: Collection[str], known: Collection[str]
) -> Path | None:
    """Return the file that -o names: for one input, with a `written` suffix; None if -o names a folder.

    `known` are suffixes that a folder for several results would not have.
    """
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
    """Return whether -o means a folder whatever its suffix: the folder exists, or the name ends in a slash."""
    return Path(out).is_dir() or out.endswith(("/", os.sep))


def plan_jobs(
    found: InputFiles, target: Path | None, folder: Path | None, ending: Callable[[Path], str | None]
) -> list[Job]:
    """Name each result: `target` for a single file; else photo.edges.png (if `ending` gives edges.png) beside it,
    or in `folder` with the tree of each input folder. Without an ending there are no files.

    If two results would have one name, the suffix of the input stays in it: photo.jpg.edges.png, photo.png.edges.png.
    """
    if target is not None:
        if len(found.files) > 1:
            raise UserError(f"-o {target} is one file, but the input is {len(found.files)} {found.what}; give a folder")
        check_targets([target], [found.files[0][0]])
        return [Job(found.files[0][0], target)]
    if found.files and ending(found.files[0][0]) is None:
        return [Job(path, None) for path, _ in found.files]
    places = [
        (path, path.parent if folder is None else below(folder, path.parent.relative_to(root) if root else Path()))
        for path, root in found.files
    ]
    names = Counter(place / f"{path.stem}.{ending(path)}" for path, place in places)
    taken: dict[Path, Path] = {}
    for path, place in places:
        result = place / f"{path.stem}.{ending(path)}"
        if names[result] > 1:
            result = place / f"{path.name}.{ending(path)}"
        if result in taken:
            raise OutputError(f"{taken[result]} and {path} would both become {result}; run them with different -o")
        taken[result] = path
    check_targets(taken, taken.values())
    return [Job(source, result) for result, source in taken.items()]


def below(folder: Path, name: Path) -> Path:
    """Join a folder and a name, never outside of the folder: keys in a store may contain `..`."""
    check_below(name.parts)
    return folder / name


def check_below(parts: Iterable[str]) -> None:
    """Raise if the parts of a name would lead out of the folder that the name is joined to."""
    parts = list(parts)
    if ".." in parts:
        raise OutputError(f"the result of {'/'.join(parts)} would lie outside the output folder; give names without ..")


def check_targets(targets: Iterable[Path], sources: Iterable[Path]) -> None:
    """Raise if a result would replace any input, with --overwrite or without."""
    results, inputs = [path for path in targets if path != STREAM], set(sources) - {STREAM}
    existing = {key: path for path in results if (key := _identity(path))}
    same = [existing[key] for path in inputs if (key := _identity(path)) in existing] if existing else []
    if taken := [path for path in results if path in inputs] or same:  # paths in a store have no identity
        raise OutputError(f"-o: {taken[0]} is the input itself, or another input; give another name or folder with -o")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what two names of one file have in common; None if there is no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino


def check_overwrite(path: Path, overwrite: bool) -> None:
    """Raise if a file exists and may not be replaced."""
    if path.exists() and not overwrite:
        raise OutputError(f"{path} exists; give another name or --overwrite")


def make_folder(folder: Path) -> None:
    """Make a folder for results; raise before the work if files cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file, not a folder" if folder.exists() and not folder.is_dir() else error.strerror
        raise OutputError(f"cannot write to {folder} ({why}); choose another folder with -o") from error
    if not os.access(folder, os.W_OK):
        raise OutputError(f"cannot write to {folder} (no permission); choose another folder with -o")


def cannot_write(path: Path, error: Exception) -> OutputError:
    """Return an OutputError for an error of the system or of PyAV; a DiskFullError if other files would fail, too."""
    if advice := _NO_ROOM.get(getattr(error, "errno", None) or 0):
        return DiskFullError(f"cannot write {path}: {advice}")
    return OutputError(f"cannot write {path} ({getattr(error, 'strerror', None) or error}); choose another place")


def name_unfinished(target: Path, suffix: str = "") -> Path:
    """Return a new name beside `target`; short, because names may have the longest length that the system allows."""
    return target.with_name(f".pixeldiff-{_machine()}-{os.getpid()}-{os.urandom(4).hex()}.tmp{suffix}")


@contextlib.contextmanager
def atomic_path(target: Path, suffix: str = "", durable: bool = False) -> Iterator[Path]:
    """Give a path for a file or folder that gets the name `target` if the block succeeds; else it is removed.

    Missing folders are made. A `durable` file is on the disk before it gets its name, so that a power failure cannot
    cost both the new file and the old one: for weights and checkpoints. Many images in a row would wait for the disk.
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
    """Write a result to its file or to stdout."""
    if target == STREAM:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        atomic_write(target, content)


def remove_stale_temp_files(folders: Iterable[Path]) -> None:
    """Remove unfinished files of dead processes; those of other machines if nobody changed them for a day."""
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # a folder may not exist yet
            for entry in entries:
                if (name := _NAME.fullmatch(entry.name)) and not entry.is_symlink():
                    local = name[1] == _machine() and os.name == "posix"
                    old = time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY
                    if not _lives(int(name[2])) if local else old:
                        _remove(Path(entry.path))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _machine() -> str:
    """Identify this machine and the container in it: process numbers are unique there."""
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
    except OSError:  # of another user
        return True
    return True
