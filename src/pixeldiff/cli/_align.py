"""`pixeldiff faces align`: the faces of a folder's images, each brought to one place in 112 x 96 pixels."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import click

from pixeldiff import image
from pixeldiff.cli import _cluster, _json
from pixeldiff.data.landmarks import Points, name_of, read_landmarks
from pixeldiff.data.lists import LIST_BYTES
from pixeldiff.errors import UserError
from pixeldiff.files import Found, Job, atomic_path, atomic_write, find_files, make_folder, plan_jobs
from pixeldiff.inference.alignment import FACES, FaceAligner, encode, make_aligned
from pixeldiff.jobs.local import Outcome, work_through
from pixeldiff.machine import cores

face_option = click.option(
    "--face",
    type=click.Choice(FACES),
    help="Which of several faces. [default: one that is large and near the middle]",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="Cores to use. [default: all]"
)


@click.command()
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("target", metavar="DST", type=click.Path())
@click.option(
    "--landmarks",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Five points per image, JSON or text; nothing is searched for.",
)
@face_option
@threads_option
@click.option("--overwrite", is_flag=True, help="Replace results that exist; by default they are kept.")
@_json.option
@_cluster.options
def align(
    source: str,
    target: str,
    landmarks: Path | None,
    face: str | None,
    threads: int | None,
    overwrite: bool,
    json_target: str | None,
    cluster: _cluster.Cluster | None,
) -> int:
    """Faces in the images of SRC (a folder or one image), aligned, 112 x 96, as PNG into the folder DST.

    The tree and the names stay, and lists (.txt) are copied, so that an aligned data set is read as before. What is
    there already is kept: a run that was stopped goes on. Images without a face are named at the end; the exit code
    is 1 then.
    """
    from pixeldiff.cli import _report as report

    _json.check(json_target, overwrite)
    if cluster:
        if landmarks:
            raise UserError("--landmarks is for runs on one machine; leave it or --cluster out")
        opens, note = partial(FaceAligner, face), f"pixeldiff faces align --face {face}"
        task = _cluster.Task("faces align", source, target, opens, make_aligned, lambda _: "png", note, overwrite)
        return _cluster.run(task, cluster, json_target)
    destination = Path(target)
    found = find_files([source], image.SUFFIXES, "images", str(destination))
    jobs = _plan(found, destination)
    points = None if landmarks is None else _points(landmarks, found, source)
    aligner = FaceAligner(face)
    if points is None:
        aligner.open()  # what is not installed is told before the work

    def work(job: Job) -> Outcome:
        return _align_file(job, aligner, None if points is None else points.get(job.source), overwrite, landmarks)

    start = time.perf_counter()
    outcomes = list(report.with_progress(work_through(jobs, work, threads or cores()), len(jobs)))
    outcomes.sort(key=lambda one: str(one.job.source))
    seconds = time.perf_counter() - start
    _copy_lists(Path(source), destination)
    failed = report.failures(found, outcomes)
    if len(jobs) == 1 and outcomes[0].error and not Path(source).is_dir():
        raise UserError(outcomes[0].error)
    _json.write(json_target, "faces align", report.results(outcomes), failed, overwrite, seconds=round(seconds, 3))
    if json_target != _json.STDOUT:
        report.say(report.sentences(outcomes, jobs, seconds))
    report.remark(report.remarks(outcomes, found, len(jobs), sized=True))
    return report.exit_code(outcomes, failed)


def _plan(found: Found, destination: Path) -> list[Job]:
    if not found.files:
        raise UserError("; ".join(found.missing.values()))
    jobs = plan_jobs(found, None, destination, lambda _: "png")
    make_folder(destination)
    return jobs


def _points(landmarks: Path, found: Found, source: str) -> Mapping[Path, Points]:
    """The five points of the images that the file names."""
    table = read_landmarks(landmarks)
    names = {path: name_of(path.relative_to(root) if root else path.name) for path, root in found.files}
    points = {path: table[name] for path, name in names.items() if name in table}
    if not points:
        raise UserError(
            f"{landmarks} names none of the images of {source}; they are called {next(iter(names.values()))} and so "
            f"on, in the file {next(iter(table))}"
        )
    return points


def _align_file(job: Job, aligner: FaceAligner, points: Points | None, overwrite: bool, given: Path | None) -> Outcome:
    if job.target.exists() and not overwrite:
        return Outcome(job, "kept", files=(job.target,))
    if given and points is None:
        raise UserError(f"{job.source} is not in {given}; add its five points, or leave --landmarks out")
    pixels = image.read8(job.source)
    try:
        aligned = aligner(pixels, points)
    except UserError as error:
        raise UserError(f"{job.source}: {error}") from error
    atomic_write(job.target, encode(aligned))
    several = f"{job.source} has {aligned.rivals + 1} faces; one near the middle was taken (--face chooses)"
    note = several if aligned.rivals and not aligner.face else ""
    return Outcome(job, "done", files=(job.target,), note=note)


def _copy_lists(source: Path, destination: Path) -> None:
    """Lists of a data set, which name the images."""
    if not source.is_dir():
        return
    for path in sorted(source.rglob("*.txt")):
        target = destination / path.relative_to(source)
        if destination not in path.parents and path.stat().st_size <= LIST_BYTES and not target.exists():
            with atomic_path(target) as unfinished:
                shutil.copyfile(path, unfinished)
