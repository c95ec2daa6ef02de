"""A whole data set through the benchmark: images in parallel, results kept, the sum at the end.

    result = evaluate_edges("edges/", "BSDS500/groundTruth/test")
    result.summary.ods, result.summary.ois

Images are scored in threads: nearly all the time goes into kernels that release the GIL. Each image's counts depend
on that image alone and are summed in the order of the names, so that results do not depend on how many there are.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pixeldiff.data import bsds
from pixeldiff.data.lists import check_files_exist, find_root, shortened
from pixeldiff.data.maps import ArrayMap, DetectedMap, EdgeMap, average, find_maps
from pixeldiff.data.truth import GroundTruth, Mask, find_ground_truth
from pixeldiff.edgemap import PAPER_SCALES, to_mask
from pixeldiff.errors import UserError
from pixeldiff.evaluation import Asked, Each, InThreads, Network, Outcome, Progress, edge_report
from pixeldiff.evaluation.edge_cache import Cache, Scored
from pixeldiff.figures import check_plot
from pixeldiff.files import check_overwrite
from pixeldiff.inference.edges import Look
from pixeldiff.machine import cores
from pixeldiff.metrics.edges import BSDS_MAX_DIST, Summary, crispness, evaluate_image, summarize


@dataclass(frozen=True)
class Dataset:
    """What its papers score with: the tolerance, and where annotators stand against each other."""

    max_dist: float = BSDS_MAX_DIST  # part of the image diagonal
    human: tuple[float, float] | None = None  # recall and precision of each annotator against the others


SPLIT = "test"  # of BSDS500, unless another is asked for
DATASETS = {
    "bsds500": Dataset(human=(0.7240, 0.9014)),
    "nyud": Dataset(max_dist=0.011),
    "multicue": Dataset(),
    "biped": Dataset(),
    "custom": Dataset(),
}


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
class Evaluation:
    """A data set scored; images in the order of their names."""

    settings: Settings
    images: dict[str, Scored]
    summary: Summary

    @property
    def crispness(self) -> float:
        """Average crispness over the images."""
        return float(np.mean([scored.crispness for scored in self.images.values()]))


class _Truth(Protocol):
    def load(self) -> list[Mask]: ...
    def digest(self) -> str: ...


@dataclass(frozen=True)
class ArrayGroundTruth:
    masks: Sequence[NDArray[Any]]

    def load(self) -> list[Mask]:
        return [to_mask(np.asarray(mask), "the truth") for mask in self.masks]

    def digest(self) -> str:
        return hashlib.sha256(b"".join(np.packbits(mask).tobytes() for mask in self.load())).hexdigest()


def evaluate_edges(
    maps: str | os.PathLike[str] | Mapping[str, NDArray[Any] | EdgeMap],
    truth: str | os.PathLike[str] | Mapping[str, Sequence[NDArray[Any]] | GroundTruth],
    settings: Settings | None = None,
    *,
    threads: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    each: Each | None = None,
) -> Evaluation:
    """Score edge maps against their truth.

    `maps` is a folder of .png, .npy or .mat files or a dict name -> array in [0, 1]. `truth` is anything that
    `find_ground_truth` reads or a dict name -> list of masks, one per annotator. `cache` is a file that keeps each
    image's counts: a repeated run does only what is new. `progress(done, all)` is called after each image. `each`
    scores them elsewhere than in threads.
    """
    found_maps = _as_maps(maps)
    found_truth = _as_truth(truth)
    _check_unpaired(found_maps, found_truth)
    settings = settings or Settings()
    kept = Cache(Path(cache) if cache is not None else None)
    jobs = {name: (found_maps[name], found_truth[name]) for name in sorted(found_maps)}
    images: dict[str, Scored] = {}

    def work(name: str) -> tuple[str, Scored]:
        return _score(name, *jobs[name], settings, kept)

    for name, (key, scored) in (each or InThreads(threads or cores()))(work, list(jobs)):
        images[name] = scored
        if kept.path is not None and key not in kept.lines:
            kept.put(key, name, scored)
        if progress is not None:
            progress(len(images), len(jobs))
    if not any(scored.peak > 0 for scored in images.values()):
        raise UserError("every map is all zero; check what wrote them")
    ordered = {name: images[name] for name in jobs}
    return Evaluation(settings, ordered, summarize(scored.counts for scored in ordered.values()))


def _score(name: str, edge_map: EdgeMap, truth: _Truth, settings: Settings, kept: Cache) -> tuple[str, Scored]:
    """An image's counts, kept or new, and the key to keep them under."""
    key = "" if kept.path is None else kept.key(edge_map.digest(), truth.digest(), asdict(settings))
    if (found := kept.get(key, settings.thresholds)) is not None:
        return key, found
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
    return key, Scored(counts, crispness(loaded), float(loaded.max()))


