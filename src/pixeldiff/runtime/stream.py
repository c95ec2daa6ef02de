"""Many pictures: which files, where their results go, and reading, network and writing at the same time.

Every worker takes a picture from file to file. `streams` of them may be in the network at once, each with one of the
machine's cores; as many again read and write meanwhile, so that no core waits for a disk.
"""

from __future__ import annotations

import glob
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from threading import Semaphore

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.files import NoRoomError, remove_leftovers, write_whole
from pixeldiff.runtime.edges import SIDES, EdgeDetector, Seen, see
from pixeldiff.runtime.formats import Options, read_note

STREAM = Path("-")  # standard input as a source, standard output as a target; a file of that name is ./-
KEPT = "kept as it was (--overwrite replaces it)"


@dataclass(frozen=True)
class Job:
    """One picture and where its result goes."""

    source: Path
    target: Path


@dataclass(frozen=True)
class Outcome:
    """What became of a job: done, kept (the result was there before), failed, or stopped (no room for any result)."""

    job: Job
    status: str
    error: str | None = None
    files: tuple[Path, ...] = ()
    size: tuple[int, int] | None = None  # height, width
    seen: tuple[int, int] | None = None  # by the network
    made_by: str = ""  # the command behind a result that was kept, where it is another one
    network_seconds: float = 0.0


@dataclass
class Found:
    """Files to work on, each with the folder it was found under (None for a file named as such).

    `others` counts what else lies in the folders, by suffix."""

    files: list[tuple[Path, Path | None]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)


def find_pictures(inputs: Sequence[str], out: Path | None = None) -> Found:
    """Files, folders (searched to the bottom) and globs, each file once. Our own results are no input."""
    found = Found()
    seen: set[str] = set()
    given_alone = len(inputs) == 1
    for given in inputs:
        if not given_alone and is_result(Path(given)) and Path(given).is_file():
            continue  # a shell has spread a glob
        try:
            own = _named(given, out, found)
        except OSError as error:
            found.missing.append(f"cannot look at {given} ({error.strerror}); check the name and the permissions")
            continue
        if not own:
            found.missing.append(_nothing(given))
        for one, root in own:
            if (key := os.path.realpath(one)) not in seen:  # unlike resolve, it bears links that lead to themselves
                seen.add(key)
                found.files.append((one, root))
    if not found.files and not found.missing:
        found.missing.append(f"{inputs[0]} and the others are results of ours; give one of them alone, or pictures")
    return found


def _named(given: str, out: Path | None, found: Found) -> list[tuple[Path, Path | None]]:
    path = Path(given)
    if path == STREAM:
        return [(STREAM if given == "-" else path.absolute(), None)]
    if path.is_dir():
        files = list(_below(path, out, found.missing))
        found.others.update(one.suffix.lower() for one in files if not _is_picture(one))
        return [(one, path) for one in files if _is_picture(one)]
    if path.exists():
        return [(path, None)]
    return [(hit, None) for hit in matches(given)]


def matches(pattern: str) -> list[Path]:
    """The files that a glob names, without our own results."""
    hits = sorted(Path(hit) for hit in glob.glob(pattern, recursive=True)) if glob.has_magic(pattern) else []
    return [hit for hit in hits if hit.is_file() and not is_result(hit)]


def _below(folder: Path, out: Path | None, missing: list[str]) -> Iterator[Path]:
    def closed(error: OSError) -> None:
        missing.append(f"cannot look into {error.filename} ({error.strerror}); check its permissions")

    passed = {os.path.realpath(one) for one in (folder, out) if one is not None}  # links may lead back up
    for place, folders, names in os.walk(folder, onerror=closed, followlinks=True):
        here = Path(place)
        visible = sorted((name for name in folders if not name.startswith(".")), reverse=True)
        below = {os.path.realpath(here / name): name for name in visible}
        folders[:] = sorted(name for path, name in below.items() if path not in passed)
        passed.update(below)
        files = (here / name for name in sorted(names) if not name.startswith("."))
        # Pipes and devices would wait for ever; a link to nothing is told when it is read.
        yield from (one for one in files if not is_result(one) and (one.is_file() or not one.exists()))


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in image.SUFFIXES


def is_result(path: Path) -> bool:
    return ".edges." in path.name


def _nothing(given: str) -> str:
    if Path(given).is_dir():
        return f"no pictures in {given}; looked for {' '.join(image.SUFFIXES)}"
    if glob.has_magic(given):
        return f"no file matches {given}"
    return f"no file {given}; check the name"


