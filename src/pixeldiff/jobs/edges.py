"""Many images: reading, network and writing at the same time.

Every worker takes an image from file to file. As many of them as the detector has `streams` may be in the network at
once, each with its share of the machine's cores; as many again read and write meanwhile, so that no core waits for a
disk.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Semaphore
from typing import Any

from pixeldiff import image
from pixeldiff.detector import SIDES, EdgeDetector
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM, Job, write_result
from pixeldiff.inference.sizes import ModelInput, prepare
from pixeldiff.jobs.local import work_through
from pixeldiff.jobs.operation import Result
from pixeldiff.render.drawing import Options
from pixeldiff.render.formats import read_note


def detect_files(detector: EdgeDetector, jobs: Sequence[Job], options: Options) -> Iterator[Result]:
    """Work through the jobs; outcomes come as they are ready. An image that fails does not stop the others, but a disk
    that takes no more does."""
    gate = Semaphore(detector.streams)
    return work_through(jobs, lambda job: _detect_file(detector, job, options, gate), 2 * detector.streams)


def _detect_file(detector: EdgeDetector, job: Job, options: Options, gate: Semaphore) -> Result:
    targets, note = target_files(job, options), options.note(detector.name)
    there = [target for target in targets if target != STREAM and target.exists()]
    if len(there) == len(targets) and not options.overwrite:
        before = read_note(targets[-1])
        return Result(job, "skipped", files=tuple(targets), made_by="" if before == note else before)
    if there and not options.overwrite:
        raise UserError(f"{there[0]} exists, others of {job.source} do not; give --overwrite or another -o")
    drawn = _draw(detector, lambda: _read(job.source), str(job.source), options, gate)
    for target, content in zip(targets, drawn.files, strict=True):
        write_result(target, content)
    record = {"height": drawn.size[0], "width": drawn.size[1], "input_size": drawn.seen}
    return Result(job, "done", files=tuple(targets), record=record)


def make_edges(detector: EdgeDetector, content: bytes, name: str, options: Options) -> dict[str, bytes]:
    """An image's file to those of its edges, by what their names have before the suffix; the map itself, which has
    nothing there, is the last."""
    drawn = _draw(detector, lambda: image.decode(content, name), name, options, nullcontext())
    return dict(zip([*SIDES, ""][-len(drawn.files) :], drawn.files, strict=True))


@dataclass(frozen=True)
class _Drawn:
    files: list[bytes]  # of the sides, where they are asked for, and of the map
    size: tuple[int, int]  # of the image
    seen: tuple[int, int]  # by the network
    seconds: float  # in the network


def _draw(
    detector: EdgeDetector,
    read: Callable[[], image.ImageArray],
    name: str,
    options: Options,
    gate: AbstractContextManager[Any],
) -> _Drawn:
    """An image to the files of its maps; the network is behind the gate."""
    seen, photo = _see(read, name, options, detector.size if options.size is None else options.size)
    size, shape = seen.size, (seen.image.shape[0], seen.image.shape[1])
    if options.as_seen:
        seen = ModelInput(seen.image, shape)
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
    note = options.note(detector.name)
    files = [options.encode(own, photo, note) for own in (maps if options.side_outputs else [maps])]
    return _Drawn(files, size, shape, seconds)


def target_files(job: Job, options: Options) -> list[Path]:
    """Name the files of a job's result: those of the side outputs, if they are asked for, and of the map."""
    assert job.target is not None
    if not options.side_outputs:
        return [job.target]
    name, suffix = job.target.stem, job.target.suffix
    return [*(job.target.with_name(f"{name}.{side}{suffix}") for side in SIDES), job.target]


def _read(source: Path) -> image.ImageArray:
    return image.read(source) if source != STREAM else image.decode(sys.stdin.buffer.read(), "standard input")


def _see(
    read: Callable[[], image.ImageArray], name: str, options: Options, size: int | str | None
) -> tuple[ModelInput, image.ImageArray | None]:
    """What the network sees, and the image itself where edges are drawn on it; else a large one is let go."""
    pixels = read()
    try:
        options.check_size(pixels.shape)
    except UserError as error:
        raise UserError(f"{'standard input' if name == str(STREAM) else name}: {error}") from error
    return prepare(pixels, size), pixels if options.ground == "photo" else None
