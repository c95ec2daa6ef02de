"""Commands over images: the options they share, and the way from inputs to results, messages and JSON.

    @run_options
    def command(inputs, ..., run):                     # run: RunOptions
        images = collect(inputs, run, formats=(".png",))
        return run_images("command", operation, images, run)

`run_images` runs the operation on this machine, or on a cluster with --cluster.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

import click

from pixeldiff.cli import _cluster, _json
from pixeldiff.cli import _report as report
from pixeldiff.cli._options import CLUSTER, INPUT_OUTPUT, option, threads_option
from pixeldiff.data.lists import read_list
from pixeldiff.errors import InputError, OutputError, UserError
from pixeldiff.files import (
    STREAM,
    InputFiles,
    Job,
    check_targets,
    destination,
    find_files,
    make_folder,
    plan_jobs,
)
from pixeldiff.image import SUFFIXES
from pixeldiff.jobs import video
from pixeldiff.jobs.local import run_local
from pixeldiff.jobs.operation import Operation, Result, name_parts
from pixeldiff.machine import cores


class _Shard(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """I/N."""

    name = "shard"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", str(value))
        index, count = (int(match[1]), int(match[2])) if match else (0, 0)
        return (index, count) if 1 <= index <= count else self.fail(f"{value} is not I/N, such as 1/8", param, ctx)


@dataclass(frozen=True)
class RunOptions:
    """The options that every command over images has."""

    output: str | None
    list_file: Path | None
    limit: int | None
    overwrite: bool
    json_target: str | None
    quiet: bool
    threads: int | None
    shard: tuple[int, int] | None
    cluster: _cluster.Cluster | None

    def select(self, jobs: Iterable[Any]) -> Iterable[Any]:
        """Return the jobs that --limit and --shard choose."""
        first, step = self.shard or (1, 1)
        return islice(islice(jobs, self.limit), first - 1, None, step)


_OPTIONS = (
    option(
        INPUT_OUTPUT,
        "-o",
        "--output",
        type=click.Path(),
        help="Folder for the results, or the file for one image. [default: beside the image]",
    ),
    option(
        INPUT_OUTPUT,
        "--list",
        "list_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Text file that names the images, one per line; with a folder as INPUT, paths below it.",
    ),
    option(INPUT_OUTPUT, "--limit", type=click.IntRange(1), metavar="N", help="Number of images, the first ones."),
    option(INPUT_OUTPUT, "--overwrite", is_flag=True, help="Replace existing results. [default: skip them]"),
    _json.option,
    option(INPUT_OUTPUT, "-q", "--quiet", is_flag=True, help="Print errors only."),
    threads_option,
    option(
        CLUSTER,
        "--shard",
        type=_Shard(),
        metavar="I/N",
        help="Every N-th image from the I-th on, for job arrays (SLURM, Kubernetes) without Ray.",
    ),
    _cluster.options,
)


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every command over images has; the command gets them as `run`."""
    names = [field.name for field in fields(RunOptions)]

    @functools.wraps(command)
    def wrapped(*arguments: Any, **more: Any) -> Any:
        run = RunOptions(**{name: more.pop(name) for name in names})
        _json.check(run.json_target, run.overwrite)
        if run.shard and run.cluster:
            raise UserError("--shard is for runs without --cluster; give one of them")
        return command(*arguments, run=run, **more)

    for decorate in reversed(_OPTIONS):
        wrapped = decorate(wrapped)
    return wrapped


@dataclass(frozen=True)
class Images:
    """The inputs of a command and where their results go."""

    inputs: tuple[str, ...]
    files: InputFiles
    target: Path | None = None  # the one file that -o names
    folder: Path | None = None

    @property
    def videos(self) -> bool:
        """Whether an input is a video."""
        return any(video.is_clip(path) for path in (*map(Path, self.inputs), *(path for path, _ in self.files.files)))


