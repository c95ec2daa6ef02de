"""`pixeldiff eval edges|classes|faces|objects`: score models on data sets, clean or corrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from pixeldiff.cli._network import device_option
from pixeldiff.cli._scoring import (
    FILE,
    FOLDER,
    CommaSeparated,
    Shared,
    check_new_file,
    check_plots_table,
    find_networks,
    report,
    score,
    score_corruptions,
    shared_options,
)
from pixeldiff.data import cifar, voc
from pixeldiff.data import faces as face_data
from pixeldiff.data.edges import READERS, EdgeLabels, by_name, find_labels, pair_folders, read_dataset
from pixeldiff.data.lists import check_files_exist
from pixeldiff.data.maps import EdgeMap, average, find_maps
from pixeldiff.errors import UserError
from pixeldiff.evaluation import edge_report
from pixeldiff.evaluation.benchmark import Model
from pixeldiff.evaluation.classes import ClassBenchmark, FolderImages, PublishedCifarC, read_cifar_test
from pixeldiff.evaluation.edge_curves import plot_curves
from pixeldiff.evaluation.edges import EdgeBenchmark, MapSource, NetworkSource, Settings, check_names
from pixeldiff.evaluation.faces import FaceBenchmark, limit_pairs, plot_roc
from pixeldiff.evaluation.objects import ObjectBenchmark
from pixeldiff.inference.edges import Look


@click.group()
def eval() -> None:
    """Score models on data sets, clean or with --corruption."""


# --- edges ----------------------------------------------------------------------------------------------------------


@eval.command()
@click.argument("maps", nargs=-1, type=click.Path(path_type=Path))
@click.option("--dataset", type=click.Choice(list(READERS)), help="Data set: where labels lie, its tolerance.")
@click.option("--split", help="Split of the data set. [default: test]")
@click.option("--ground-truth", type=click.Path(path_type=Path), help="Folder, list, JSON list or file of labels.")
@click.option("--images", type=FOLDER, help="Folder of images; with --labels.")
@click.option("--labels", type=click.Path(path_type=Path), help="Folder of labels with the names of --images.")
@click.option("--ensemble", nargs=2, type=FOLDER, help="Score the mean of two folders of maps (NYUD RGB and HHA).")
@click.option("--max-dist", type=float, help="Tolerance, a fraction of the diagonal. [default: the data set's]")
@click.option("--nms-radius", type=click.IntRange(1, 100), default=1, show_default=True, help="Radius of NMS.")
@click.option("--no-nms", is_flag=True, help="Skip non-maximum suppression (NMS): the maps are thin.")
@click.option("--ceval", is_flag=True, help="Score the maps as they are: no NMS, no thinning.")
@click.option(
    "--thresholds",
    type=click.IntRange(1, 10_000),
    default=99,
    show_default=True,
    help="Number of thresholds, evenly spaced from 0 to 1.",
)
@click.option(
    "--scales",
    type=CommaSeparated(click.FLOAT),
    metavar="X,...",
    help="Average the maps of a model at these image sizes, e.g. 0.5,1,1.5.",
)
@click.option("--flip", is_flag=True, help="Average the maps of a model with those of horizontal flips.")
@click.option("--text-files", type=FOLDER, help="Write eval_bdry*.txt and <image>_ev1.txt into this folder.")
@click.option("--per-image", type=FILE, help="Write the best point of each image as CSV.")
@click.option("--allow-inverted", is_flag=True, help="Score maps and labels that look inverted as they are.")
@device_option
@shared_options
def edges(
    maps: tuple[Path, ...],
    dataset: str | None,
    split: str | None,
    ground_truth: Path | None,
    images: Path | None,
    labels: Path | None,
    ensemble: tuple[Path, Path] | None,
    max_dist: float | None,
    nms_radius: int,
    no_nms: bool,
    ceval: bool,
    thresholds: int,
    scales: tuple[float, ...] | None,
    flip: bool,
    text_files: Path | None,
    per_image: Path | None,
    allow_inverted: bool,
    device: str,
    shared: Shared,
) -> None:
    """Score edge MAPS (folders of .png, .npy or .mat) or models against human annotations: ODS, OIS, AP, R50.

    With --json FILE, FILE.cache keeps the counts of each image: a stopped run, or one repeated with --overwrite,
    scores only what is new.
    """
    published = READERS.get(dataset or "")
    settings = Settings(
        max_dist=max_dist if max_dist is not None else (published or READERS["bsds500"]).max_dist,
        nms=not (no_nms or ceval),
        nms_radius=nms_radius,
        thin=not ceval,
        thresholds=thresholds,
    )
    _check_edge_outputs(per_image, text_files, shared)
    found = _edge_labels(dataset, split, ground_truth, images, labels, shared)
    found = {name: replace(found[name], allow_inverted=allow_inverted) for name in sorted(found)[: shared.limit]}
    folders = _map_folders(maps, ensemble, allow_inverted)
    source = f"{dataset} {split or 'test'}" if dataset and not ground_truth and not images else "custom data"
    adapt = partial(_edge_source, scales=scales, flip=flip, device=device)
    with find_networks("edges", shared, required=False, adapt=adapt, device=device) as networks:
        if networks:
            _check_images(found)
        elif flip or scales:
            raise UserError("--flip and --scales are for models; maps are scored as they are")
        if not networks and not folders:
            raise UserError("nothing to score: give folders of maps, --ensemble A B, or --model NAME")
        benchmark = EdgeBenchmark(found, settings, source=source, read_images=bool(networks))
        if shared.corruption:
            if folders or flip or scales:
                raise UserError("--corruption is for models at one scale; leave out maps, --flip and --scales")
            score_corruptions(benchmark, networks, shared)
            return
        for folder in folders.values():
            check_names(folder if shared.limit is None else folder.keys() & found.keys(), found)
        if twice := folders.keys() & set(networks):
            raise UserError(f"a folder of maps and a model are both called {twice.pop()}; rename the folder")
        models = [Model(name, MapSource(folder)) for name, folder in folders.items()]
        models += [networks[name] for name in networks]
        counts = score(benchmark, models, shared)
    scores = {name: benchmark.scores(counts[name]) for name in counts}
    if per_image is not None:
        edge_report.write_csv(per_image, scores)
    if text_files is not None:
        edge_report.write_all_text_files(text_files, scores)
    if shared.plot is not None:
        plot_curves(shared.plot, scores, published.human if published else None)
    hashes = {model.name: model.sha256 for model in models if model.sha256}
    used = {key: value for key, value in (("flip", flip), ("scales", list(scales or ()))) if value}
    data = {} if ground_truth or images else {"split": split or "test"}
    results = [
        {**edge_report.to_dict(name, one, hashes.get(name)), **data, **(used if name in hashes else {})}
        for name, one in scores.items()
    ]
    report("edges", shared, results, edge_report.table(scores))


def _edge_source(model: Model, scales: tuple[float, ...] | None, flip: bool, device: str) -> Model:
    """Run a network at full image size."""
    detect = partial(model.run, look=Look(None, scales or (1.0,), flip=flip))
    return replace(model, run=NetworkSource(detect, f"{model.sha256} flip={flip} scales={scales} device={device}"))


def _check_edge_outputs(per_image: Path | None, text_files: Path | None, shared: Shared) -> None:
    """Raise an error for what could only fail, or replace something, after the work."""
    if per_image is not None:
        check_new_file(per_image, shared.overwrite)
        if per_image.suffix.lower() != ".csv":
            raise UserError(f"--per-image {per_image} holds CSV; give a name that ends in .csv")
    if text_files is not None and text_files.is_dir() and any(text_files.iterdir()) and not shared.overwrite:
        raise UserError(f"--text-files {text_files} has files already; give another folder or --overwrite")


def _edge_labels(
    dataset: str | None,
    split: str | None,
    ground_truth: Path | None,
    images: Path | None,
    labels: Path | None,
    shared: Shared,
) -> dict[str, EdgeLabels]:
    if (images is None) != (labels is None):
        raise UserError("--images and --labels belong together; give both folders")
    if ground_truth is not None and images is not None:
        raise UserError("--ground-truth and --images with --labels both name the labels; leave one out")
    if ground_truth is not None or images is not None:
        if split is not None or shared.data_dir is not None:
            raise UserError("--split and --data-dir are for --dataset; leave them out, or leave out the ground truth")
        if images is not None and labels is not None:
            return pair_folders(images, labels)
        assert ground_truth is not None
        return find_labels(ground_truth)
    if dataset is None:
        raise UserError(
            "missing ground truth: give --ground-truth, --images with --labels, or --dataset with --data-dir"
        )
    published = READERS[dataset]
    return by_name(read_dataset(dataset, shared.find_data(published.folder, published.origin), split or "test"))


def _check_images(labels: Mapping[str, EdgeLabels]) -> None:
    paths = [one.image for one in labels.values() if one.image is not None]
    if len(paths) < len(labels):
        raise UserError("this ground truth does not name its images; give --images with --labels, a list, or --dataset")
    check_files_exist(Path("the data set"), paths)


def _map_folders(
    maps: Sequence[Path], ensemble: tuple[Path, Path] | None, allow_inverted: bool
) -> dict[str, dict[str, EdgeMap]]:
    """Find the maps, by the name that tables and legends show."""
    folders: dict[str, dict[str, EdgeMap]] = {}
    named = [(folder.resolve().name, folder) for folder in maps]
    for name, folder in named:
        key = str(folder) if name in folders else name
        if key in folders:
            raise UserError(f"two folders of maps are called {key}; rename one")
        folders[key] = find_maps(folder, allow_inverted)
    if ensemble is not None:
        first, second = (find_maps(folder, allow_inverted) for folder in ensemble)
        folders["+".join(folder.resolve().name for folder in ensemble)] = average(first, second)
    return folders


# --- classes --------------------------------------------------------------------------------------------------------


@eval.command()
@click.option(
    "--dataset",
    type=click.Choice(["cifar100", "cifar100-c", "folder"]),
    default="cifar100",
    show_default=True,
    help="CIFAR-100 test, CIFAR-100-C as published, or images in FOLDER/val/<class> or FOLDER/<class>.",
)
@shared_options
def classes(dataset: str, shared: Shared) -> None:
    """Score classifiers: top-1 and top-5 accuracy in percent."""
    check_plots_table(shared)
    available: Sequence[str] = ()
    with find_networks("classes", shared, parallel=ClassBenchmark.parallel) as networks:
        if dataset == "folder":
            network = networks.first.run
            folder = shared.find_data(".", "a folder with a folder of images per class")
            benchmark = ClassBenchmark(FolderImages(folder, network.prepare, network.labels), shared.limit)
        elif dataset == "cifar100-c":
            if not shared.corruption:
                raise UserError("cifar100-c has corrupted images only; add --corruption all")
            published = PublishedCifarC(shared.find_data("CIFAR-100-C", cifar.ORIGIN))
            available = published.corruptions()
            benchmark = ClassBenchmark(published, shared.limit)
        else:
            benchmark = ClassBenchmark(read_cifar_test(shared.find_data(cifar.FOLDER, cifar.ORIGIN)), shared.limit)
        if shared.corruption:
            score_corruptions(benchmark, networks, shared, available)
            return
        models = [networks[name] for name in networks]
        if dataset == "folder":
            _check_prepared_alike(models)
        counts = score(benchmark, models, shared)
    results = [{"name": m.name, **benchmark.summarize(counts[m.name]), "sha256": m.sha256} for m in models]
    wide = max(5, *(len(model.name) for model in models))
    lines = [f"{'model':{wide}}   top-1   top-5  images"]
    lines += [f"{one['name']:{wide}}  {one['top1']:6.2f}  {one['top5']:6.2f}  {one['images']:6}" for one in results]
    report("classes", shared, results, lines)


def _check_prepared_alike(models: Sequence[Model]) -> None:
    """Images of a folder are prepared once, for all models."""
    if any(model.run.file.preprocessing != models[0].run.file.preprocessing for model in models):
        raise UserError("these models prepare images differently; score them one by one")


# --- faces ----------------------------------------------------------------------------------------------------------


@eval.command()
@click.option(
    "--dataset", type=click.Choice(list(face_data.READERS)), default="lfw", show_default=True, help="List of pairs."
)
@click.option("--lists", type=FOLDER, help="Folder of the lists of pairs. [default: --data-dir]")
@shared_options
def faces(dataset: str, lists: Path | None, shared: Shared) -> None:
    """Score face verification: accuracy, AUC, equal error rate and accept rates.

    Pairs are those of a published list, or lines "image image 1" (same person) and "... 0" of FOLDER/pairs.txt. --limit
    keeps N pairs of each fold and kind.
    """
    root = shared.find_data(dataset, face_data.ORIGINS[dataset])
    pairs = limit_pairs(face_data.read_pairs(dataset, root, lists), shared.limit)
    with find_networks("faces", shared) as networks:
        align = networks.first.run.find
        benchmark = FaceBenchmark(pairs, align, source=dataset, keep_faces=bool(shared.corruption))
        if shared.corruption:
            score_corruptions(benchmark, networks, shared)
            return
        models = [networks[name] for name in networks]
        counts = score(benchmark, models, shared)
    if shared.plot is not None:
        plot_roc(shared.plot, {name: (benchmark.cosines(own), pairs.same) for name, own in counts.items()})
    results = [
        {"name": m.name, "dataset": dataset, **benchmark.summarize(counts[m.name]), "sha256": m.sha256} for m in models
    ]
    report("faces", shared, results, _face_table(results))


def _face_table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    wide = max(5, *(len(result["name"]) for result in results))
    heads = "".join(f"{f'TAR@{rate}':>11}" for rate in results[0]["tar"])
    lines = [f"{'model':{wide}}  accuracy (%)       AUC  EER (%){heads}  pairs"]
    for result in results:
        error = "" if result["accuracy_error"] is None else f" +- {result['accuracy_error']:.2f}"
        rates = "".join(f"{percent:11.2f}" for percent in result["tar"].values())
        lines.append(
            f"{result['name']:{wide}}  {result['accuracy']:5.2f}{error:9}  {result['auc']:.4f}  {result['eer']:7.2f}"
            f"{rates}  {result['pairs']:5}"
        )
    if missing := results[0]["without_face"]:
        lines.append(f"no face was found in {missing} images; they were used whole")
    return lines


# --- objects --------------------------------------------------------------------------------------------------------


@eval.command()
@click.option(
    "--dataset",
    type=click.Choice(["voc", "coco", "yolo"]),
    default="voc",
    show_default=True,
    help="Layout of the data.",
)
@click.option(
    "--split",
    default="val",
    show_default=True,
    help="VOC: a list, also VOC2007/test; COCO: train, val or a .json file; YOLO: a folder.",
)
@shared_options
def objects(dataset: str, split: str, shared: Shared) -> None:
    """Score object detectors: VOC's mAP at IoU .5, and COCO's AP, AP50, AP75 and AP by size, in percent.

    Difficult objects and crowds count neither way.
    """
    check_plots_table(shared)
    root = shared.find_data("voc2012" if dataset == "voc" else dataset, voc.ORIGIN)
    with find_networks("objects", shared) as networks:
        found = voc.list_objects(root, split, networks.first.run.labels, dataset)
        benchmark = ObjectBenchmark(found, shared.limit, source=f"{dataset} {split}")
        if shared.corruption:
            score_corruptions(benchmark, networks, shared)
            return
        models = [networks[name] for name in networks]
        counts = score(benchmark, models, shared)
    results = [
        {"name": m.name, "split": split, **benchmark.summarize(counts[m.name]), "sha256": m.sha256} for m in models
    ]
    report("objects", shared, results, _object_table(results))


def _object_table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The scores, then AP by class; a dash where there are no objects."""
    keys = ("map50", "ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
    heads = ("mAP@.5", "AP", "AP50", "AP75", "small", "medium", "large")
    names = results[0]["per_class"]
    wide = max(5, *(len(result["name"]) for result in results), *map(len, names))
    lines = [f"{'model':{wide}}" + "".join(f"{head:>8}" for head in heads) + "  images"]
    for result in results:
        lines.append(
            f"{result['name']:{wide}}" + "".join(_number(result[key]) for key in keys) + f"{result['images']:8}"
        )
    for result in results:
        title = f"{result['name']}, by class" if len(results) > 1 else ""
        lines += ["", *([title] if title else [])]
        for name, values in result["per_class"].items():
            lines.append(f"{name:{wide}}" + _number(values["map50"]) + _number(values["ap"]))
    return lines


def _number(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:8.2f}"
