"""`pixeldiff robustness`: models on corrupted pictures, scored and laid out like the two tables of the paper."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff import image as pictures
from pixeldiff import weights
from pixeldiff.data import cifar
from pixeldiff.data.bsds import ORIGIN, find_split
from pixeldiff.data.lists import find_root, refuse_missing
from pixeldiff.data.truth import Truth
from pixeldiff.errors import UserError
from pixeldiff.files import refuse_existing
from pixeldiff.machine import cores

Array = np.ndarray[Any, Any]


class _ManyValues(click.Command):
    """`--severity 1 5` means `--severity 1 --severity 5`, for every option that may be repeated."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        repeatable = {name for option in self.params if getattr(option, "multiple", False) for name in option.opts}
        spread: list[str] = []
        current, fresh = "", False
        for word in args:
            if word.startswith("-"):
                current, fresh = word if word in repeatable else "", True
            elif current and not fresh:
                spread.append(current)
            else:
                fresh = False
            spread.append(word)
        return super().parse_args(ctx, spread)


@click.command(cls=_ManyValues)
@click.option("--task", type=click.Choice(["edges", "classes"]), required=True, help="Which table.")
@click.option("--model", "models", multiple=True, required=True, help="A shipped name or a weights file; repeatable.")
@click.option(
    "--severity", "severities", multiple=True, type=click.IntRange(1, 5), default=(1, 5), help="[default: 1 5]"
)
@click.option("--kinds", multiple=True, help="Corruptions; all of the paper's table by default.")
@click.option("--data", type=click.Path(path_type=Path), help="BSDS500; CIFAR-100 or CIFAR-100-C.  [PIXELDIFF_DATA]")
@click.option("--limit", type=click.IntRange(1), help="Only the first pictures, for a quick look.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first picture.")
@click.option("--workers", type=click.IntRange(1), default=cores, help="Pictures at a time. [default: all cores]")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Keeps the scores; a stopped run goes on.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path), help="A bar chart: .png, .svg or .pdf.")
@click.option("--overwrite", is_flag=True, help="Replace the --plot file if it exists.")
def robustness(
    task: str,
    models: tuple[str, ...],
    severities: tuple[int, ...],
    kinds: tuple[str, ...],
    data: Path | None,
    limit: int | None,
    seed: int,
    workers: int,
    json_path: Path | None,
    plot_path: Path | None,
    overwrite: bool,
) -> None:
    """Score models on pictures corrupted on the fly (or on CIFAR-100-C as published) and print the paper's table.

    Every further model is compared with the first.
    """
    try:
        from pixeldiff.figures import check_plot
        from pixeldiff.robustness import report
        from pixeldiff.robustness import results as tables
    except ImportError as error:
        raise UserError(f"this needs {error.name}; install it with: pip install 'pixeldiff[robustness]'") from error

    if plot_path is not None:
        check_plot(plot_path)
        refuse_existing(plot_path, overwrite)
    files = _files(models, task)
    names = list(files)
    samples: Any
    if task == "edges":
        source, samples = _bsds(_root(data, "BSDS500", ORIGIN), limit)
    else:
        source, samples = _cifar(_root(data, "CIFAR-100-C", cifar.ORIGIN), seed, limit)
    clean = getattr(samples, "has_clean", True)
    published = samples.kinds() if isinstance(samples, tables.PublishedCifarC) else ()
    grid = tables.conditions(kinds or published or tables.DEFAULT_KINDS[task], severities, clean)
    shas = {name: weights.sha256(path) for name, path in files.items()}
    results = tables.Results(task, source, len(samples), seed, shas)
    if json_path is not None:
        results = results.resume(json_path)
    # A model whose cells are all there is not even loaded.
    needed = {name: files[name] for name in names if any(results.missing([name], condition) for condition in grid)}
    with tempfile.TemporaryDirectory() as folder:
        if task == "edges":
            detectors = {name: _detector(path, Path(folder), workers) for name, path in needed.items()}
            scorer: tables.Scorer = tables.EdgeScorer(detectors, samples, seed, workers)
        else:
            scorer = tables.ClassifyScorer({name: _classifier(path) for name, path in needed.items()}, samples)
        _fill(results, grid, names, scorer, json_path)
    found = report.comparisons(results, names, grid)
    click.echo(report.table(results, names, grid, shutil.get_terminal_size().columns))
    if found:
        click.echo("\n" + "\n".join(report.in_words(one, task) for one in found))
    if json_path is not None:
        results.save(json_path, found)
    if plot_path is not None:
        report.plot(results, names, grid, plot_path)


