"""What a cluster run does: images and where their results go, found folder by folder and kept in Parquet parts.

A folder, a glob or an image gets the names that `files.plan_jobs` gives on one machine. A list (.txt, a line each, or
.parquet with a column `address`, or `bucket` and `key`) may name what it likes: its results lie in the tree below the
folder that all of it has in common, and keep the image's suffix, since nobody has seen the whole list before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from glob import has_magic
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixeldiff import addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import InputError, OutputError, UserError
from pixeldiff.files import InputFiles, find_files, plan_jobs, search_folder
from pixeldiff.image import SUFFIXES

LISTS = (".txt", ".parquet")
CHUNK, LARGEST = 32, 1024  # images that a worker is given at a time: from seconds of work to a minute
_PART = 128  # chunks of the smallest size in a file
_BEFORE = 2048  # chunks of its size come before a larger one: each that Ray has seen takes memory of the driver
# Names of files need not be text.
SCHEMA = pa.schema([("chunk", pa.string()), ("sources", pa.list_(pa.binary())), ("targets", pa.list_(pa.binary()))])

Ending = Callable[[Path], str | None]
Job = tuple[Address, Address | None]  # an image, and where its result goes; None where it is a row of the manifest


def find_jobs(source: str, out: Address, ending: Ending) -> Iterator[Job]:
    """The images that a user means, each with its place; what is not there is told at once."""
    if Path(source.partition("?")[0] if addresses.is_remote(source) else source).suffix.lower() in LISTS:
        yield from _listed(source, out, ending)
        return
    origin = addresses.parse(source)
    some = False
    for group in _groups(source, origin, out):
        some = some or bool(group)
        found = InputFiles("images", group)
        for job in plan_jobs(found, None, Path(out.path), ending):
            yield origin.at(job.source), out.at(job.target) if job.target else None
    if not some:
        raise UserError(f"no images in {origin}; looked for {' '.join(SUFFIXES)}")


def _groups(source: str, origin: Address, out: Address) -> Iterator[list[tuple[Path, Path | None]]]:
    """Files that `plan_jobs` has to see together, each with the folder it was found under."""
    if origin.scheme:
        if has_magic(origin.path):
            yield [(one, None) for one in addresses.matching(origin, out) if _is_image(one)]
        elif addresses.is_folder(origin):
            root = Path(origin.path)
            for group in addresses.walk(origin, out):
                yield [(one, root) for one in group if _is_image(one)]
        elif addresses.written_at(origin) is not None:
            yield [(Path(origin.path), None)]
        else:
            raise UserError(f"nothing at {origin}; check the address")
        return
    folder = Path(origin.path)
    if not folder.is_dir():
        found = find_files([source], SUFFIXES, "images")
        if found.missing:
            raise InputError("; ".join(found.missing.values()))
        yield [(one.absolute(), None) for one, _ in found.files]
        return
    closed: dict[str, str] = {}
    inside = None if out.scheme else out.path
    for _, files in groupby(search_folder(folder, inside, closed), key=lambda one: one.parent):
        yield [(one, folder) for one in files if _is_image(one)]
    if closed:
        raise UserError("; ".join(closed.values()))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _listed(source: str, out: Address, ending: Ending) -> Iterator[Job]:
    common, among = _look_through(_entries(source), out)
    for one in _entries(source):
        path = Path(one.path)
        suffix = ending(path)
        target = out / f"{'/'.join(path.parts[common:])}.{suffix}" if suffix else None
        if str(target) in among:
            raise OutputError(f"the result of {one} would replace {target}, which {source} names; give another -o")
        yield one, target


def _entries(source: str) -> Iterator[Address]:
    """The addresses in a list, in its order, a part of it at a time."""
    here = addresses.parse(source)
    with addresses.open_file(here) as file:
        texts = _from_parquet(file, here) if here.path.lower().endswith(".parquet") else _from_text(file)
        for text in texts:
            one = addresses.parse(text)
            if ".." in Path(one.path).parts:
                raise InputError(f"{here} names {text}; give addresses without .., so that results have one place")
            yield addresses.reached_as(one, here)


def _from_text(file: addresses.Bytes) -> Iterator[str]:
    rest = b""
    while block := file.read(2**20):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line.decode(errors="surrogateescape").strip() for line in lines if line.strip())
    if rest.strip():
        yield rest.decode(errors="surrogateescape").strip()


def _from_parquet(file: addresses.Bytes, here: Address) -> Iterator[str]:
    try:
        table = pq.ParquetFile(file)
        columns = table.schema_arrow.names
        if "address" not in columns and not {"bucket", "key"} <= set(columns):
            raise UserError(f"{here} has the columns {', '.join(columns)}; name one `address`, or `bucket` and `key`")
        wanted = ["address"] if "address" in columns else ["bucket", "key"]
        for batch in table.iter_batches(columns=wanted):
            parts = zip(*(batch[name].to_pylist() for name in wanted), strict=True)
            yield from (one[0] if len(one) == 1 else f"s3://{one[0]}/{one[1]}" for one in parts)
    except pa.ArrowException as error:
        raise UserError(f"{here} is no Parquet file ({str(error)[:100]}); lists are {' or '.join(LISTS)}") from error


def _look_through(entries: Iterable[Address], out: Address) -> tuple[int, set[str]]:
    """How many parts of their paths all of them have in common, without the names themselves, and those that lie in
    `out` and might be some result's place: with two suffixes."""
    shared: tuple[str, ...] | None = None
    among: set[str] = set()
    inside = f"{out.path.rstrip('/')}/"
    for one in entries:
        parts = Path(one.path).parts[:-1]
        pairs = zip(parts if shared is None else shared, parts, strict=False)
        same = [a == b for a, b in pairs]
        shared = parts[: same.index(False)] if False in same else parts[: len(same)]
        if one.path.startswith(inside) and one.name.count(".") > 1:
            among.add(str(one))
    if shared is None:
        raise UserError("the list is empty; give one address per line")
    return len(shared), among


