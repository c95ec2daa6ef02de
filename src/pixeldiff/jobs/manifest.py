"""The manifest of a cluster run: each image's fate, one row, in Parquet parts that are written as fates come.

    address, size (bytes read), status (done, skipped, failed), result, seconds, error, worker

Rows of earlier runs stay until a later run has a newer row of the same address. Of those rows, 8 bytes are held each.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pixeldiff import addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import UserError

FOLDER = "_manifest"  # below the target; readers of data sets pass over names that begin so
SCHEMA = pa.schema(
    [
        ("address", pa.string()),
        ("size", pa.int64()),
        ("status", pa.string()),
        ("result", pa.string()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("worker", pa.string()),
    ]
)
_NOTE = b"pixeldiff.command"  # what made the rows
_ROWS, _SECONDS = 10_000, 30.0  # a part is written when it has so many rows, or is so old
Digests = NDArray[np.uint64]


def digests(texts: list[str]) -> Digests:
    """8 bytes that stand for an address: one in a hundred thousand runs over ten million images has two alike."""
    joined = b"".join(hashlib.blake2b(one.encode(errors="surrogateescape"), digest_size=8).digest() for one in texts)
    return np.frombuffer(joined, np.uint64)


class Manifest:
    """The parts in a folder; `note` is the command whose rows are added."""

    def __init__(self, folder: Address, note: str, run: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self.note, self.run, self._clock = folder, note, run, clock
        self._waiting: list[pa.Table] = []
        self._written: list[Digests] = []
        self._parts, self._since = 0, clock()
        self.others: dict[str, int] = {}  # rows that another command has made
        done = [self._look(name) for name in self._earlier()]
        self.settled = np.sort(np.concatenate([np.zeros(0, np.uint64), *(own for own, _ in done)]))
        same = [own for own, note in done if note == self.note]
        self.same = np.sort(np.concatenate([np.zeros(0, np.uint64), *same]))  # those of the same command

    def _earlier(self) -> list[str]:
        return [name for name in addresses.names(self.folder) if name.endswith(".parquet") and self.run not in name]

    def _look(self, name: str) -> tuple[Digests, str]:
        """The images of a part that have a result, and what made it."""
        table = self._read(name)
        note = ((table.schema.metadata or {}).get(_NOTE) or b"").decode()
        fine = table.filter(pa.compute.is_null(table["error"]))
        if note != self.note:
            self.others[note] = self.others.get(note, 0) + len(fine)
        return digests(fine["address"].to_pylist()), note

    def _read(self, name: str) -> pa.Table:
        try:
            table = pq.read_table(pa.BufferReader(addresses.read(self.folder / name)))
            return table.select(SCHEMA.names)
        except (pa.ArrowException, KeyError) as error:
            raise UserError(f"{self.folder / name} is no part of a manifest; take it away") from error

    def add(self, fates: pa.Table) -> None:
        """Rows to be written; what was kept and has its row already needs none."""
        if len(self.settled):
            kept = np.array([status == "skipped" for status in fates["status"].to_pylist()], bool)
            known = np.isin(digests(fates["address"].to_pylist()), self.settled)
            fates = fates.filter(pa.array(~(kept & known)))
        self._waiting.append(fates)
        if sum(map(len, self._waiting)) >= _ROWS or self._clock() - self._since > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what waits as one part."""
        rows = sum(map(len, self._waiting))
        if rows:
            table = pa.concat_tables(self._waiting)
            self._written.append(digests(table["address"].to_pylist()))
            self._write(f"part-{self.run}-{self._parts:06d}.parquet", table, self.note)
            self._parts += 1
        self._waiting, self._since = [], self._clock()

    def _write(self, name: str, table: pa.Table, note: str) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata({_NOTE: note.encode()}), sink)
        addresses.write(self.folder / name, sink.getvalue().to_pybytes())

    def close(self) -> None:
        """Write the rest, and take earlier rows of the same images out."""
        self.flush()
        if not self._written:
            return
        newer = np.sort(np.concatenate(self._written))
        for name in self._earlier():
            table = self._read(name)
            stale = np.isin(digests(table["address"].to_pylist()), newer)
            if not stale.any():
                continue
            if not stale.all():
                note = (table.schema.metadata or {}).get(_NOTE) or b""
                self._write(name, table.filter(pa.array(~stale)), note.decode())
            else:
                addresses.remove(self.folder / name)


def read_manifest(target: str) -> Any:
    """The manifest below a target as one Arrow table, sorted by address; a run's last word on each."""
    folder = addresses.parse(target) / FOLDER
    names = [name for name in addresses.names(folder) if name.endswith(".parquet")]
    if not names:
        raise UserError(f"no manifest in {folder}; pixeldiff detect SOURCE -o {target} --cluster writes one")
    parts = [pq.read_table(pa.BufferReader(addresses.read(folder / name))).select(SCHEMA.names) for name in names]
    table = pa.concat_tables([one.replace_schema_metadata(None) for one in parts])
    last = {address: row for row, address in enumerate(table["address"].to_pylist())}
    return table.take(pa.array([last[address] for address in sorted(last)], pa.int64()))
