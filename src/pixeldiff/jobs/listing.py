"""The images of a cluster run, each with the address of its result.

Folders, globs and files have the result names of a local run (`files.plan_jobs`). The results of a list (.txt, or
.parquet with a column `address`, or `bucket` and `key`) lie in the tree below the folder that its images share.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from glob import has_magic
from itertools import groupby
from pathlib import Path
from typing import IO

from pixeldiff import addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import InputError, OutputError
from pixeldiff.files import InputFiles, find_files, has_mark, plan_jobs, result_mark, search_folder
from pixeldiff.image import SUFFIXES

LISTS = (".txt", ".parquet")
_READERS = 32  # files of a store that are looked into at a time

Ending = Callable[[Path], str | None]
Job = tuple[Address, Address | None]  # an image, and its result; None if the result is a row of the manifest


def find_jobs(source: str, out: Address, ending: Ending) -> Iterator[Job]:
    """Yield the images of a folder, glob, file or list with their results, folder by folder."""
    if Path(source.partition("?")[0] if addresses.is_remote(source) else source).suffix.lower() in LISTS:
        yield from _listed(source, out, ending)
        return
    origin, empty = addresses.parse(source), True
    for group in _groups(source, origin, out):
        for job in plan_jobs(InputFiles("images", group), None, Path(out.path), ending):
            empty = False
            yield origin.at(job.source), out.at(job.target) if job.target else None
    if empty:
        raise InputError(f"no images in {origin}; looked for {' '.join(SUFFIXES)}")


def _groups(source: str, origin: Address, out: Address) -> Iterator[list[tuple[Path, Path | None]]]:
    """Yield files whose names `plan_jobs` compares with each other, each with the input folder it is in."""
    if origin.scheme and has_magic(origin.path):
        yield [(path, None) for group in _glob(origin, out) for path in group]
    elif origin.scheme:
        if addresses.written_at(origin) is not None:
            yield [(Path(origin.path), None)]
            return
        if not any(addresses.entries(origin)):
            raise InputError(f"nothing at {origin}; check the address")
        for group in _images(origin, out, addresses.walk(origin)):
            yield [(path, Path(origin.path)) for path in group]
    elif Path(origin.path).is_dir():
        closed: dict[str, str] = {}
        files = search_folder(Path(origin.path), None if out.scheme else out.path, closed)
        for _, inside in groupby(files, key=lambda path: path.parent):
            yield [(path, Path(origin.path)) for path in inside if path.suffix.lower() in SUFFIXES]
        if closed:
            raise InputError("; ".join(closed.values()))
    else:
        found = find_files([source], SUFFIXES, "images")
        if found.missing:
            raise InputError("; ".join(found.missing.values()))
        yield [(path.absolute(), None) for path, _ in found.files]


def _glob(pattern: Address, out: Address) -> Iterator[list[Path]]:
    """Yield the images that match a glob, folder by folder; ** stands for any folders."""
    from fsspec.utils import glob_translate

    parts = pattern.path.split("/")
    fixed = next(k for k, part in enumerate(parts) if has_magic(part))
    if fixed == 0:
        raise InputError(f"{pattern} leaves the bucket open; name it")
    matches, depth = re.compile(glob_translate(pattern.path)), 10**6 if "**" in pattern.path else len(parts) - fixed
    for group in _images(pattern, out, addresses.walk(pattern.at("/".join(parts[:fixed])), depth)):
        yield [path for path in group if matches.match(path.as_posix())]


def _images(origin: Address, out: Address, folders: Iterator[tuple[list[Path], list[Path]]]) -> Iterator[list[Path]]:
    """Yield the images of each folder: not hidden ones, none in `out`, and no results of pixeldiff."""
    for files, inner in folders:
        inner[:] = [path for path in inner if not path.name.startswith(".") and origin.at(path) != out]
        images = [path for path in files if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")]
        yield _without_results(origin, images)


def _without_results(origin: Address, files: list[Path]) -> list[Path]:
    """Drop files that pixeldiff made; those named like results are opened, many at a time."""
    marks = {path: mark for path in files if (mark := result_mark(path)) is not None}

    def is_made(path: Path) -> bool:
        with contextlib.suppress(InputError, OSError), addresses.open_file(origin.at(path)) as file:
            return has_mark(file, marks[path])
        return False

    with ThreadPoolExecutor(_READERS) as pool:
        results = {path for path, made in zip(marks, pool.map(is_made, marks), strict=True) if made}
    return [path for path in files if path not in results]


def _listed(source: str, out: Address, ending: Ending) -> Iterator[Job]:
    """Yield the images of a list, which is read twice: first for the folder that all of them share."""
    shared: tuple[str, ...] | None = None
    inside: set[str] = set()  # images in `out` that may have the name of a result: one with two suffixes
    for image in _read_list(source):
        parts = Path(image.path).parts[:-1]
        same = [a == b for a, b in zip(parts if shared is None else shared, parts, strict=False)]
        shared = parts[: same.index(False)] if False in same else parts[: len(same)]
        if image.path.startswith(f"{out.path.rstrip('/')}/") and image.name.count(".") > 1:
            inside.add(str(image))
    if shared is None:
        raise InputError(f"{source} is empty; write one address per line")
    for image in _read_list(source):
        path = Path(image.path)
        suffix = ending(path)
        target = out / f"{'/'.join(path.parts[len(shared) :])}.{suffix}" if suffix else None
        if str(target) in inside:
            raise OutputError(f"the result of {image} would replace {target}, which {source} names; give another -o")
        yield image, target


def _read_list(source: str) -> Iterator[Address]:
    """Yield the addresses in a list, in order; those without a query are reached like the list itself."""
    origin = addresses.parse(source)
    with addresses.open_file(origin) as file:
        texts = _read_parquet(file, origin) if origin.path.lower().endswith(".parquet") else _read_lines(file)
        for text in texts:
            image = addresses.parse(text)
            if ".." in Path(image.path).parts:
                raise InputError(f"{origin} names {text}; give addresses without .., so that results have one place")
            reached = origin.scheme == image.scheme and not image.query
            yield replace(image, query=origin.query) if reached else image


def _read_lines(file: IO[bytes]) -> Iterator[str]:
    rest = b""
    while block := file.read(2**20):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line.decode(errors="surrogateescape").strip() for line in lines if line.strip())
    if rest.strip():
        yield rest.decode(errors="surrogateescape").strip()


def _read_parquet(file: IO[bytes], origin: Address) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        names = table.schema_arrow.names
        columns = ["address"] if "address" in names else ["bucket", "key"]
        if not set(columns) <= set(names):
            raise InputError(f"{origin} has the columns {', '.join(names)}; name one `address`, or `bucket` and `key`")
        for batch in table.iter_batches(columns=columns):
            for row in zip(*(batch[name].to_pylist() for name in columns), strict=True):
                yield row[0] if len(row) == 1 else f"s3://{row[0]}/{row[1]}"
    except pa.ArrowException as error:
        raise InputError(f"{origin} is not a Parquet file ({str(error)[:100]}); use {' or '.join(LISTS)}") from error
