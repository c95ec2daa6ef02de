"""Edges of many images: reading, network and writing at the same time.

Every worker takes an image from file to file. The network itself limits how many of them are in it (`streams`); as
many again read and write meanwhile, so that no core waits for a disk.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pixeldiff import image
from pixeldiff.errors import UserError
from pixeldiff.files import STREAM, Job, write_result
from pixeldiff.inference.backends import SIDES
from pixeldiff.inference.edges import EdgeNetwork, EdgeResult, Look, detect_edges
from pixeldiff.inference.sizes import ModelInput, prepare
from pixeldiff.jobs.local import work_through
from pixeldiff.jobs.operation import Result
from pixeldiff.render.drawing import Drawing, check_size, provenance, render
from pixeldiff.render.formats import read_provenance


@dataclass(frozen=True)
class EdgeFiles:
    """What is written for each image; `look` and `drawing` are resolved."""

    look: Look
    drawing: Drawing
    overwrite: bool = False
    at_input_size: bool = False  # the map of a downscaled image stays small
    command: str = ""  # in the provenance, if it is not detect

    def provenance(self, model: str) -> str:
        """Return the command that makes such files."""
        return f"{self.command} --model {model}" if self.command else provenance(model, self.look, self.drawing)


def detect_files(network: EdgeNetwork, jobs: Sequence[Job], wanted: EdgeFiles) -> Iterator[Result]:
    """Work through the jobs; outcomes come as they are ready. An image that fails does not stop the others, but a disk
    that takes no more does."""
    return work_through(jobs, lambda job: _detect_file(network, job, wanted), 2 * network.streams)


def _detect_file(network: EdgeNetwork, job: Job, wanted: EdgeFiles) -> Result:
    targets, command = target_files(job, wanted.look), wanted.provenance(network.name)
    existing = [target for target in targets if target != STREAM and target.exists()]
    if len(existing) == len(targets) and not wanted.overwrite:
        before = read_provenance(targets[-1])
        return Result(job, "skipped", files=tuple(targets), made_by="" if before == command else before)
    if existing and not wanted.overwrite:
        raise UserError(f"{existing[0]} exists, others of {job.source} do not; give --overwrite or another -o")
    files, result, size = _draw(network, lambda: _read(job.source), str(job.source), wanted)
    for target, content in zip(targets, files.values(), strict=True):
        write_result(target, content)
    record = {"height": size[0], "width": size[1], "input_size": result.input_size}
    return Result(job, "done", files=tuple(targets), record=record)


def make_edges(network: EdgeNetwork, content: bytes, name: str, wanted: EdgeFiles) -> dict[str, bytes]:
    """An image's file to those of its edges, by what their names have before the suffix; the map itself, which has
    nothing there, is the last."""
    return _draw(network, lambda: image.decode(content, name), name, wanted)[0]


def _draw(
    network: EdgeNetwork, read: Callable[[], image.ImageArray], name: str, wanted: EdgeFiles
) -> tuple[dict[str, bytes], EdgeResult, tuple[int, int]]:
    """The files of an image's maps, the result and the image's size; a large image is released unless drawn on."""
    look, drawing = wanted.look, wanted.drawing
    pixels = read()
    size = (pixels.shape[0], pixels.shape[1])
    try:
        check_size(size, look, drawing)
    except UserError as error:
        raise type(error)(f"{'standard input' if name == str(STREAM) else name}: {error}") from error
    prepared = prepare(pixels, look.max_size)
    if wanted.at_input_size:
        prepared = ModelInput(prepared.image, (prepared.image.shape[0], prepared.image.shape[1]))
    photo = pixels if drawing.background == "photo" else None
    del pixels
    result = detect_edges(network, prepared, look)
    command = wanted.provenance(network.name)
    files = {name: render(one, drawing, photo, command) for name, one in result.by_name().items()}
    return files, result, size


def target_files(job: Job, look: Look) -> list[Path]:
    """Name the files of a job's result: those of the side outputs, if they are asked for, and of the map."""
    assert job.target is not None
    if not look.sides:
        return [job.target]
    name, suffix = job.target.stem, job.target.suffix
    return [*(job.target.with_name(f"{name}.{side}{suffix}") for side in SIDES), job.target]


def _read(source: Path) -> image.ImageArray:
    return image.read(source) if source != STREAM else image.decode(sys.stdin.buffer.read(), "standard input")
