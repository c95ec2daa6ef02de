"""Edge maps against human annotations: ODS, OIS, AP, R50 and crispness of a data set.

scores = evaluate_edges("edges/", "BSDS500/groundTruth/test")
scores.ods, scores.ois

score = BoundaryScore()
score.update(edge_map, masks)        # image by image
print(score.compute())               # ODS 0.8010, OIS 0.8190, ...
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff import image as images
from pixeldiff.data.edges import EdgeLabels, Mask, find_labels
from pixeldiff.data.lists import shortened
from pixeldiff.data.maps import ArrayMap, EdgeMap, find_maps
from pixeldiff.edgemap import to_mask
from pixeldiff.errors import InputError, UserError
from pixeldiff.evaluation.benchmark import Benchmark, Condition, ImageArray, Model, damage, evaluate
from pixeldiff.evaluation.cache import Cache
from pixeldiff.image import FloatMap
from pixeldiff.machine import cores
from pixeldiff.metrics.edges import (
    BSDS_MAX_DIST,
    Counts,
    Summary,
    crispness,
    evaluate_image,
    summarize,
    threshold_values,
)

PROTOCOL = 1  # part of every key in a cache; raise it when counts change
_COUNTS = ("matched_truth", "all_truth", "matched_prediction", "all_prediction")


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
            raise UserError(f"max_dist is a fraction of the image diagonal between 0 and 1, got {self.max_dist}")
        if self.nms_radius < 1:
            raise UserError(f"nms_radius is at least 1, got {self.nms_radius}")
        if self.thresholds < 1:
            raise UserError(f"thresholds is at least 1, got {self.thresholds}")


@dataclass(frozen=True)
class ImageScores:
    """One image: its counts, its crispness and the highest value of its map."""

    counts: Counts
    crispness: float
    peak: float


@dataclass(frozen=True, repr=False)
class EdgeScores:
    """The scores of a data set; `images` are in the order of their names."""

    settings: Settings
    images: dict[str, ImageScores]
    summary: Summary

    @property
    def ods(self) -> float:
        return self.summary.ods

    @property
    def ois(self) -> float:
        return self.summary.ois

    @property
    def ap(self) -> float:
        return self.summary.ap

    @property
    def r50(self) -> float:
        return self.summary.r50

    @property
    def crispness(self) -> float:
        """Mean crispness of the images."""
        return float(np.mean([image.crispness for image in self.images.values()]))

    def numbers(self) -> dict[str, float]:
        """Return the scores by name."""
        return {name: getattr(self, name) for name in ("ods", "ois", "ap", "r50", "crispness")}

    def __repr__(self) -> str:
        heads = {"ods": "ODS", "ois": "OIS", "ap": "AP", "r50": "R50", "crispness": "crispness"}
        scores = ", ".join(f"{heads[name]} {number:.4f}" for name, number in self.numbers().items())
        return f"{scores} ({len(self.images)} image{'s' * (len(self.images) != 1)})"

    def _repr_html_(self) -> str:
        """Show a table in notebooks."""
        numbers = self.numbers()
        heads = "".join(f"<th>{name}</th>" for name in numbers)
        cells = "".join(f"<td>{number:.4f}</td>" for number in numbers.values())
        return f"<table><tr>{heads}<th>images</th></tr><tr>{cells}<td>{len(self.images)}</td></tr></table>"


class _Labels(Protocol):
    @property
    def image(self) -> Path | None: ...

    def masks(self) -> list[Mask]: ...

    def digest(self) -> str: ...


@dataclass(frozen=True)
class _ArrayLabels:
    arrays: Sequence[NDArray[Any]]
    image: Path | None = None

    def masks(self) -> list[Mask]:
        return [to_mask(np.asarray(array), "targets") for array in self.arrays]

    def digest(self) -> str:
        return hashlib.sha256(b"".join(np.packbits(mask).tobytes() for mask in self.masks())).hexdigest()


@dataclass(frozen=True)
class EdgeSample:
    name: str
    masks: Sequence[Mask]
    image: ImageArray | None  # None where only maps are scored


class EdgeSource(Protocol):
    """What the benchmark calls a model: a folder of maps or a network."""

    def __call__(self, sample: EdgeSample) -> FloatMap: ...

    def digest(self, name: str, image: Path | None) -> str:
        """Return a text that changes with the map."""
        ...


@dataclass(frozen=True)
class MapSource:
    """Maps that were computed before, by the names of their images."""

    maps: Mapping[str, EdgeMap]

    def __call__(self, sample: EdgeSample) -> FloatMap:
        return self.maps[sample.name].load()

    def digest(self, name: str, image: Path | None) -> str:
        return self.maps[name].digest()


@dataclass(frozen=True)
class NetworkSource:
    """A network at full image size; `settings` identifies its weights and how it is used."""

    detect: Callable[[ImageArray], FloatMap]
    settings: str

    def __call__(self, sample: EdgeSample) -> FloatMap:
        assert sample.image is not None
        return self.detect(sample.image)

    def digest(self, name: str, image: Path | None) -> str:
        assert image is not None
        return f"{self.settings} {hashlib.sha256(image.read_bytes()).hexdigest()}"


class EdgeBenchmark(Benchmark[EdgeSample, FloatMap, ImageScores]):
    """Images with edge labels. The models are EdgeSources."""

    task = "edges"

    def __init__(
        self,
        labels: Mapping[str, _Labels],
        settings: Settings | None = None,
        *,
        source: str = "custom data",
        read_images: bool = True,
    ) -> None:
        self.labels = {name: labels[name] for name in sorted(labels)}
        self.names = list(self.labels)
        self.settings = settings or Settings()
        self.source = source
        self.read_images = read_images

    def __len__(self) -> int:
        return len(self.names)

    def load(self, index: int, condition: Condition, seed: int) -> EdgeSample:
        name = self.names[index]
        labels = self.labels[name]
        image = None
        if self.read_images:
            assert labels.image is not None
            image = damage(images.read(labels.image), condition, seed)
        return EdgeSample(name, labels.masks(), image)

    def predict(self, model: EdgeSource, batch: Sequence[EdgeSample]) -> list[FloatMap]:
        return [model(sample) for sample in batch]

    def score(self, prediction: FloatMap, sample: EdgeSample) -> ImageScores:
        try:
            return score_image(prediction, sample.masks, self.settings)
        except UserError as error:
            raise InputError(f"{sample.name}: {error}") from error

    def scores(self, counts: Sequence[ImageScores]) -> EdgeScores:
        """Return all that is known of a model, for reports and plots."""
        return _summarize(dict(zip(self.names, counts, strict=True)), self.settings)

    def summarize(self, counts: Sequence[ImageScores]) -> dict[str, Any]:
        return self.scores(counts).numbers()

    def key(self, index: int, model: Model) -> str | None:
        name = self.names[index]
        labels = self.labels[name]
        settings = json.dumps(asdict(self.settings), sort_keys=True)
        return "\n".join([str(PROTOCOL), model.run.digest(name, labels.image), labels.digest(), settings])

    def pack(self, counts: ImageScores) -> dict[str, Any]:
        arrays = {name: getattr(counts.counts, name).tolist() for name in _COUNTS}
        return {"crispness": counts.crispness, "peak": counts.peak, **arrays}

    def unpack(self, entry: Mapping[str, Any]) -> ImageScores | None:
        thresholds = self.settings.thresholds
        try:
            counts = [np.array(entry[name], dtype=np.int64) for name in _COUNTS]
            crisp, peak = float(entry["crispness"]), float(entry["peak"])
        except (ValueError, KeyError, TypeError, OverflowError):
            return None
        if any(count.shape != (thresholds,) for count in counts):
            return None
        return ImageScores(Counts(threshold_values(thresholds), *counts), crisp, peak)


def score_image(edge_map: FloatMap, masks: Sequence[NDArray[Any]], settings: Settings) -> ImageScores:
    """Score one map against the masks of its annotators."""
    counts = evaluate_image(
        edge_map,
        masks,
        settings.thresholds,
        settings.max_dist,
        settings.nms,
        nms_radius=settings.nms_radius,
        thin=settings.thin,
    )
    return ImageScores(counts, crispness(edge_map), float(edge_map.max()))


def _summarize(scored: dict[str, ImageScores], settings: Settings) -> EdgeScores:
    if not any(one.peak > 0 for one in scored.values()):
        raise InputError("every map is all zero; check what wrote the maps")
    return EdgeScores(settings, scored, summarize(one.counts for one in scored.values()))


def check_names(maps: Collection[str], labels: Collection[str]) -> None:
    """Raise an error unless each image has a map and a label."""
    missing, extra = sorted(set(labels) - set(maps)), sorted(set(maps) - set(labels))
    parts = [f"{len(missing)} images have labels but no map: {shortened(missing)}"] if missing else []
    parts += [f"{len(extra)} maps have no labels: {shortened(extra)}"] if extra else []
    if parts:
        raise InputError("; ".join(parts) + "; a map has the name of its image")


# --- the Python interface -------------------------------------------------------------------------------------------

Maps = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Any]
Targets = str | os.PathLike[str] | Mapping[str, Any] | Sequence[Any]


def evaluate_edges(
    predictions: Maps,
    targets: Targets,
    *,
    max_dist: float = BSDS_MAX_DIST,
    nms: bool = True,
    nms_radius: int = 1,
    thin: bool = True,
    thresholds: int = 99,
    allow_inverted: bool = False,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> EdgeScores:
    """Score edge maps against human annotations with the protocol of BSDS500.

    Args:
        predictions: a folder of .png, .npy or .mat files; a mapping from names to arrays in [0, 1]; or a sequence of
            arrays.
        targets: a folder, list or file of labels (see `pixeldiff.data.edges`); a mapping from names to lists of
            masks, one per annotator; or a sequence of such lists.
        max_dist: tolerance of the matching, as a fraction of the image diagonal (NYUD: 0.011).
        nms: apply non-maximum suppression to the maps, with radius `nms_radius`.
        thin: thin the thresholded maps to lines of one pixel.
        thresholds: number of thresholds, evenly spaced from 0 to 1.
        allow_inverted: score maps and labels that are more edge than background.
        threads: images to score at once; by default one per core.
        cache: a file that keeps the counts of each image, so that a repeated call scores only what is new.
        progress: called with the number of scored images and of all images.
    """
    settings = Settings(max_dist, nms, nms_radius, thin, thresholds)
    maps, labels = _as_maps(predictions, allow_inverted), _as_labels(targets, allow_inverted)
    check_names(maps, labels)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, len(labels))

    benchmark = EdgeBenchmark(labels, settings, read_images=False)
    counts = evaluate(
        benchmark,
        [Model("maps", MapSource(maps))],
        threads=threads or cores(),
        cache=None if cache is None else Cache(Path(cache)),
        advance=advance,
    )
    return benchmark.scores(counts["maps"])


class BoundaryScore:
    """Scores of edge maps that come one by one or in batches, with the interface of torchmetrics.

    The arguments are those of `evaluate_edges`.
    """

    def __init__(
        self,
        *,
        max_dist: float = BSDS_MAX_DIST,
        nms: bool = True,
        nms_radius: int = 1,
        thin: bool = True,
        thresholds: int = 99,
    ) -> None:
        self.settings = Settings(max_dist, nms, nms_radius, thin, thresholds)
        self.images: list[ImageScores] = []

    def update(self, pred: Any, targets: Any) -> None:
        """Add images.

        Args:
            pred: an edge map H x W in [0, 1], or a batch N x H x W or N x 1 x H x W; an array or a torch tensor.
            targets: the mask H x W of the image or one per annotator; for a batch, N of these.
        """
        maps = _as_array(pred)
        if maps.ndim == 4 and maps.shape[1] == 1:
            maps = maps[:, 0]
        if maps.ndim not in (2, 3):
            raise UserError(f"pred is H x W, N x H x W or N x 1 x H x W, got {maps.shape}")
        batch = [(maps, targets)] if maps.ndim == 2 else None
        if batch is None:
            if len(targets) != len(maps):
                raise UserError(f"pred holds {len(maps)} maps and targets {len(targets)}; expected one target per map")
            batch = list(zip(maps, targets, strict=True))
        for edge_map, target in batch:
            checked = ArrayMap(edge_map, allow_inverted=True).load()
            self.images.append(score_image(checked, _as_masks(target), self.settings))

    def compute(self) -> EdgeScores:
        """Return the scores of all images since the last reset."""
        if not self.images:
            raise UserError("nothing to score: call update first")
        return _summarize({f"{k:06}": one for k, one in enumerate(self.images)}, self.settings)

    def reset(self) -> None:
        """Forget all images."""
        self.images = []


def _as_array(value: Any) -> NDArray[Any]:
    """Convert an array or a torch tensor, without importing torch."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _as_masks(target: Any) -> list[Mask]:
    """Convert one mask H x W, or several."""
    several = [target] if getattr(target, "ndim", 3) == 2 else list(target)
    return [to_mask(_as_array(mask), "targets") for mask in several]


def _as_maps(maps: Maps, allow_inverted: bool) -> dict[str, EdgeMap]:
    if isinstance(maps, str | os.PathLike):
        return find_maps(Path(maps), allow_inverted)
    return {
        name: ArrayMap(_as_array(value), allow_inverted) if hasattr(value, "ndim") else value
        for name, value in _named(maps).items()
    }


def _as_labels(targets: Targets, allow_inverted: bool) -> dict[str, _Labels]:
    if isinstance(targets, str | os.PathLike):
        return {name: _allowing(one, allow_inverted) for name, one in find_labels(Path(targets)).items()}
    return {
        name: _allowing(value, allow_inverted) if isinstance(value, EdgeLabels) else _ArrayLabels(_as_masks(value))
        for name, value in _named(targets).items()
    }


def _allowing(labels: EdgeLabels, allow_inverted: bool) -> EdgeLabels:
    return EdgeLabels(labels.files, labels.image, labels.scale, allow_inverted or labels.allow_inverted)


def _named(values: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    if isinstance(values, Mapping):
        return dict(values)
    return {f"{k:06}": value for k, value in enumerate(values)}
