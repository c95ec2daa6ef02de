"""Counts of images already scored: one JSON line each, appended as they come; a line cut short is ignored.

A line is found by a hash of all that its counts depend on: the map, the truth, the settings and PROTOCOL.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pixeldiff.errors import UserError
from pixeldiff.metrics.edges import Counts, threshold_values

PROTOCOL = 1  # part of every key; raise it when results change
_FIELDS = ("matched_truth", "all_truth", "matched_prediction", "all_prediction")


@dataclass(frozen=True)
class Scored:
    """One image: its counts, its crispness and the highest value of its map."""

    counts: Counts
    crispness: float
    peak: float


class Cache:
    """What a file keeps; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lines: dict[str, dict[str, Any]] = {}
        if path is None or not path.exists():
            return
        for line in path.read_text(errors="replace").splitlines():
            try:
                entry = json.loads(line)
                self.lines[entry["key"]] = entry
            except (ValueError, KeyError, TypeError, RecursionError):
                continue

    def key(self, edge_map: str, truth: str, settings: dict[str, Any]) -> str:
        parts = [str(PROTOCOL), edge_map, truth, json.dumps(settings, sort_keys=True)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def get(self, key: str, thresholds: int) -> Scored | None:
        if (entry := self.lines.get(key)) is None:
            return None
        try:
            counts = [np.array(entry[name], dtype=np.int64) for name in _FIELDS]
            crisp, peak = float(entry["crispness"]), float(entry["peak"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return None  # a damaged line
        if any(count.shape != (thresholds,) for count in counts):
            return None
        return Scored(Counts(threshold_values(thresholds), *counts), crisp, peak)

    def put(self, key: str, name: str, scored: Scored) -> None:
        if self.path is None:
            return
        counts = {field: getattr(scored.counts, field).tolist() for field in _FIELDS}
        entry = {"key": key, "name": name, "crispness": scored.crispness, "peak": scored.peak, **counts}
        try:
            with self.path.open("a") as file:  # one write per line: lines of several threads do not mix
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path} ({error.strerror}); choose another place") from error
