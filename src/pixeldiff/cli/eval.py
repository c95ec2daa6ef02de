"""`pixeldiff eval`: score folders of edge maps, or a network, against human boundaries; or a classifier."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pixeldiff.cli._network import network_file
from pixeldiff.data import cifar
from pixeldiff.data import maps as edge_maps
from pixeldiff.data.bsds import ORIGIN, find_split
from pixeldiff.data.lists import find_classes, find_root, refuse_missing
from pixeldiff.data.maps import DetectedMap, EdgeMap, find_maps
from pixeldiff.data.truth import Truth, find_truth
from pixeldiff.errors import UserError
from pixeldiff.evaluation.edges import Evaluation, Settings, evaluate_edges
from pixeldiff.files import refuse_existing
from pixeldiff.machine import cores
from pixeldiff.metrics.edges import BSDS_MAX_DIST
from pixeldiff.weights import sha256

if TYPE_CHECKING:
    from pixeldiff.runtime.classes import PackedClassifier

Batches = Callable[[slice], NDArray[np.uint8]]


@dataclass(frozen=True)
class Dataset:
    max_dist: float = BSDS_MAX_DIST
    human: tuple[float, float] | None = None  # recall and precision of each annotator against the others


DATASETS = {
    "bsds500": Dataset(human=(0.7240, 0.9014)),
    "nyud": Dataset(max_dist=0.011),
    "multicue": Dataset(),
    "biped": Dataset(),
    "custom": Dataset(),
}

CLASSIFY = ("cifar100", "folder")

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("maps", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--truth", type=click.Path(path_type=Path), help="Folder of .mat or .png, PICTURES:LABELS, pair list or JSON list."
)
@click.option(
    "--dataset",
    type=click.Choice([*DATASETS, *CLASSIFY]),
    default="custom",
    help="Sets the tolerance; cifar100 and folder (one per class) score a classifier.",
)
@click.option("--data", type=_FOLDER, help="BSDS500, cifar-100-python, or a folder with one folder per class.")
@click.option("--average", nargs=2, type=_FOLDER, help="Score the mean of two folders of maps (NYUD RGB and HHA).")
@click.option("--model", help="Score a shipped network instead of maps.")
@click.option("--weights", type=_FILE, help="Score the network in this .onnx, .pdn, .safetensors or .pth file.")
@click.option("--max-dist", type=float, help="Tolerance as a part of the image diagonal; overrides --dataset.")
@click.option(
    "--nms-radius", type=click.IntRange(1, 100), default=1, show_default=True, help="Reach of non-maximum suppression."
)
@click.option("--no-nms", is_flag=True, help="The maps are thin already.")
@click.option("--ceval", is_flag=True, help="Score the maps as they are: no suppression, no thinning.")
@click.option(
    "--thresholds",
    type=click.IntRange(1, 10_000),
    default=99,
    show_default=True,
    help="How many, evenly spaced in 0 to 1.",
)
@click.option("--workers", type=click.IntRange(min=1), help="Pictures at a time; by default one per core.")
@click.option("--json", "json_file", type=_FILE, help="Write the scores; counts per picture are kept beside it.")
@click.option("--plot", type=_FILE, help="Draw precision-recall curves: .png, .svg or .pdf.")
@click.option("--text-files", type=_FOLDER, help="Write eval_bdry*.txt and <picture>_ev1.txt.")
@click.option("--per-image", type=_FILE, help="Write the best point of each picture as CSV.")
@click.option("--force", is_flag=True, help="Score maps and truth that look inverted as they are.")
@click.option("--overwrite", is_flag=True, help="Replace result files that exist.")
def eval(  # the verb's name
    maps: tuple[Path, ...],
    truth: Path | None,
    dataset: str,
    data: Path | None,
    average: tuple[Path, Path] | None,
    model: str | None,
    weights: Path | None,
    max_dist: float | None,
    nms_radius: int,
    no_nms: bool,
    ceval: bool,
    thresholds: int,
    workers: int | None,
    json_file: Path | None,
    plot: Path | None,
    text_files: Path | None,
    per_image: Path | None,
    force: bool,
    overwrite: bool,
) -> None:
    """Score folders of edge MAPS (.png, .npy or .mat) against human boundaries: ODS, OIS, AP, R50.

    Several folders are compared in one table and one plot. With --dataset cifar100 or folder, a packed network's top-1
    and top-5 accuracy on the test pictures of CIFAR-100, or on the pictures in FOLDER/val/<class> or FOLDER/<class>.
    """
    if dataset in CLASSIFY:
        if maps or average or truth or plot or text_files or per_image:
            raise UserError(
                f"{dataset} scores one network: give --model NAME or --weights FILE, --data FOLDER, --json FILE"
            )
        _check_outputs(None, json_file, None, None, overwrite)
        _score_classifier(model, weights, dataset, data, json_file)
        return
    if swallowed := [one for one in average or () if str(one).startswith("--")]:
        raise UserError(f"--average takes two folders of maps, but {swallowed[0]} follows the first")
    defaults = DATASETS[dataset]
    settings = Settings(
        max_dist=defaults.max_dist if max_dist is None else max_dist,
        nms=not (no_nms or ceval),
        nms_radius=nms_radius,
        thin=not ceval,
        thresholds=thresholds,
    )
    _check_outputs(plot, json_file, per_image, text_files, overwrite)
    truths = {name: replace(one, force=force) for name, one in _find_truths(truth, dataset, data).items()}
    workers = workers or cores()
    with _network(model, weights, workers) as detector:
        sources = _sources(maps, average, detector, truths, force)
        results = {name: _run(name, source, truths, settings, workers, json_file) for name, source in sources.items()}
    digests = {detector.name: detector.digest} if detector else {}
    _report(results, digests, defaults, json_file, plot, text_files, per_image)


def _check_outputs(
    plot: Path | None, json_file: Path | None, per_image: Path | None, text_files: Path | None, overwrite: bool
) -> None:
    """Mistakes that would only show after the work, or replace something."""
    for file, suffix in ((json_file, ".json"), (per_image, ".csv"), (plot, None)):
        if file is None:
            continue
        if not file.parent.is_dir():
            raise UserError(f"no folder {file.parent} to write {file.name} into; make it first")
        if suffix and file.suffix.lower() != suffix:
            raise UserError(f"{file} is to hold {suffix[1:].upper()}; give a name that ends in {suffix}")
        refuse_existing(file, overwrite)
    if text_files is not None and text_files.is_dir() and any(text_files.iterdir()) and not overwrite:
        raise UserError(f"{text_files} holds files already; give another folder or --overwrite")
    if plot is not None:
        from pixeldiff.figures import check_plot

        check_plot(plot)


def _find_truths(truth: Path | None, dataset: str, data: Path | None) -> dict[str, Truth]:
    if truth is not None:
        return find_truth(truth)
    if data is None:
        raise UserError("what is the truth? give --truth FOLDER_OR_LIST, or --dataset bsds500 --data FOLDER")
    if dataset != "bsds500":
        raise UserError(f"--data knows the layout of bsds500 only; for {dataset} name the truth: --truth LIST")
    return find_split(find_root(data, ORIGIN), "test")


@dataclass(frozen=True)
class _Detector:
    name: str
    detect: Any  # runtime.EdgeDetector, which is not imported to score maps
    digest: str

    def maps(self, truths: dict[str, Truth]) -> dict[str, EdgeMap]:
        pictures = {name: one.picture for name, one in truths.items() if one.picture is not None}
        if len(pictures) < len(truths):
            raise UserError(
                "this truth does not name its pictures; use --truth PICTURES:LABELS, a pair list, or "
                "--dataset bsds500 --data FOLDER"
            )
        refuse_missing(Path("the data set"), pictures.values())
        return {name: DetectedMap(self.detect, path, self.digest) for name, path in pictures.items()}


@contextmanager
def _network(model: str | None, weights: Path | None, workers: int) -> Iterator[_Detector | None]:
    """The network to score, if one is asked for."""
    if model is None and weights is None:
        yield None
        return
    with network_file(model, weights, ".onnx") as (path, graph):
        from pixeldiff import EdgeDetector

        detector = EdgeDetector(graph, threads=max(1, cores() // workers), streams=workers, size="full")
        yield _Detector(model or path.stem, detector, sha256(path))


def _score_classifier(
    model: str | None, weights: Path | None, dataset: str, data: Path | None, json_file: Path | None
) -> None:
    from pixeldiff.files import write_whole
    from pixeldiff.metrics.classes import score
    from pixeldiff.runtime.classes import PackedClassifier

    if data is None:
        raise UserError("where are the pictures? give --data FOLDER: cifar-100-python, or one with a folder per class")
    with network_file(model, weights, ".pdn") as (path, packed), _progress() as bar:
        name = model or path.stem
        classifier = PackedClassifier(packed)
        pictures, labels = _test_pictures(classifier, dataset, find_root(data, cifar.ORIGIN))
        task = bar.add_task(name, total=len(labels))
        accuracy = score(classifier.logits, pictures, labels, lambda count: bar.advance(task, count))
        result = {"name": name, **accuracy, "pictures": len(labels), "sha256": sha256(path)}
    if json_file is not None:
        write_whole(json_file, json.dumps(result, indent=1).encode())
    click.echo(f"{'network':{max(7, len(name))}}   top-1   top-5  pictures")
    click.echo(f"{name:{max(7, len(name))}}  {accuracy['top1']:6.2f}  {accuracy['top5']:6.2f}  {len(labels):8}")


def _test_pictures(classifier: PackedClassifier, dataset: str, data: Path) -> tuple[Batches, NDArray[np.int64]]:
    """The pictures that a slice names, prepared for the network; and all labels."""
    from pixeldiff.data.cifar import read_cifar100

    if dataset == "cifar100":
        test = read_cifar100(data, "test")
        return test.images.__getitem__, test.labels
    files, names = find_classes(data / "val" if (data / "val").is_dir() else data)
    if classifier.labels and tuple(classifier.labels) != names:
        raise UserError(
            f"{data} has {len(names)} classes, {names[0]} first; the network knows {len(classifier.labels)}, "
            f"{classifier.labels[0]} first; score it on the classes it was trained for"
        )
    labels = np.array([label for _, label in files])
    return lambda part: np.stack([classifier.prepare(path) for path, _ in files[part]]), labels


def _sources(
    maps: tuple[Path, ...],
    average: tuple[Path, Path] | None,
    detector: _Detector | None,
    truths: dict[str, Truth],
    force: bool,
) -> dict[str, dict[str, EdgeMap]]:
    """What to score, by the name that tables and legends show."""
    sources: dict[str, dict[str, EdgeMap]] = {}

    def add(name: str, found: dict[str, EdgeMap]) -> None:
        if name in sources:
            raise UserError(f"two sources are called {name}; rename a folder or score them one by one")
        sources[name] = found

    for folder in maps:
        name = folder.resolve().name
        add(str(folder) if name in sources else name, find_maps(folder, force))
    if average is not None:
        first, second = (find_maps(folder, force) for folder in average)
        names = [folder.resolve().name for folder in average]
        add("+".join(names), edge_maps.average(first, second))
    if detector is not None:
        add(detector.name, detector.maps(truths))
    if not sources:
        raise UserError("nothing to score: give folders of maps, --average A B, --model NAME or --weights FILE")
    return sources


def _run(
    name: str,
    source: dict[str, EdgeMap],
    truths: dict[str, Truth],
    settings: Settings,
    workers: int,
    json_file: Path | None,
) -> Evaluation:
    cache = None if json_file is None else json_file.with_name(json_file.name + ".cache")
    with _progress() as bar:
        task = bar.add_task(name, total=len(source))
        return evaluate_edges(
            source,
            truths,
            settings,
            workers=workers,
            cache=cache,
            progress=lambda done, _: bar.update(task, completed=done),
        )


def _progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _report(
    results: dict[str, Evaluation],
    digests: dict[str, str],
    dataset: Dataset,
    json_file: Path | None,
    plot: Path | None,
    text_files: Path | None,
    per_image: Path | None,
) -> None:
    from pixeldiff.evaluation import report

    if json_file is not None:
        report.write_json(json_file, [report.to_dict(name, one, digests.get(name)) for name, one in results.items()])
    if per_image is not None:
        report.write_csv(per_image, results)
    if text_files is not None:
        for name, one in results.items():
            # A name may be a path, where two folders are called alike; it shall not lead out of this one.
            own = text_files / re.sub(r"[^\w.+-]+", "_", name).strip("._")
            report.write_text_files(text_files if len(results) == 1 else own, one)
    if plot is not None:
        from pixeldiff.evaluation.curves import plot_curves

        plot_curves(plot, {name: one.summary for name, one in results.items()}, dataset.human)
    wide = max(4, *map(len, results))
    click.echo(f"{'maps':{wide}}     ODS     OIS      AP     R50  crispness  pictures")
    for name, one in results.items():
        s = one.summary
        scores = "  ".join(f"{number:.4f}" for number in (s.ods, s.ois, s.ap, s.r50))
        click.echo(f"{name:{wide}}  {scores}  {one.crispness:9.4f}  {len(one.pictures):8}")
    click.echo(_described(next(iter(results.values())).settings))


def _described(settings: Settings) -> str:
    thinning = "thinned" if settings.thin else "as they are"
    suppressed = f"suppressed with radius {settings.nms_radius}" if settings.nms else "not suppressed"
    tolerance = f"tolerance {settings.max_dist} of the diagonal"
    thresholds = f"{settings.thresholds} threshold{'s' * (settings.thresholds != 1)}"
    return f"Maps {suppressed}, {thinning}; {thresholds}; {tolerance}."