def collect(
    inputs: tuple[str, ...],
    run: RunOptions,
    *,
    formats: Collection[str] = (),
    videos: bool = False,
    streams: bool = False,
    skip: Callable[[Path], bool] = lambda path: False,
) -> Images:
    """Find the images that INPUTS and --list mean, and the place that -o means.

    `formats` are the suffixes that -o FILE may have; without any, -o is a folder. `streams` allows "-" for stdin and
    stdout. Files that `skip` names, earlier results, are inputs only if they are named alone.
    """
    if not inputs and not run.list_file:
        raise click.UsageError("Missing argument 'INPUTS...'.")
    if run.cluster:
        if inputs and run.list_file:
            raise UserError("--cluster takes INPUTS or --list; give one of them")
        return Images(inputs or (str(run.list_file),), InputFiles("images"))
    if not streams and ("-" in inputs or run.output == "-"):
        raise UserError("stdin and stdout (-) are not supported here; give the names of files")
    names = _listed_names(run.list_file) if run.list_file else []
    files = find_files(inputs or tuple(names), SUFFIXES, "images", run.output)
    if inputs and run.list_file:
        _choose_listed(files, names, run.list_file)
    alone = len(inputs) == 1 and Path(inputs[0]).is_file()
    before = len(files.files)
    files.files = [(path, root) for path, root in files.files if alone or not skip(path)]
    if not files.files:
        results = [f"only earlier results in {' '.join(inputs)}; name a file to use it as an input"] * (before > 0)
        raise InputError("; ".join([*files.missing.values(), *report.unused(files.others), *results]))
    sources = inputs or tuple(names)
    if not formats:
        target = None
    else:
        clips = {video.is_clip(Path(name)) for name in sources} if videos else {False}
        written = [suffix for clip in sorted(clips) for suffix in (video.WRITTEN if clip else formats)]
        target = destination(sources, run.output, written, (*SUFFIXES, *video.SUFFIXES))
    folder = Path(run.output) if run.output and target is None else None
    return Images(sources, files, target, folder)


def _listed_names(path: Path) -> list[str]:
    names = list(dict.fromkeys(line.strip() for line in read_list(path).splitlines() if line.strip()))
    if not names:
        raise InputError(f"{path} is empty; write one image per line")
    return names


def _choose_listed(files: InputFiles, names: Sequence[str], list_file: Path) -> None:
    """Keep the files that the list names, by path or by path below the input folder, with or without suffix."""
    by_name: dict[str, tuple[Path, Path | None]] = {}
    for path, root in files.files:
        for name in (path, path.relative_to(root)) if root else (path,):
            by_name |= {name.as_posix(): (path, root), name.with_suffix("").as_posix(): (path, root)}
    files.missing |= {name: f"no image {name}, which {list_file} names" for name in names if name not in by_name}
    files.files = list(dict.fromkeys(by_name[name] for name in names if name in by_name))


def run_images(
    command: str,
    operation: Operation[Any],
    images: Images,
    run: RunOptions,
    *,
    show: Callable[[Result], Iterable[str]] = lambda result: (),
    as_json: Callable[[Sequence[Result]], dict[str, Any]] | None = None,
    remarks: Callable[[Sequence[Result]], Iterable[str]] = lambda results: (),
    **about: Any,
) -> int:
    """Run the operation over the images, print what became of them, and return the exit code.

    `show` gives lines to print for a result, `remarks` notes for stderr, `as_json` what --json holds in place of a list
    of results, `about` more for the outer object of --json.
    """
    if run.cluster:
        if images.videos:
            raise UserError("--cluster is for images; run videos without it")
        return _cluster.run(command, operation, images.inputs, run)
    jobs = list(run.select(_plan(operation, images)))
    start = time.perf_counter()
    threads = run.threads or cores()
    progress = report.hide_progress if run.quiet else report.show_progress
    results = list(run_local(operation, jobs, threads=threads, overwrite=run.overwrite, progress=progress))
    results.sort(key=lambda result: str(result.job.source))
    seconds = time.perf_counter() - start
    if len(images.inputs) == len(jobs) == 1 and results[0].error and not Path(images.inputs[0]).is_dir():
        raise UserError(results[0].error)
    failed = report.failures(images.files, results)
    content = {**about, **report.totals(results, threads, seconds), "results": report.records(results)}
    content |= as_json(results) if as_json else {}
    _json.write(run.json_target, command, content.pop("results"), failed, run.overwrite, **content)
    if not run.quiet and run.json_target != _json.STDOUT and images.target != STREAM:
        report.say(line for result in results for line in show(result))
        report.say(report.sentences(results, jobs, seconds))
    report.remark(report.remarks(results, images.files, len(jobs)), run.quiet)
    report.remark(remarks(results), run.quiet)
    return report.exit_code(results, failed)


def _plan(operation: Operation[Any], images: Images) -> list[Job]:
    """Name every result; what would fail only after the work is an error now."""
    if images.target == STREAM and images.videos:
        raise OutputError("-o - is not supported for videos; give the name of a file or a folder")
    jobs = plan_jobs(images.files, images.target, images.folder, operation.ending)
    targets = [path for job in jobs if job.target for _, path in name_parts(job.target, operation.parts)]
    check_targets(targets, [job.source for job in jobs])
    if not targets and (images.target or images.folder):
        raise UserError("-o is not used here, for no files are written; give it with --cluster, or omit it")
    if place := images.folder or (images.target.parent if images.target and images.target != STREAM else None):
        make_folder(place)
    return jobs
