"""`pixeldiff robustness`: models on corrupted images, scored and laid out like the tables of the paper."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pixeldiff import weights
from pixeldiff.cli import _json
from pixeldiff.cli._network import open_network
from pixeldiff.cli._progress import show_bars
from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import check_overwrite
from pixeldiff.machine import cores
from pixeldiff.robustness import MODULES
from pixeldiff.tasks import TASKS, load

if TYPE_CHECKING:
    from pixeldiff.robustness import Condition, Scorer, Scores, Tick
    from pixeldiff.robustness.results import Comparison, Results


class _Robustness(click.Command):
    """`--task` of the table, and `--severity 1 5` for `--severity 1 --severity 5`: so for all that may be repeated."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        task = click.Option(["--task"], type=click.Choice(list(TASKS)), required=True, help="Which table.")
        return [ctx.meta.setdefault("pixeldiff.robustness", task), *super().get_params(ctx)]

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


@click.command(cls=_Robustness)
@click.option("--model", "models", multiple=True, required=True, help="A pretrained model or weights file; repeatable.")
@click.option(
    "--severity",
    "severities",
    multiple=True,
    type=click.IntRange(1, 5),
    default=(1, 5),
    help="1 to 5; repeatable. [default: 1 5]",
)
@click.option("--kind", "kinds", multiple=True, help="A corruption; repeatable, all of the paper's table by default.")
@click.option("--data", type=click.Path(path_type=Path), help="Data set, or what holds it. [default: PIXELDIFF_DATA]")
@click.option("--limit", type=click.IntRange(1), help="Only the first images, for a quick look.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the first image.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@click.option("--json", "json_target", metavar="FILE|-", help="Keep the scores, a stopped run goes on; - prints them.")
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
    threads: int | None,
    json_target: str | None,
    plot_path: Path | None,
    overwrite: bool,
) -> None:
    """Score networks on images damaged on the fly (or on CIFAR-100-C as published) and print the paper's table.

    Every further network is compared with the first.
    """
    try:
        from pixeldiff.robustness.results import Results, conditions
    except ImportError as error:
        raise MissingExtra("robustness", "this", error.name) from error
    _check_outputs(json_target, plot_path, overwrite)
    files = _files(models)
    scorer: Scorer = load(MODULES[task]).prepare(data, seed, limit, threads or cores())
    grid = conditions(kinds or scorer.kinds, severities, scorer.has_clean)
    shas = {name: weights.sha256(path) for name, path in files.items()}
    results = Results(task, scorer.source, scorer.images, seed, shas)
    if json_target is not None and json_target != _json.STDOUT:
        results = results.resume(Path(json_target))
    _fill(results, grid, files, scorer, threads or cores(), json_target)
    _report(results, grid, list(files), json_target, plot_path)


def _check_outputs(json_target: str | None, plot_path: Path | None, overwrite: bool) -> None:
    """Mistakes that would only show after the work; the JSON file may be there and is gone on with."""
    from pixeldiff.figures import check_plot

    _json.check(json_target, overwrite=True)
    if plot_path is not None:
        check_plot(plot_path)
        check_overwrite(plot_path, overwrite)


def _files(models: tuple[str, ...]) -> dict[str, Path]:
    """A short name for each model, and its file: "best", or "run-1/best" and "run-2/best"."""
    paths = [weights.resolve(given).resolve() for given in models]
    if len(set(paths)) < len(paths):
        raise UserError("the same model was given twice")
    for names in ([p.stem for p in paths], [f"{p.parent.name}/{p.stem}" for p in paths], [str(p) for p in paths]):
        if len(set(names)) == len(paths):
            break
    return dict(zip(names, paths, strict=True))


def _save(target: str | None, results: Results, comparisons: Sequence[Comparison] = ()) -> None:
    _json.write(target, "robustness", overwrite=True, **results.as_json(comparisons))


def _fill(
    results: Results,
    grid: Sequence[Condition],
    files: Mapping[str, Path],
    scorer: Scorer,
    threads: int,
    json_target: str | None,
) -> None:
    """Fill the table under a progress bar; what is scored is kept in the file."""
    from pixeldiff.robustness.results import fill

    names, kept = list(files), None if json_target == _json.STDOUT else json_target
    to_do = [condition for condition in grid if results.missing(names, condition)]
    # A model whose cells are all there is not even loaded.
    needed = {name for condition in to_do for name in results.missing(names, condition)}
    with ExitStack() as stack, show_bars() as bars:
        each = (results.task, max(1, threads // scorer.streams), scorer.streams)
        networks: dict[str, Any] = {
            name: stack.enter_context(open_network(files[name], *each)).network for name in names if name in needed
        }

        def score(condition: Condition, missing: Sequence[str], tick: Tick) -> dict[str, Scores]:
            return scorer(condition, {name: networks[name] for name in missing}, tick)

        bar = bars.add_task("", total=len(to_do) * scorer.images)
        fill(
            results,
            names,
            grid,
            score,
            save=lambda: _save(kept, results),
            started=lambda condition: bars.update(bar, description=f"{condition[0]} {condition[1] or ''}"),
            tick=lambda count: bars.advance(bar, count),
        )


def _report(
    results: Results, grid: Sequence[Condition], names: list[str], json_target: str | None, plot_path: Path | None
) -> None:
    from pixeldiff.robustness import report

    found = report.comparisons(results, names, grid)
    if json_target != _json.STDOUT:
        click.echo(report.table(results, names, grid, shutil.get_terminal_size().columns))
    if found and json_target != _json.STDOUT:
        click.echo("\n" + "\n".join(report.in_words(one, results.layout) for one in found))
    _save(json_target, results, found)
    if plot_path is not None:
        report.plot(results, names, grid, plot_path)
