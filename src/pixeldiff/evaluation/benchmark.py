"""A data set through models: the protocol of a benchmark, and the one loop for all tasks.

    counts = evaluate(benchmark, [Model("tiny", detector)], threads=2)
    benchmark.summarize(counts["tiny"])

Samples are the outer loop and models the inner one, so that an image is read, prepared and corrupted once for all
models. Images are corrupted after they are prepared. What a model scores on an image depends on that image alone, and
counts are summarized in the order of the images: the number of threads changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from pixeldiff.errors import UserError
from pixeldiff.evaluation.cache import Cache
from pixeldiff.parallel import ordered_map

Sample = TypeVar("Sample")
Prediction = TypeVar("Prediction")
Counts = TypeVar("Counts")
ImageArray = np.ndarray[Any, Any]
Condition = tuple[str, int]  # corruption and severity
Advance = Callable[[int], None]  # called with the number of further samples that are done

CLEAN: Condition = ("clean", 0)


@dataclass(frozen=True)
class Model:
    """A model to score: its name in tables, what runs it (of the task's class), and the hash of its file."""

    name: str
    run: Any
    sha256: str = ""


class Benchmark(ABC, Generic[Sample, Prediction, Counts]):
    """One data set of one task."""

    task: str
    source: str  # what the images are, for people
    batch_size = 1
    parallel = True  # several batches at once, each in one thread; or one batch after the other on all cores
    has_clean = True  # whether the data holds the uncorrupted images

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def load(self, index: int, condition: Condition, seed: int) -> Sample:
        """Read and prepare one sample, then `damage` its image. No network."""

    @abstractmethod
    def predict(self, model: Any, batch: Sequence[Sample]) -> Sequence[Prediction]: ...

    @abstractmethod
    def score(self, prediction: Prediction, sample: Sample) -> Counts: ...

    @abstractmethod
    def summarize(self, counts: Sequence[Counts]) -> dict[str, Any]:
        """Return the scores of all samples, whose counts are in index order."""

    def key(self, index: int, model: Model) -> str | None:
        """Identify all that the counts of a clean sample depend on; None if they are not worth keeping."""
        return None

    def pack(self, counts: Counts) -> dict[str, Any]:
        """Convert counts to JSON values for the cache."""
        raise NotImplementedError

    def unpack(self, entry: Mapping[str, Any]) -> Counts | None:
        """Convert a cached entry back; None if it is damaged."""
        raise NotImplementedError


def damage(image: ImageArray, condition: Condition, seed: int) -> ImageArray:
    """Corrupt a uint8 image; the condition CLEAN returns it as it is."""
    if condition == CLEAN:
        return image
    from pixeldiff.evaluation.corruptions import corrupt  # needs SciPy

    return corrupt(image, condition[1], condition[0], seed=seed)


def evaluate(
    benchmark: Benchmark[Sample, Prediction, Counts],
    models: Sequence[Model],
    condition: Condition = CLEAN,
    *,
    seed: int = 0,
    threads: int = 1,
    cache: Cache | None = None,
    advance: Advance = lambda samples: None,
) -> dict[str, list[Counts]]:
    """Score every sample with every model.

    `seed` plus the index of a sample seeds its corruption. `cache` keeps counts, so that a repeated or stopped run
    scores only what is new.

    Returns:
        The counts of each model by its name, in index order.
    """
    if not models:
        raise UserError("nothing to score: give at least one model")
    size = len(benchmark)
    batches = [range(start, min(start + benchmark.batch_size, size)) for start in range(0, size, benchmark.batch_size)]

    def score(indices: range) -> list[list[Counts]]:
        return _score_batch(benchmark, models, indices, condition, seed, cache)

    results: dict[str, list[Counts]] = {model.name: [] for model in models}
    workers = threads if benchmark.parallel else 1
    with ThreadPoolExecutor(workers) as pool:
        scored = ordered_map(pool, score, batches, 2 * workers)
        for indices, counts_of_models in zip(batches, scored, strict=True):
            for counts, new in zip(results.values(), counts_of_models, strict=True):
                counts.extend(new)
            advance(len(indices))
    return results


def _score_batch(
    benchmark: Benchmark[Sample, Prediction, Counts],
    models: Sequence[Model],
    indices: range,
    condition: Condition,
    seed: int,
    cache: Cache | None,
) -> list[list[Counts]]:
    """Return the counts of each model; a sample is loaded only if some model has not scored it before."""
    samples: dict[int, Sample] = {}
    results = []
    for model in models:
        keys = {index: _cache_key(benchmark, index, model, condition, seed) if cache else None for index in indices}
        scored: dict[int, Counts] = {}
        for index, key in keys.items():
            entry = cache.get(key) if cache and key else None
            counts = None if entry is None else benchmark.unpack(entry)
            if counts is not None:
                scored[index] = counts
        missing = [index for index in indices if index not in scored]
        for index in missing:
            if index not in samples:
                samples[index] = benchmark.load(index, condition, seed + index)
        predictions = benchmark.predict(model.run, [samples[index] for index in missing]) if missing else ()
        for index, prediction in zip(missing, predictions, strict=True):
            scored[index] = benchmark.score(prediction, samples[index])
            key = keys[index]
            if cache and key:
                cache.put(key, benchmark.pack(scored[index]))
        results.append([scored[index] for index in indices])
    return results


def _cache_key(
    benchmark: Benchmark[Any, Any, Any], index: int, model: Model, condition: Condition, seed: int
) -> str | None:
    key = benchmark.key(index, model)
    if key is None or condition == CLEAN:
        return key
    return f"{key} {condition[0]} {condition[1]} {seed + index}"
