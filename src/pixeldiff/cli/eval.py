"""`pixeldiff eval`: a data set through a metric. The data set says which task it is of, and the task what can be asked.

Each task's options are the fields of the `Options` in its evaluation module, which the table of tasks names.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

import click
from click.core import ParameterSource

from pixeldiff.cli import _json
from pixeldiff.cli._network import one_of, open_network
from pixeldiff.cli._progress import show_bars
from pixeldiff.errors import UserError
from pixeldiff.evaluation import DATASETS, MODULES, Asked, Job, Network, Outcome
from pixeldiff.machine import cores
from pixeldiff.tasks import TASKS, Task, load

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_PATHS = {"file": _FILE, "folder": _FOLDER}


class _Eval(click.Command):
    """A command with the options of every task in the table, which its help shows task by task."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        own = ctx.meta.setdefault("pixeldiff.eval", [_dataset_option(), *_task_parameters().values()])
        return [*own, *super().get_params(ctx)]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        parameters = {param.name: param for param in self.get_params(ctx)}
        of_tasks = _task_parameters()
        _write_options(ctx, formatter, "Options", [p for name, p in parameters.items() if name not in of_tasks])
        for task in TASKS.values():
            title = f"{task.name.capitalize()} (--dataset {', '.join(DATASETS[task.name])})"
            says = inspect.cleandoc(load(MODULES[task.name]).Options.__doc__)
            _write_options(ctx, formatter, title, list(_parameters(task).values()), says)


def _write_options(
    ctx: click.Context,
    formatter: click.HelpFormatter,
    title: str,
    parameters: Sequence[click.Parameter],
    says: str = "",
) -> None:
    records = [param.get_help_record(ctx) for param in parameters if isinstance(param, click.Option)]
    with formatter.section(title):
        if says:
            formatter.write_text(says)
        if found := [record for record in records if record]:
            formatter.write_dl(found)


def _fields(task: Task) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(load(MODULES[task.name]).Options)


def _dataset_option() -> click.Option:
    names = [name for task in TASKS for name in DATASETS[task]]
    says = "Which task it is of, how its files lie, its tolerance."
    return click.Option(["--dataset"], type=click.Choice(names), default=names[0], show_default=True, help=says)


def _task_parameters() -> dict[str, click.Parameter]:
    """The fields of all tasks' Options; what two tasks ask in the same words is one option, of the same type."""
    found: dict[str, click.Parameter] = {}
    for task in TASKS.values():
        found = _parameters(task) | found
    return found


def _parameters(task: Task) -> dict[str, click.Parameter]:
    hints = typing.get_type_hints(load(MODULES[task.name]).Options)
    return {field.name: _parameter(field, hints[field.name]) for field in _fields(task)}


def _parameter(field: dataclasses.Field[Any], hint: Any) -> click.Parameter:
    """An option, or the command's arguments, from a field of Options."""
    about = field.metadata
    if about.get("argument"):
        return click.Argument([field.name], nargs=-1, type=click.Path(path_type=Path))
    word = _word(field)
    if hint is bool:
        return click.Option([word], is_flag=True, help=about["help"])
    one = next((part for part in typing.get_args(hint) if part is not NoneType), hint)
    count = len(typing.get_args(one)) or 1  # tuple[Path, Path] takes two
    one = typing.get_args(one)[0] if count > 1 else one
    kinds: dict[Any, Any] = {
        int: click.IntRange(about.get("least"), about.get("most")),
        Path: _PATHS.get(about.get("kind", ""), click.Path(path_type=Path)),
    }
    shown = field.default is not None
    return click.Option(
        [word], nargs=count, type=kinds.get(one, one), default=field.default, show_default=shown, help=about["help"]
    )


def _word(field: dataclasses.Field[Any]) -> str:
    """What a user types for a field."""
    return field.name.upper() if field.metadata.get("argument") else "--" + field.name.replace("_", "-")


@click.command(cls=_Eval)
@click.option("--data", type=_FOLDER, help="The data set's folder: here, or under PIXELDIFF_DATA.")
@click.option("--model", help="Score this pretrained model.")
@click.option("--weights", type=_FILE, help="Score the network in this weights file.")
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]")
@_json.option
@click.option("--overwrite", is_flag=True, help="Replace result files that exist.")
def eval(  # the command's name
    dataset: str,
    data: Path | None,
    model: str | None,
    weights: Path | None,
    threads: int | None,
    json_target: str | None,
    overwrite: bool,
    **given: Any,
) -> None:
    """Score a network on a data set, or folders of edge MAPS (.png, .npy or .mat) that were written before.

    With --json FILE, counts per image are kept beside it: a stopped run, or one repeated with --overwrite, does
    only what is new.
    """
    task = next(task for task in TASKS.values() if dataset in DATASETS[task.name])
    module = load(MODULES[task.name])
    options = module.Options(**_own(task, dataset, given))
    cache = _check_json(json_target, overwrite)
    threads = threads or cores()
    job: Job = module.prepare(options, Asked(dataset, data, threads, cache, overwrite))
    with _network(model, weights, task, max(1, threads // job.streams), job.streams) as network:
        outcome = _run(job, network)
    _json.write(json_target, "eval", outcome.results, overwrite=overwrite)
    if json_target != _json.STDOUT:
        click.echo("\n".join(outcome.table))


def _own(task: Task, dataset: str, given: dict[str, Any]) -> dict[str, Any]:
    """The values of the task's own options; a word about one of another task."""
    own, typed = {field.name for field in _fields(task)}, click.get_current_context().get_parameter_source
    for other in TASKS.values():
        for field in _fields(other):
            if field.name not in own and typed(field.name) is ParameterSource.COMMANDLINE:
                raise UserError(
                    f"{_word(field)} is of {other.name} ({', '.join(DATASETS[other.name])}), and {dataset} of "
                    f"{task.name}; leave it out, or name another --dataset"
                )
    return {name: given[name] for name in own}


def _check_json(target: str | None, overwrite: bool) -> Path | None:
    """The file beside the results that keeps what is scored already."""
    _json.check(target, overwrite)
    return None if target is None or target == _json.STDOUT else Path(f"{target}.cache")


@contextmanager
def _network(
    model: str | None, weights: Path | None, task: Task, threads: int, streams: int
) -> Iterator[Network | None]:
    """The network to score, if one is asked for."""
    if model is None and weights is None:
        yield None
        return
    with open_network(one_of(model, weights), task.name, threads, streams) as opened:
        yield Network(opened.name, opened.network, opened.sha256)


def _run(job: Job, network: Network | None) -> Outcome:
    with show_bars() as bars:

        def begin(name: str, total: int) -> Callable[[int], None]:
            bar = bars.add_task(name, total=total)
            return lambda count: bars.advance(bar, count)

        return job.run(network, begin)
