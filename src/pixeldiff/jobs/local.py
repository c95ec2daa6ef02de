"""Run an operation over many images on this machine: threads, existing results, failures, full disks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from pixeldiff.errors import OutputError
from pixeldiff.files import STREAM, Job, read_source, remove_stale_temp_files, write_result
from pixeldiff.jobs.operation import Operation, Output, Result, attempt, name_parts
from pixeldiff.jobs.video import Clip, Progress, is_clip, rewrite_clips
from pixeldiff.parallel import split_threads
from pixeldiff.render.formats import read_provenance


def run_local(
    operation: Operation[Any],
    jobs: Sequence[Job],
    *,
    threads: int = 1,
    overwrite: bool = False,
    progress: Callable[[], AbstractContextManager[Progress]] = lambda: nullcontext(lambda done, total: None),
) -> Iterator[Result]:
    """Yield the result of each job as soon as it is ready, first of the images, then of the videos.

    A job that fails does not stop the others; a full disk and Ctrl-C do. The model is opened at the first result.
    """
    if not jobs:
        return
    clips = [job for job in jobs if is_clip(job.source)]
    images = [job for job in jobs if not is_clip(job.source)]
    per_image, streams = split_threads(threads, threads if clips else len(jobs))
    model = operation.open(per_image, streams)
    # Twice as many images as the model takes at once: half of them are read and written meanwhile.
    results = work_through(images, lambda job: run_job(operation, model, job, overwrite), 2 * streams)
    with progress() if len(images) > 1 else nullcontext(lambda done, total: None) as show:
        for done, result in enumerate(results, 1):
            show(done, len(images))
            yield result
            if result.status == "full":
                clips = []

    def rewrite(job: Job, show: Progress) -> Clip:
        assert job.target is not None
        return operation.run_video(model, job.source, job.target, streams, show)

    yield from rewrite_clips(clips, rewrite, overwrite, progress)


def run_job(operation: Operation[Any], model: Any, job: Job, overwrite: bool) -> Result:
    """Make the files and the record of one image, or skip it if the files exist."""
    targets = dict(name_parts(job.target, operation.parts)) if job.target else {}
    files = tuple(targets.values())
    existing = [target for target in files if target != STREAM and target.exists()]
    run = partial(_run, operation, model, job)
    if existing and not overwrite:
        if len(existing) < len(files):
            raise OutputError(f"{existing[0]} exists, but not the other files of {job.source}; give --overwrite")
        made_by = read_provenance(files[-1])
        other = made_by if made_by != operation.provenance else ""
        return Result(job, "skipped", None, files, run().record if operation.needs_record else {}, "", other)
    output = run()
    for part, target in targets.items():
        write_result(target, output.files[part])
    return Result(job, "done", None, files, output.record, output.note)


def _run(operation: Operation[Any], model: Any, job: Job) -> Output:
    name = "standard input" if job.source == STREAM else str(job.source)
    return operation.run(model, read_source(job.source), name)


def work_through(jobs: Sequence[Job], work: Callable[[Job], Result], workers: int) -> Iterator[Result]:
    """Yield work(job) of each job as it is ready, from `workers` threads, until all are done or the disk is full."""
    remove_stale_temp_files({job.target.parent for job in jobs if job.target not in (None, STREAM)})
    if min(len(jobs), workers) == 1:  # on this thread: another one would only take turns with it
        for job in jobs:
            result = attempt(job, work)
            yield result
            if result.status == "full":
                return
        return
    with ThreadPoolExecutor(workers) as pool, contextlib.ExitStack() as stack:
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        pending = {pool.submit(attempt, job, work) for job in jobs}
        for future in as_completed(pending):
            pending.remove(future)
            yield future.result()
            if future.result().status == "full":
                pool.shutdown(wait=True, cancel_futures=True)
                yield from (rest.result() for rest in pending if not rest.cancelled())
                return
