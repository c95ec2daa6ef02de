"""Counts of samples that are scored already: one JSON line each, appended as they come; incomplete lines are ignored.

A line is found by a key that names everything its counts depend on (see `Benchmark.key`).
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pixeldiff.errors import OutputError


class Cache:
    """The lines of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[str, dict[str, Any]] = {}
        if not path.exists():
            return
        for line in path.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                self.entries[entry["key"]] = entry
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def get(self, key: str) -> dict[str, Any] | None:
        return self.entries.get(_digest(key))

    def put(self, key: str, entry: dict[str, Any]) -> None:
        line = json.dumps({"key": _digest(key), **entry}) + "\n"
        try:
            with self.path.open("a") as file:  # one write per line, so lines of several threads do not mix
                file.write(line)
        except OSError as error:
            raise OutputError(f"cannot write {self.path} ({error.strerror}); choose another place") from error


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
