"""The manifest of a cluster run: one row per image, in Parquet files that are written while results come.

    address, size (bytes read), status (done, skipped, failed), result, record (JSON), seconds, error, worker

Rows of earlier runs stay until a run has a newer row of the same address. Each of those rows takes 8 bytes of memory.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pixeldiff import addresses
from pixeldiff.addresses import Address
from pixeldiff.errors import InputError

FOLDER = "_manifest"  # below the target; readers of data sets ignore names that begin with _
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("address", "status", "result", "record", "error", "worker")),
        ("size", pa.int64()),
        ("seconds", pa.float64()),
    ]
)
_COMMAND = b"pixeldiff.command"  # the command that made the rows
_ROWS, _SECONDS = 10_000, 30.0  # a part is written when it has so many rows or is so old
Digests = NDArray[np.uint64]


def digests(texts: list[str]) -> Digests:
    """Hash addresses to 8 bytes: one in a hundred thousand runs over ten million images has two alike."""
    hashes = (hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(hashes), np.uint64)


class Manifest:
    """The rows of a run of `command`, and those of earlier runs in the same folder."""

    def __init__(self, folder: Address, command: str, run: str) -> None:
        self.folder, self.command, self.run = folder, command, run
        self._rows: list[dict[str, Any]] = []
        self._written: list[Digests] = []
        self._since = time.monotonic()
        self.others: dict[str, int] = {}  # number of results by the other commands that made them
        settled, same = [digests([])], [digests([])]
        for name in self._earlier():
            table = _read(folder / name)
            made = digests(table.filter(pa.compute.is_null(table["error"]))["address"].to_pylist())
            by = (table.schema.metadata or {}).get(_COMMAND, b"").decode()
            settled.append(made)
            if by == command:
                same.append(made)
            else:
                self.others[by] = self.others.get(by, 0) + len(made)
        self.settled, self.same = np.concatenate(settled), np.concatenate(same)  # results of all, of this command

    def _earlier(self) -> list[str]:
        return [name for name in _names(self.folder) if self.run not in name]

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add rows; a skipped image that has a row already needs none."""
        known = np.isin(digests([row["address"] for row in rows]), self.settled)
        self._rows += [row for row, old in zip(rows, known, strict=True) if row["status"] != "skipped" or not old]
        if len(self._rows) >= _ROWS or time.monotonic() - self._since > _SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as one part."""
        if self._rows:
            table = pa.Table.from_pylist(self._rows, SCHEMA.with_metadata({_COMMAND: self.command.encode()}))
            _write(self.folder / f"part-{self.run}-{len(self._written):06d}.parquet", table)
            self._written.append(digests(table["address"].to_pylist()))
        self._rows, self._since = [], time.monotonic()

    def close(self) -> None:
        """Write the rest, and remove earlier rows of the same images."""
        self.flush()
        for name in self._earlier() if self._written else ():
            table = _read(self.folder / name)
            stale = np.isin(digests(table["address"].to_pylist()), np.concatenate(self._written))
            if stale.all():
                addresses.remove(self.folder / name)
            elif stale.any():
                _write(self.folder / name, table.filter(pa.array(~stale)))


def read_manifest(target: str) -> Any:
    """Read the manifest below a target as one Arrow table, sorted by address, with the latest row of each image."""
    folder = addresses.parse(target) / FOLDER
    if not (names := _names(folder)):
        raise InputError(f"no manifest in {folder}; pixeldiff detect SOURCE -o {target} --cluster writes one")
    table = pa.concat_tables([_read(folder / name).replace_schema_metadata(None) for name in names])
    latest = {address: row for row, address in enumerate(table["address"].to_pylist())}
    return table.take(pa.array([latest[address] for address in sorted(latest)], pa.int64()))


def _names(folder: Address) -> list[str]:
    return [path.name for path in addresses.entries(folder)[0] if path.suffix == ".parquet"]


def _read(part: Address) -> pa.Table:
    try:
        return pq.read_table(pa.BufferReader(addresses.read(part))).select(SCHEMA.names)
    except (pa.ArrowException, KeyError) as error:
        raise InputError(f"{part} is not part of a manifest; remove it") from error


def _write(part: Address, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    addresses.write(part, sink.getvalue().to_pybytes())
