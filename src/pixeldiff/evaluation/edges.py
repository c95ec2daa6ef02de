"""A whole data set through the benchmark: pictures in parallel, results kept, the sum at the end.

    result = evaluate_edges("edges/", "BSDS500/groundTruth/test")
    result.summary.ods, result.summary.ois

Workers are threads: nearly all the time goes into kernels that release the GIL. Each picture's counts depend on that
picture alone and are summed in the order of the names, so that results do not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data.lists import shortened
from pixeldiff.data.maps import ArrayMap, EdgeMap, find_maps
from pixeldiff.data.truth import Mask, Truth, find_truth
from pixeldiff.errors import UserError
from pixeldiff.metrics.edges import (
    BSDS_MAX_DIST,
    Counts,
    Summary,
    crispness,
    evaluate_image,
    summarise,
    threshold_values,
)

PROTOCOL = 1  # part of every cache key; raise it when results change


@dataclass(frozen=True)
class Settings:
    """How maps are scored. CEval is nms=False, thin=False."""

    max_dist: float = BSDS_MAX_DIST
    nms: bool = True
    nms_radius: int = 1
    thin: bool = True
    thresholds: int = 99

    def __post_init__(self) -> None:
        if not 0 < self.max_dist < 1:
            raise UserError(f"max_dist is a part of the image diagonal, above 0 and below 1, got {self.max_dist}")
        if self.nms_radius < 1:
            raise UserError(f"the radius of non-maximum suppression is at least 1, got {self.nms_radius}")
        if self.thresholds < 1:
            raise UserError(f"at least one threshold is needed, got {self.thresholds}")


@dataclass(frozen=True)
class Scored:
    """One picture: its counts, its crispness and the highest value of its map."""

    counts: Counts
    crispness: float
    peak: float


@dataclass(frozen=True)
class Evaluation:
    """A data set scored; pictures in the order of their names."""

    settings: Settings
    pictures: dict[str, Scored]
    summary: Summary

    @property
    def crispness(self) -> float:
        """Average crispness over the pictures."""
        return float(np.mean([scored.crispness for scored in self.pictures.values()]))


class _Truth(Protocol):
    def load(self) -> list[Mask]: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class ArrayTruth:
    masks: Sequence[NDArray[Any]]

    def load(self) -> list[Mask]:
        return [np.asarray(mask, dtype=bool) for mask in self.masks]

    def digest(self) -> str:
        return hashlib.sha256(b"".join(np.packbits(mask).tobytes() for mask in self.load())).hexdigest()


def evaluate_edges(
    maps: str | os.PathLike[str] | Mapping[str, NDArray[Any] | EdgeMap],
    truth: str | os.PathLike[str] | Mapping[str, Sequence[NDArray[Any]] | Truth],
    settings: Settings | None = None,
    *,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Score edge maps against their truth.

    `maps` is a folder of .png, .npy or .mat files or a dict name -> array in [0, 1]. `truth` is anything that
    `find_truth` reads or a dict name -> list of masks, one per annotator. `cache` is a file that keeps each picture's
    counts: a repeated run does only what is new. `progress(done, all)` is called after each picture.
    """
    found_maps = _as_maps(maps)
    found_truth = _as_truth(truth)
    _refuse_unpaired(found_maps, found_truth)
    settings = settings or Settings()
    kept = _Cache(Path(cache) if cache is not None else None)
    jobs = {name: (found_maps[name], found_truth[name]) for name in sorted(found_maps)}
    pictures: dict[str, Scored] = {}

    def work(name: str) -> Scored:
        return _score(name, *jobs[name], settings, kept)

    pool = ThreadPoolExecutor(workers or os.cpu_count() or 1)
    try:
        futures = {pool.submit(work, name): name for name in jobs}
        for future in as_completed(futures):
            pictures[futures[future]] = future.result()
            if progress is not None:
                progress(len(pictures), len(jobs))
    finally:  # on an error or Ctrl-C nothing new is begun; what runs ends within a moment
        pool.shutdown(wait=True, cancel_futures=True)
    if not any(scored.peak > 0 for scored in pictures.values()):
        raise UserError("every map is all zero; check what wrote them")
    if not any(scored.counts.all_truth.any() for scored in pictures.values()):
        raise UserError("no truth marks a boundary; check what wrote the labels: black, bright where boundaries are")
    ordered = {name: pictures[name] for name in jobs}
    return Evaluation(settings, ordered, summarise(scored.counts for scored in ordered.values()))


def _score(name: str, edge_map: EdgeMap, truth: _Truth, settings: Settings, kept: _Cache) -> Scored:
    key = kept.key(edge_map, truth, settings)
    if (found := kept.get(key, settings)) is not None:
        return found
    loaded = edge_map.load()
    try:
        counts = evaluate_image(
            loaded,
            truth.load(),
            settings.thresholds,
            settings.max_dist,
            settings.nms,
            nms_radius=settings.nms_radius,
            thin=settings.thin,
        )
    except UserError as error:
        raise UserError(f"{name}: {error}") from error
    scored = Scored(counts, crispness(loaded), float(loaded.max()))
    kept.put(key, name, scored)
    return scored


def _as_maps(maps: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, EdgeMap]:
    if not isinstance(maps, Mapping):
        return find_maps(Path(maps))
    return {name: ArrayMap(one) if isinstance(one, np.ndarray) else one for name, one in maps.items()}


def _as_truth(truth: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, _Truth]:
    if not isinstance(truth, Mapping):
        return dict(find_truth(Path(truth)))
    return {name: one if isinstance(one, Truth) else ArrayTruth(one) for name, one in truth.items()}


def _refuse_unpaired(maps: Mapping[str, EdgeMap], truth: Mapping[str, _Truth]) -> None:
    missing, extra = sorted(set(truth) - set(maps)), sorted(set(maps) - set(truth))
    if not missing and not extra:
        return
    parts = []
    if missing:
        parts.append(f"{len(missing)} pictures have truth but no map: {shortened(missing)}")
    if extra:
        parts.append(f"{len(extra)} maps have no truth: {shortened(extra)}")
    raise UserError("; ".join(parts) + "; a map has the name of its picture")


class _Cache:
    """Counts of pictures already scored: one JSON line each, appended as they come; a line cut short is ignored."""

    FIELDS = ("matched_truth", "all_truth", "matched_prediction", "all_prediction")

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

    def key(self, edge_map: EdgeMap, truth: _Truth, settings: Settings) -> str:
        if self.path is None:
            return ""
        parts = [str(PROTOCOL), edge_map.digest(), truth.digest(), json.dumps(asdict(settings), sort_keys=True)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def get(self, key: str, settings: Settings) -> Scored | None:
        if (entry := self.lines.get(key)) is None:
            return None
        try:
            counts = [np.array(entry[name], dtype=np.int64) for name in self.FIELDS]
            crisp, peak = float(entry["crispness"]), float(entry["peak"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return None  # a damaged line
        if any(count.shape != (settings.thresholds,) for count in counts):
            return None
        return Scored(Counts(threshold_values(settings.thresholds), *counts), crisp, peak)

    def put(self, key: str, name: str, scored: Scored) -> None:
        if self.path is None:
            return
        counts = {field: getattr(scored.counts, field).tolist() for field in self.FIELDS}
        entry = {"key": key, "name": name, "crispness": scored.crispness, "peak": scored.peak, **counts}
        try:
            with self.path.open("a") as file:  # one write per line: lines of several threads do not mix
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path} ({error.strerror}); choose another place") from error