@dataclass(frozen=True)
class Plan:
    """The parts that were written, how many images they hold, and when, by the clock of their store."""

    parts: tuple[Address, ...]
    images: int
    written: float


def write_plan(jobs: Iterator[Job], folder: Address, workers: int) -> Plan:
    """Keep the jobs as chunks, a part at a time. Few images make small chunks, so that all workers have some; of many
    the later chunks are larger."""
    parts: list[Address] = []
    total = 0
    while some := list(islice(jobs, _PART * CHUNK)):
        if not parts and len(some) < _PART * CHUNK:
            chunk = max(1, min(CHUNK, len(some) // (4 * workers)))
        else:
            chunk = min(LARGEST, max(CHUNK, total // _BEFORE))
        rows = [some[start : start + chunk] for start in range(0, len(some), chunk)]
        table = pa.table(
            {
                "chunk": [f"{len(parts):06d}-{row:03d}" for row in range(len(rows))],
                "sources": [[os.fsencode(source.full) for source, _ in row] for row in rows],
                "targets": [[os.fsencode(target.full) if target else b"" for _, target in row] for row in rows],
            },
            schema=SCHEMA,
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        part = folder / f"{len(parts):06d}.parquet"
        addresses.write(part, sink.getvalue().to_pybytes())
        parts.append(part)
        total += len(some)
    return Plan(tuple(parts), total, (addresses.written_at(parts[-1]) or 0.0) if parts else 0.0)


def read_chunk(row: dict[str, Any]) -> list[Job]:
    """The jobs in a row of a part."""
    pairs = ((os.fsdecode(one), os.fsdecode(two)) for one, two in zip(row["sources"], row["targets"], strict=True))
    return [(addresses.parse(one), addresses.parse(two) if two else None) for one, two in pairs]


def read_part(part: str) -> pa.Table:
    """The chunks of a part."""
    return pq.read_table(pa.BufferReader(addresses.read(addresses.parse(part))))
