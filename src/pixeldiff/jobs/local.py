"""Many files, one after the other or side by side: what became of each, and no failure that stops the others."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pixeldiff.errors import DiskFullError, UserError
from pixeldiff.files import STREAM, Job, remove_stale_temp_files

if TYPE_CHECKING:
    from pixeldiff.jobs.video import Clip


@dataclass(frozen=True)
class Outcome:
    """What became of a job: done, kept (the result was there before), failed, full (no room for this result nor for
    others), or stopped (by the user, who has what was ready)."""

    job: Job
    status: str
    error: str | None = None
    files: tuple[Path, ...] = ()
    size: tuple[int, int] | None = None  # height, width
    seen: tuple[int, int] | None = None  # by the network
    made_by: str = ""  # the command behind a result that was kept, where it is another one
    network_seconds: float = 0.0
    clip: Clip | None = None  # what there is to say of a video
    note: str = ""  # what else a user may not expect


def work_through(jobs: Sequence[Job], work: Callable[[Job], Outcome], workers: int) -> Iterator[Outcome]:
    """The outcomes of the jobs as they are ready, from so many threads. A file that fails does not stop the others, but
    a disk that takes no more does."""
    remove_stale_temp_files({job.target.parent for job in jobs if job.target != STREAM})
    if min(len(jobs), workers) == 1:  # a thread more would only take turns with this one
        for job in jobs:
            outcome = attempt(job, functools.partial(work, job))
            yield outcome
            if outcome.status == "full":
                break
        return
    with ThreadPoolExecutor(workers) as pool:
        pending = {pool.submit(attempt, job, functools.partial(work, job)) for job in jobs}
        try:
            for done in as_completed(pending):
                pending.remove(done)
                yield done.result()
                if done.result().status == "full":
                    pool.shutdown(wait=True, cancel_futures=True)
                    yield from (one.result() for one in pending if not one.cancelled())
                    return
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def attempt(job: Job, work: Callable[[], Outcome]) -> Outcome:
    """The outcome of the work; what goes wrong is one line."""
    try:
        return work()
    except DiskFullError as error:
        return Outcome(job, "full", str(error))
    except UserError as error:
        return Outcome(job, "failed", str(error))
    except MemoryError:
        return Outcome(job, "failed", f"{job.source} needs more memory than there is; scale it down first")
    except BrokenPipeError:  # nobody reads on; the command line knows what to do
        raise
    except OSError as error:
        return Outcome(job, "failed", f"cannot write {job.target} ({error.strerror or error}); choose another place")
    except Exception as error:  # of onnxruntime, or a mistake of ours: the other images still get their edges
        return Outcome(job, "failed", f"{job.source}: {type(error).__name__}: {error}")