def plan_jobs(found: Found, out: Path | None, ending: str) -> list[Job]:
    """`photo.edges.png` (`ending` edges.png) beside the photo, or in `out` with the tree below each input folder kept.

    Where two pictures differ in their suffix only, it stays in the name: photo.jpg.edges.png, photo.png.edges.png.
    """
    folders = [
        one.parent if out is None else out / (one.parent.relative_to(root) if root else "") for one, root in found.files
    ]
    names = Counter((folder, one.stem) for folder, (one, _) in zip(folders, found.files, strict=True))
    jobs = []
    taken: dict[Path, Path] = {}
    for folder, (one, _) in zip(folders, found.files, strict=True):
        stem = one.stem if names[folder, one.stem] == 1 else one.name
        target = folder / f"{stem}.{ending}"
        if target in taken:
            raise UserError(f"{taken[target]} and {one} would both become {target}; run them with different -o")
        taken[target] = one
        jobs.append(Job(one, target))
    return jobs


def names_folder(out: str) -> bool:
    """Whether -o means a folder whatever its suffix: it is one, or is written like one."""
    return Path(out).is_dir() or out.endswith(("/", os.sep))


def refuse_itself(source: Path, target: Path) -> None:
    """A result never takes the place of what it was made from, --overwrite or not."""
    if target != STREAM and target.exists() and source.exists() and target.samefile(source):
        raise UserError(f"-o {target} is the input itself; give another name")


def open_streams(model: str | os.PathLike[str], threads: int, pictures: int) -> tuple[EdgeDetector, int]:
    """A detector for this many pictures, and how many may be in it at once: one picture per thread gives the most
    pictures per second, several threads per picture the shortest wait for a single one."""
    streams = min(threads, pictures)
    return EdgeDetector(model, threads=threads // streams, streams=streams), streams


def detect_files(detector: EdgeDetector, jobs: Sequence[Job], options: Options, streams: int = 1) -> Iterator[Outcome]:
    """Work through the jobs; outcomes come as they are ready. A picture that fails does not stop the others, but a disk
    that takes no more does."""
    gate = Semaphore(streams)
    remove_leftovers({job.target.parent for job in jobs if job.target != STREAM})
    if len(jobs) == 1:
        yield _attempt(jobs[0], lambda job: _detect_file(detector, job, options, gate))
        return
    with ThreadPoolExecutor(2 * streams) as workers:
        pending = {
            workers.submit(_attempt, job, lambda job: _detect_file(detector, job, options, gate)) for job in jobs
        }
        try:
            for done in as_completed(pending):
                pending.remove(done)
                yield done.result()
                if done.result().status == "stopped":
                    workers.shutdown(wait=True, cancel_futures=True)
                    yield from (one.result() for one in pending if not one.cancelled())
                    return
        except BaseException:
            workers.shutdown(wait=True, cancel_futures=True)
            raise


def _attempt(job: Job, work: Callable[[Job], Outcome]) -> Outcome:
    try:
        return work(job)
    except NoRoomError as error:
        return Outcome(job, "stopped", str(error))
    except UserError as error:
        return Outcome(job, "failed", str(error))
    except MemoryError:
        return Outcome(job, "failed", f"{job.source} needs more memory than there is; scale it down first")
    except BrokenPipeError:  # nobody reads on; the command line knows what to do
        raise
    except OSError as error:
        return Outcome(job, "failed", f"cannot write {job.target} ({error.strerror or error}); choose another place")
    except Exception as error:  # of onnxruntime, or a mistake of ours: the other pictures still get their edges
        return Outcome(job, "failed", f"{job.source}: {type(error).__name__}: {error}")


def _detect_file(detector: EdgeDetector, job: Job, options: Options, gate: Semaphore) -> Outcome:
    targets, note = _targets(job, options), options.note(detector.name)
    there = [target for target in targets if target != STREAM and target.exists()]
    if len(there) == len(targets) and not options.overwrite:
        before = read_note(job.target)
        return Outcome(job, "kept", files=tuple(targets), made_by="" if before == note else before)
    if there and not options.overwrite:
        raise UserError(f"{there[0]} exists, others of {job.source} do not; give --overwrite or another -o")
    seen, photo = _see(job.source, options, detector.size if options.size is None else options.size)
    with gate:
        start = time.perf_counter()
        maps = detector(seen, side_outputs=options.side_outputs, scales=options.scales, thin=options.suppressed)
        seconds = time.perf_counter() - start
    for target, own in zip(targets, maps if options.side_outputs else [maps], strict=True):
        _write(target, options.encode(own, photo, note))
    shape = (seen.picture.shape[0], seen.picture.shape[1])
    return Outcome(job, "done", files=tuple(targets), size=seen.size, seen=shape, network_seconds=seconds)


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


def _write(target: Path, content: bytes) -> None:
    if target == STREAM:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    else:
        write_whole(target, content)