def _fill(results: Any, grid: list[Any], names: list[str], scorer: Any, path: Path | None) -> None:
    """Fill the table under a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pixeldiff.robustness.results import fill

    to_do = sum(1 for condition in grid if results.missing(names, condition))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("", total=to_do * scorer.pictures)
        fill(
            results,
            names,
            grid,
            scorer,
            path,
            started=lambda condition: progress.update(bar, description=f"{condition[0]} {condition[1] or ''}"),
            tick=lambda count: progress.advance(bar, count),
        )


# --- models ------------------------------------------------------------------------------------------------------


def _files(models: tuple[str, ...], task: str) -> dict[str, Path]:
    """A short name for each model, and its file: "best", or "run-1/best" and "run-2/best"."""
    paths = [weights.resolve(given).resolve() for given in models]
    if len(set(paths)) < len(paths):
        raise UserError("the same model was given twice")
    for names in ([p.stem for p in paths], [f"{p.parent.name}/{p.stem}" for p in paths], [str(p) for p in paths]):
        if len(set(names)) == len(paths):
            break
    return dict(zip(names, paths, strict=True))


def _detector(path: Path, folder: Path, workers: int) -> Callable[[Array], Array]:
    """Edges by ONNX Runtime; what is not ONNX yet is exported first. Each of the workers runs on one thread."""
    from pixeldiff.runtime.edges import EdgeDetector

    if path.suffix in (".safetensors", ".pth", ".pt"):
        try:
            from pixeldiff.export.onnx import export_weights
        except ImportError as error:
            raise UserError(f"{path} needs {error.name}; install it with: pip install 'pixeldiff[train]'") from error
        export_weights(path, folder / f"{path.stem}.onnx")
        path = folder / f"{path.stem}.onnx"
    return EdgeDetector(path, threads=1 if workers > 1 else None, streams=workers, size="full")


def _classifier(path: Path) -> Callable[[Array], Array]:
    """Scores of the classes for uint8 pictures N x H x W x 3."""
    if path.suffix == ".pdn":
        from pixeldiff.runtime.classes import PackedClassifier

        return PackedClassifier(path).logits
    try:
        import torch

        from pixeldiff.models.saving import load_model
        from pixeldiff.training.tasks.pictures import normalise
    except ImportError as error:
        raise UserError(f"{path} needs {error.name}; install it with: pip install 'pixeldiff[train]'") from error
    model = load_model(path)

    def classify(images: Array) -> Array:
        with torch.inference_mode():
            scores: Array = model(normalise(torch.tensor(images).permute(0, 3, 1, 2))).numpy()
        return scores

    return classify


# --- data --------------------------------------------------------------------------------------------------------


def _root(data: Path | None, name: str, origin: str) -> Path:
    """The folder given, or the one of that name in it or in PIXELDIFF_DATA."""
    base = find_root(data or os.environ.get("PIXELDIFF_DATA") or ".", origin)
    return base / name if (base / name).is_dir() else base


def _bsds(root: Path, limit: int | None) -> tuple[str, list[Callable[[], tuple[Array, list[Array]]]]]:
    """The test pictures of a BSDS500 folder, each read with its annotators' maps when it is its turn."""
    pairs = [(one.picture, one) for one in find_split(root, "test").values() if one.picture is not None][:limit]
    refuse_missing(root, [picture for picture, _ in pairs])

    def reader(picture: Path, truth: Truth) -> Callable[[], tuple[Array, list[Array]]]:
        return lambda: (pictures.read(picture), list(truth.load()))

    return "BSDS500 test", [reader(*pair) for pair in pairs]


def _cifar(root: Path, seed: int, limit: int | None) -> tuple[str, Any]:
    """CIFAR-100-C as published if the folder holds it, else CIFAR-100 test damaged on the fly."""
    from pixeldiff.data.cifar import read_cifar100
    from pixeldiff.robustness.results import DamagedPictures, PublishedCifarC

    if (root / "labels.npy").exists():
        return "CIFAR-100-C as published", PublishedCifarC(root, limit)
    test = read_cifar100(root, "test")
    return "CIFAR-100 test, corrupted here", DamagedPictures(test.images[:limit], test.labels[:limit], seed)
