"""`pixeldiff faces align`: the face of each image, rotated and scaled to one place in 112 x 96 pixels."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import click

from pixeldiff.cli._images import Images, RunOptions, collect, run_images, run_options
from pixeldiff.cli._options import GroupedCommand, option
from pixeldiff.data.landmarks import Points, name_of, read_landmarks
from pixeldiff.data.lists import LIST_BYTES
from pixeldiff.errors import InputError, UserError
from pixeldiff.files import atomic_path
from pixeldiff.inference.alignment import FACES
from pixeldiff.jobs.faces import AlignFaces

FACE = "Faces"
face_option = option(
    FACE,
    "--face",
    type=click.Choice(FACES),
    help="Which of several faces. [default: one that is large and near the middle]",
)


@click.command(cls=GroupedCommand)
@click.argument("inputs", nargs=-1, type=click.Path())
@option(
    FACE,
    "--landmarks",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON or text file with five points per image, in place of a face detector.",
)
@face_option
@run_options
def align(inputs: tuple[str, ...], landmarks: Path | None, face: str | None, run: RunOptions) -> int:
    """Align the faces in INPUTS (images, folders or globs), 112 x 96, as PNG into the folder -o.

    Tree and names stay, and lists (.txt) are copied, so that an aligned data set is read like the original. Existing
    results are skipped: to resume, run the same command again. The exit code is 1 if some images failed.
    """
    if run.output is None:
        raise UserError("missing the folder for the aligned faces; give -o DIR")
    if run.cluster and landmarks:
        raise UserError("--landmarks does not work with --cluster; omit one of them")
    images = collect(inputs, run)
    points = None if landmarks is None else _read_points(landmarks, images)
    code = run_images("faces align", AlignFaces(face, points, landmarks), images, run)
    for folder in map(Path, inputs):
        if folder.is_dir() and not run.cluster:
            _copy_lists(folder, Path(run.output))
    return code


def _read_points(landmarks: Path, images: Images) -> Mapping[str, Points]:
    """Read the five points of each image that the file names, by the path of the image."""
    table = read_landmarks(landmarks)
    names = {path: name_of(path.relative_to(root) if root else path.name) for path, root in images.files.files}
    points = {str(path): table[name] for path, name in names.items() if name in table}
    if not points:
        raise InputError(
            f"{landmarks} names none of the images of {' '.join(images.inputs)}; the first image is "
            f"{next(iter(names.values()))}, the first name in the file {next(iter(table))}"
        )
    return points


def _copy_lists(source: Path, destination: Path) -> None:
    """Copy the lists of a data set, which name its images."""
    for path in sorted(source.rglob("*.txt")):
        target = destination / path.relative_to(source)
        if destination not in path.parents and path.stat().st_size <= LIST_BYTES and not target.exists():
            with atomic_path(target) as unfinished:
                shutil.copyfile(path, unfinished)