def _as_maps(maps: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, EdgeMap]:
    if not isinstance(maps, Mapping):
        return find_maps(Path(maps))
    return {name: ArrayMap(one) if isinstance(one, np.ndarray) else one for name, one in maps.items()}


def _as_truth(truth: str | os.PathLike[str] | Mapping[str, Any]) -> dict[str, _Truth]:
    if not isinstance(truth, Mapping):
        return dict(find_ground_truth(Path(truth)))
    return {name: one if isinstance(one, GroundTruth) else ArrayGroundTruth(one) for name, one in truth.items()}


def _check_unpaired(maps: Mapping[str, EdgeMap], truth: Mapping[str, _Truth]) -> None:
    missing, extra = sorted(set(truth) - set(maps)), sorted(set(maps) - set(truth))
    if not missing and not extra:
        return
    parts = []
    if missing:
        parts.append(f"{len(missing)} images have truth but no map: {shortened(missing)}")
    if extra:
        parts.append(f"{len(extra)} maps have no truth: {shortened(extra)}")
    raise UserError("; ".join(parts) + "; a map has the name of its image")


# --- the command ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Edge maps, or a network's, against human boundaries: ODS, OIS, AP, R50; several in one table and one plot."""

    maps: tuple[Path, ...] = field(default=(), metadata={"argument": True})
    truth: Path | None = field(
        default=None, metadata={"help": "Folder of .mat or .png, IMAGES:LABELS, pair list or JSON list."}
    )
    split: str | None = field(default=None, metadata={"help": f"BSDS500: {', '.join(bsds.SPLITS)}. [default: {SPLIT}]"})
    average: tuple[Path, Path] | None = field(
        default=None,
        metadata={"kind": "folder", "help": "Score the mean of two folders of maps (NYUD RGB and HHA)."},
    )
    max_dist: float | None = field(
        default=None, metadata={"help": "Tolerance as a part of the image diagonal; overrides --dataset."}
    )
    nms_radius: int = field(default=1, metadata={"least": 1, "most": 100, "help": "Reach of non-maximum suppression."})
    no_nms: bool = field(default=False, metadata={"help": "The maps are thin already."})
    ceval: bool = field(default=False, metadata={"help": "Score the maps as they are: no suppression, no thinning."})
    thresholds: int = field(
        default=99, metadata={"least": 1, "most": 10_000, "help": "How many, evenly spaced in 0 to 1."}
    )
    flip: bool = field(default=False, metadata={"help": "Average a network's maps with those of horizontal flips."})
    multi_scale: bool = field(
        default=False, metadata={"help": "Average a network's maps at half, full and one and a half size."}
    )
    plot: Path | None = field(
        default=None, metadata={"kind": "file", "help": "Draw the curve (precision-recall, ROC): .png, .svg or .pdf."}
    )
    text_files: Path | None = field(
        default=None, metadata={"kind": "folder", "help": "Write eval_bdry*.txt and <image>_ev1.txt."}
    )
    per_image: Path | None = field(
        default=None, metadata={"kind": "file", "help": "Write the best point of each image as CSV."}
    )
    force: bool = field(default=False, metadata={"help": "Score maps and truth that look inverted as they are."})


def prepare(options: Options, asked: Asked) -> Job:
    if swallowed := [one for one in options.average or () if str(one).startswith("--")]:
        raise UserError(f"--average takes two folders of maps, but {swallowed[0]} follows the first")
    dataset = DATASETS[asked.dataset]
    settings = Settings(
        max_dist=dataset.max_dist if options.max_dist is None else options.max_dist,
        nms=not (options.no_nms or options.ceval),
        nms_radius=options.nms_radius,
        thin=not options.ceval,
        thresholds=options.thresholds,
    )
    _check_outputs(options, asked.overwrite)
    truths = {name: replace(one, force=options.force) for name, one in _find_truths(options, asked).items()}
    return Job(options, asked, settings, truths, asked.threads)


