"""Many pictures: reading, network and writing at the same time.

Every worker takes a picture from file to file. As many of them as the detector has `streams` may be in the network at
once, each with its share of the machine's cores; as many again read and write meanwhile, so that no core waits for a
disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Semaphore

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM, Job, write_result
from pixeldiff.runtime.drawing import Options
from pixeldiff.runtime.edges import SIDES, EdgeDetector
from pixeldiff.runtime.formats import read_note
from pixeldiff.runtime.jobs import Outcome, work_through
from pixeldiff.runtime.sizes import Seen, see


def share(threads: int, pictures: int) -> tuple[int, int]:
    """(threads, streams) of a detector for this many pictures: one picture per thread gives the most pictures per
    second, several threads per picture the shortest wait for a single one."""
    streams = min(threads, pictures)
    return threads // streams, streams


def detect_files(detector: EdgeDetector, jobs: Sequence[Job], options: Options) -> Iterator[Outcome]:
    """Work through the jobs; outcomes come as they are ready. A picture that fails does not stop the others, but a disk
    that takes no more does."""
    gate = Semaphore(detector.streams)
    return work_through(jobs, lambda job: _detect_file(detector, job, options, gate), 2 * detector.streams)


def _detect_file(detector: EdgeDetector, job: Job, options: Options, gate: Semaphore) -> Outcome:
    targets, note = _targets(job, options), options.note(detector.name)
    there = [target for target in targets if target != STREAM and target.exists()]
    if len(there) == len(targets) and not options.overwrite:
        before = read_note(job.target)
        return Outcome(job, "kept", files=tuple(targets), made_by="" if before == note else before)
    if there and not options.overwrite:
        raise UserError(f"{there[0]} exists, others of {job.source} do not; give --overwrite or another -o")
    seen, photo = _see(job.source, options, detector.size if options.size is None else options.size)
    size, shape = seen.size, (seen.picture.shape[0], seen.picture.shape[1])
    if options.as_seen:
        seen = Seen(seen.picture, shape)
    with gate:
        start = time.perf_counter()
        maps = detector(
            seen,
            side_outputs=options.side_outputs,
            scales=options.scales,
            flip=options.flip,
            thin=options.suppressed,
        )
        seconds = time.perf_counter() - start
    for target, own in zip(targets, maps if options.side_outputs else [maps], strict=True):
        write_result(target, options.encode(own, photo, note))
    return Outcome(job, "done", files=tuple(targets), size=size, seen=shape, network_seconds=seconds)


def _targets(job: Job, options: Options) -> list[Path]:
    if not options.side_outputs:
        return [job.target]
    name, suffix = job.target.stem, job.target.suffix
    return [*(job.target.with_name(f"{name}.{side}{suffix}") for side in SIDES), job.target]


def _see(source: Path, options: Options, size: int | str | None) -> tuple[Seen, image.Picture | None]:
    """What the network sees, and the picture itself where edges are drawn on it; else a large one is let go."""
    piped = source == STREAM
    given = None if piped else image.read(source)
    try:
        picture = image.load(sys.stdin.buffer.read()) if given is None else given
        options.check_size(picture.shape)
    except UserError as error:
        raise UserError(f"{'standard input' if piped else source}: {error}") from error
    return see(picture, size), picture if options.ground == "photo" else None
