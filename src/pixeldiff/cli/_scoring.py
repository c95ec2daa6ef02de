"""What the four commands `pixeldiff eval ...` share: options, models, the run, tables of corruptions, and results."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.cli._network import open_network
from pixeldiff.cli._progress import show_bars
from pixeldiff.data.lists import find_within
from pixeldiff.errors import InputError, MissingExtra, UserError
from pixeldiff.evaluation.benchmark import Benchmark, Model, evaluate
from pixeldiff.evaluation.cache import Cache
from pixeldiff.figures import check_plot
from pixeldiff.files import check_overwrite
from pixeldiff.inference.backends import DEFAULT_DEVICE
from pixeldiff.machine import cores

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class CommaSeparated(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Values between commas, as a tuple."""

    name = "list"

    def __init__(self, item: click.ParamType) -> None:  # type: ignore[type-arg]
        self.item = item

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(self.item.convert(part.strip(), param, ctx) for part in str(value).split(","))


@dataclass(frozen=True)
class Shared:
    """The options that all four commands have."""

    models: tuple[str, ...]
    data_dir: Path | None
    limit: int | None
    corruption: tuple[str, ...]
    severity: tuple[int, ...]
    seed: int
    threads: int
    json_target: str | None
    plot: Path | None
    overwrite: bool

    def check_outputs(self) -> None:
        """Raise an error for what could not be written after the work. A table's JSON file may exist: it resumes."""
        _json.check(self.json_target, self.overwrite or bool(self.corruption))
        if self.plot is not None:
            check_new_file(self.plot, self.overwrite)
            check_plot(self.plot)

    def find_data(self, folder: str, origin: str) -> Path:
        """Find the data set: in --data-dir, which may be the folder or hold it, or under PIXELDIFF_DATA."""
        if self.data_dir is None and not os.environ.get("PIXELDIFF_DATA"):
            raise InputError(f"missing data folder: give --data-dir FOLDER or set PIXELDIFF_DATA ({origin})")
        return find_within(self.data_dir, folder, origin)

    @property
    def prints(self) -> bool:
        return self.json_target != _json.STDOUT


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of `Shared`; the command receives them as `shared`."""

    @click.option("-m", "--model", "models", multiple=True, metavar="NAME|FILE", help="Model to score; repeatable.")
    @click.option("--data-dir", type=FOLDER, help="Folder of the data set. [default: under PIXELDIFF_DATA]")
    @click.option("--limit", type=click.IntRange(1), metavar="N", help="Score only the first N images.")
    @click.option(
        "--corruption",
        type=CommaSeparated(click.STRING),
        default=(),
        metavar="all|NAME,...",
        help="Corrupt the images; print a table, with models below each other.",
    )
    @click.option(
        "--severity",
        type=CommaSeparated(click.IntRange(1, 5)),
        default=(1, 5),
        metavar="N,...",
        help="Severities of corruptions, 1 to 5. [default: 1,5]",
    )
    @click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of corruptions.")
    @click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Number of cores. [default: all]")
    @_json.option
    @click.option("--plot", type=FILE, help="Plot of curves, or of the corruption table: .png, .svg or .pdf.")
    @click.option("--overwrite", is_flag=True, help="Replace result files that exist.")
    @functools.wraps(command)
    def wrapped(
        *arguments: Any,
        models: tuple[str, ...],
        data_dir: Path | None,
        limit: int | None,
        corruption: tuple[str, ...],
        severity: tuple[int, ...],
        seed: int,
        threads: int | None,
        json_target: str | None,
        plot: Path | None,
        overwrite: bool,
        **options: Any,
    ) -> Any:
        shared = Shared(
            models,
            data_dir,
            limit,
            corruption,
            severity,
            seed,
            threads or cores(),
            json_target,
            plot,
            overwrite,
        )
        shared.check_outputs()
        return command(*arguments, shared=shared, **options)

    return wrapped


def check_new_file(path: Path, overwrite: bool) -> None:
    """Raise an error if a result cannot be written, or would replace something."""
    if not path.parent.is_dir():
        raise UserError(f"no folder {path.parent} to write {path.name} into; create it first")
    check_overwrite(path, overwrite)


class Networks:
    """The models that --model names, opened when they are first needed."""

    def __init__(
        self,
        task: str,
        shared: Shared,
        parallel: bool,
        adapt: Callable[[Model], Model],
        device: str,
        stack: ExitStack,
    ) -> None:
        self.task, self.adapt, self.device, self.stack = task, adapt, device, stack
        self.files = _named_files(shared.models)
        streams = shared.threads if parallel else 1
        self.threads, self.streams = max(1, shared.threads // streams), streams
        self._opened: dict[str, Model] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, name: str) -> Model:
        if name not in self._opened:
            opened = self.stack.enter_context(
                open_network(self.files[name], self.task, self.threads, self.streams, self.device)
            )
            self._opened[name] = self.adapt(Model(name, opened.network, opened.sha256))
        return self._opened[name]

    @property
    def first(self) -> Model:
        return self[next(iter(self.files))]

    def hashes(self) -> dict[str, str]:
        return {name: weights.sha256(path) for name, path in self.files.items()}


@contextmanager
def find_networks(
    task: str,
    shared: Shared,
    *,
    parallel: bool = True,
    required: bool = True,
    adapt: Callable[[Model], Model] = lambda model: model,
    device: str = DEFAULT_DEVICE,
) -> Iterator[Networks]:
    """Find the models to score; `adapt` makes of an open model what the benchmark calls."""
    if required and not shared.models:
        raise UserError("missing model: give --model NAME or FILE")
    with ExitStack() as stack:
        yield Networks(task, shared, parallel, adapt, device, stack)


def _named_files(models: Sequence[str]) -> dict[str, Path]:
    """Give each model a short unique name: "best", or "run-1/best" and "run-2/best"."""
    paths = [weights.runtime_file(model).resolve() for model in models]
    if len(set(paths)) < len(paths):
        raise UserError("--model names the same model twice")
    for names in ([p.stem for p in paths], [f"{p.parent.name}/{p.stem}" for p in paths], [str(p) for p in paths]):
        if len(set(names)) == len(paths):
            break
    return dict(zip(names, paths, strict=True))


def score(benchmark: Benchmark[Any, Any, Any], models: Sequence[Model], shared: Shared) -> dict[str, list[Any]]:
    """Score models under a progress bar and return their counts. With --json FILE, FILE.cache keeps counts."""
    target = shared.json_target
    cache = Cache(Path(f"{target}.cache")) if target is not None and shared.prints else None
    with show_bars() as bars:
        bar = bars.add_task(", ".join(model.name for model in models), total=len(benchmark))
        return evaluate(
            benchmark,
            models,
            threads=shared.threads,
            cache=cache,
            advance=lambda count: bars.advance(bar, count),
        )


def report(command: str, shared: Shared, results: Sequence[Mapping[str, Any]], lines: Sequence[str]) -> None:
    """Write the results as JSON, or print them as a table."""
    _json.write(shared.json_target, f"eval {command}", results, overwrite=shared.overwrite)
    if shared.prints:
        click.echo("\n".join(lines))


def score_corruptions(
    benchmark: Benchmark[Any, Any, Any], networks: Networks, shared: Shared, available: Sequence[str] = ()
) -> None:
    """Fill the table of --corruption, print it and write it; further models are compared with the first."""
    if not networks:
        raise UserError("--corruption corrupts images, which needs a model: give --model NAME or FILE")
    try:
        from pixeldiff.evaluation import robustness
    except ImportError as error:
        raise MissingExtra("robustness", "--corruption", error.name) from error
    kinds = shared.corruption
    if "all" in kinds:
        kinds = tuple(available) or robustness.LAYOUTS[benchmark.task].kinds
    grid = robustness.conditions(kinds, shared.severity, benchmark.has_clean)
    results = robustness.Results(benchmark.task, benchmark.source, len(benchmark), shared.seed, networks.hashes())
    file = shared.json_target if shared.prints else None
    if file is not None:
        results = results.resume(Path(file))
    names = list(networks)

    def save(comparisons: Sequence[Any] = (), target: str | None = file) -> None:
        _json.write(target, f"eval {benchmark.task}", overwrite=True, **results.as_json(comparisons))

    missing = [condition for condition in grid if results.missing(names, condition)]
    needed = {name for condition in missing for name in results.missing(names, condition)}
    with show_bars() as bars:
        bar = bars.add_task("", total=len(missing) * len(benchmark))
        robustness.fill(
            results,
            benchmark,
            [networks[name] for name in names if name in needed],
            grid,
            threads=shared.threads,
            save=save,
            start=lambda condition: bars.update(bar, description=f"{condition[0]} {condition[1] or ''}"),
            advance=lambda count: bars.advance(bar, count),
        )
    comparisons = robustness.compare(results, names, grid)
    if shared.prints:
        click.echo(robustness.table(results, names, grid, shutil.get_terminal_size().columns))
        if comparisons:
            click.echo("\n" + "\n".join(one.describe(results.layout) for one in comparisons))
    save(comparisons, shared.json_target)
    if shared.plot is not None:
        robustness.plot(results, names, grid, shared.plot)


def check_plots_table(shared: Shared) -> None:
    """For tasks without curves: --plot draws the corruption table only."""
    if shared.plot is not None and not shared.corruption:
        raise UserError("--plot draws the corruption table; add --corruption all")