def _check_outputs(options: Options, overwrite: bool) -> None:
    """Mistakes that would only show after the work, or replace something."""
    for file in (options.per_image, options.plot):
        if file is not None:
            if not file.parent.is_dir():
                raise UserError(f"no folder {file.parent} to write {file.name} into; make it first")
            check_overwrite(file, overwrite)
    if options.per_image is not None and options.per_image.suffix.lower() != ".csv":
        raise UserError(f"{options.per_image} is to hold CSV; give a name that ends in .csv")
    folder = options.text_files
    if folder is not None and folder.is_dir() and any(folder.iterdir()) and not overwrite:
        raise UserError(f"{folder} holds files already; give another folder or --overwrite")
    if options.plot is not None:
        check_plot(options.plot)


def _find_truths(options: Options, asked: Asked) -> dict[str, GroundTruth]:
    if options.truth is not None:
        if options.split is not None:
            raise UserError("--split is a part of BSDS500, and --truth names the truth itself; leave one of them out")
        return find_ground_truth(options.truth)
    if asked.data is None:
        raise UserError("what is the truth? give --truth FOLDER_OR_LIST, or --dataset bsds500 --data FOLDER")
    if asked.dataset != "bsds500":
        raise UserError(f"--data knows the layout of bsds500 only; for {asked.dataset} name the truth: --truth LIST")
    return bsds.find_split(find_root(asked.data, bsds.ORIGIN), options.split or SPLIT)


@dataclass(frozen=True)
class Job:
    """Folders of maps, or a network's, to be scored against the truth that was found."""

    options: Options
    asked: Asked
    settings: Settings
    truths: dict[str, GroundTruth]
    streams: int  # an image per core

    def run(self, network: Network | None, progress: Progress) -> Outcome:
        results = {}
        for name, source in self._sources(network).items():
            advance = progress(name, len(source))
            results[name] = evaluate_edges(
                source,
                self.truths,
                self.settings,
                threads=self.asked.threads,
                cache=self.asked.cache,
                progress=lambda done, total, advance=advance: advance(1),  # type: ignore[misc]
                each=self.asked.each,
            )
        self._write(results)
        digests = {network.name: network.sha256} if network else {}
        strong = {name: True for name in ("flip", "multi_scale") if getattr(self.options, name)}
        split = {} if self.options.truth else {"split": self.options.split or SPLIT}
        found = [
            {**edge_report.to_dict(name, one, digests.get(name)), **split, **(strong if name in digests else {})}
            for name, one in results.items()
        ]
        return Outcome(found, edge_report.table(results))

    def _sources(self, network: Network | None) -> dict[str, dict[str, EdgeMap]]:
        """What to score, by the name that tables and legends show."""
        sources: dict[str, dict[str, EdgeMap]] = {}

        def add(name: str, found: dict[str, EdgeMap]) -> None:
            if name in sources:
                raise UserError(f"two sources are called {name}; rename a folder or score them one by one")
            sources[name] = found

        force = self.options.force
        for folder in self.options.maps:
            name = folder.resolve().name
            add(str(folder) if name in sources else name, find_maps(folder, force))
        if self.options.average is not None:
            first, second = (find_maps(folder, force) for folder in self.options.average)
            add("+".join(folder.resolve().name for folder in self.options.average), average(first, second))
        if network is not None:
            add(network.name, self._detected(network))
        elif self.options.flip or self.options.multi_scale:
            raise UserError("--flip and --multi-scale are for a network; maps are scored as they are")
        if not sources:
            raise UserError("nothing to score: give folders of maps, --average A B, --model NAME or --weights FILE")
        return sources

    def _detected(self, network: Network) -> dict[str, EdgeMap]:
        """What a network sees, at full size."""
        images = {name: one.image for name, one in self.truths.items() if one.image is not None}
        if len(images) < len(self.truths):
            raise UserError(
                "this truth does not name its images; use --truth IMAGES:LABELS, a pair list, or "
                "--dataset bsds500 --data FOLDER"
            )
        check_files_exist(Path("the data set"), images.values())
        options = self.options
        detect = partial(
            network.run, look=Look(None, PAPER_SCALES if options.multi_scale else (1.0,), flip=options.flip)
        )
        how = network.sha256 + " flip" * options.flip + " multi-scale" * options.multi_scale
        return {name: DetectedMap(detect, path, how) for name, path in images.items()}

    def _write(self, results: dict[str, Evaluation]) -> None:
        options = self.options
        if options.per_image is not None:
            edge_report.write_csv(options.per_image, results)
        if options.text_files is not None:
            edge_report.write_all_text_files(options.text_files, results)
        if options.plot is not None:
            from pixeldiff.evaluation.edge_curves import plot_curves

            summaries = {name: one.summary for name, one in results.items()}
            plot_curves(options.plot, summaries, DATASETS[self.asked.dataset].human)
