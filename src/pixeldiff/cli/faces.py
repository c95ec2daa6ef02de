"""`pixeldiff faces`: align faces, compare two, search a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from pixeldiff import image, weights
from pixeldiff.cli import _json
from pixeldiff.cli._align import FACE, align, face_option
from pixeldiff.cli._network import Open, complete_model, open_network
from pixeldiff.cli._options import INPUT_OUTPUT, GroupedCommand, option, threads_option
from pixeldiff.cli._progress import show_bars
from pixeldiff.data.lists import shortened
from pixeldiff.errors import InputError, UserError
from pixeldiff.files import search_folder
from pixeldiff.inference.alignment import FACES, SIZE, FaceAligner, NoFaceError
from pixeldiff.inference.face_index import SUFFIX, FaceIndex, Vectors
from pixeldiff.machine import cores

TASK = "faces"


@click.group()
def faces() -> None:
    """Faces: align images, compare two, search a folder."""


faces.add_command(align)

model_option = option(
    FACE,
    "-m",
    "--model",
    metavar="NAME|FILE",
    shell_complete=complete_model(TASK),
    help="A pretrained model or a weights file. [default: the pretrained one that is best on LFW]",
)
threshold_option = option(
    FACE,
    "--threshold",
    type=click.FloatRange(-1, 1),
    metavar="SCORE",
    help="Lowest score of two faces of one person. [default: the one that is best on LFW]",
)


@dataclass(frozen=True)
class _Threshold:
    """The lowest score of two faces of one person, and what it means."""

    score: float | None
    meaning: str

    def same(self, score: float) -> bool | None:
        return None if self.score is None else score >= self.score


def _threshold(opened: Open, given: float | None) -> _Threshold:
    """Return the user's threshold, or that on the model card."""
    if given is not None:
        return _Threshold(given, "")
    card = weights.cards().get(opened.name, {}) if opened.path.parent == weights.FOLDER else {}
    if "threshold" not in card:
        return _Threshold(None, f"the model card of {opened.name} has no threshold; give --threshold")
    return _Threshold(
        card["threshold"],
        f"On LFW {card['true_accepts']:.0f}% of pairs of one person, and {card['false_accepts']:.0f}% of pairs of two, "
        f"score {card['threshold']:.3f} or more.",
    )


def _one_face(opened: Open, aligner: FaceAligner, path: Path) -> Vectors:
    """Return the embedding of the one face in an image."""
    pixels = image.read8(path)
    try:
        aligned = aligner(pixels)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    if aligned.rivals and aligner.face is None:
        raise UserError(
            f"{path} has {aligned.rivals + 1} faces of about the same size; crop it to one, or choose with "
            f"--face {' or '.join(FACES)}"
        )
    vector: Vectors = opened.network.embed(aligned.image[None])[0]
    return vector


@faces.command(cls=GroupedCommand)
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@model_option
@threshold_option
@face_option
@threads_option
@_json.option
@_json.overwrite
def compare(
    first: Path,
    second: Path,
    model: str | None,
    threshold: float | None,
    face: str | None,
    threads: int | None,
    json_target: str | None,
    overwrite: bool,
) -> None:
    """Compare the faces in the images A and B: the score is the cosine of their embeddings.

    Says whether the score reaches the threshold, and what the threshold means. It is often wrong: do not base decisions
    about people on it.
    """
    _json.check(json_target, overwrite)
    with open_network(model or weights.best(TASK), TASK, threads) as opened:
        aligner = FaceAligner(face)
        score = float(_one_face(opened, aligner, first) @ _one_face(opened, aligner, second))
        limit = _threshold(opened, threshold)
    same = limit.same(score)
    result = {"first": str(first), "second": str(second), "score": round(score, 4), "same": same}
    more = {"model": opened.name, "threshold": limit.score}
    _json.write(json_target, "faces compare", [result], (), overwrite, **more)
    if json_target != _json.STDOUT:
        if same is not None:
            click.echo(f"{'same' if same else 'different'}: score {score:.3f}, the threshold is {limit.score:.3f}")
        else:
            click.echo(f"score {score:.3f}")
        if limit.meaning:
            click.echo(limit.meaning)


@faces.command(cls=GroupedCommand)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@option(
    INPUT_OUTPUT, "--query", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Image of the face."
)
@option(
    INPUT_OUTPUT, "--top", type=click.IntRange(1), metavar="N", default=10, show_default=True, help="Number of images."
)
@model_option
@threshold_option
@face_option
@option(
    INPUT_OUTPUT,
    "--embeddings",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"File of the embeddings. [default: FOLDER{SUFFIX}]",
)
@option(INPUT_OUTPUT, "--rebuild", is_flag=True, help="Recompute all embeddings.")
@threads_option
@_json.option
@_json.overwrite
def search(
    folder: Path,
    query: Path,
    top: int,
    threshold: float | None,
    model: str | None,
    face: str | None,
    embeddings: Path | None,
    rebuild: bool,
    threads: int | None,
    json_target: str | None,
    overwrite: bool,
) -> int:
    """Search FOLDER (recursively) for the face in --query: its images, those with the most similar face first.

    The embeddings stay in a file beside the folder, so that the next search takes no time. They are personal data:
    delete the file when you are done. The exit code is 1 if some images cannot be read.
    """
    _json.check(json_target, overwrite)
    names, closed = _names(folder)
    threads = threads or cores()
    with open_network(model or weights.best(TASK), TASK, 1, threads) as opened:
        aligner = FaceAligner(face)
        vector = _one_face(opened, aligner, query)
        file = embeddings or folder.resolve().with_name(folder.resolve().name + SUFFIX)
        index = FaceIndex(file, opened.name, opened.sha256, opened.network.size)
        new = _update(index, folder, names, opened, aligner, threads, rebuild)
        limit = _threshold(opened, threshold)
    ranked = index.rank(vector, [name for name in names if _is_query(folder, name, query)])
    results = [
        {"input": str(folder / name), "score": round(score, 4), "same": limit.same(score)}
        for score, name in ranked[:top]
    ]
    failed = [{"input": name, "error": why} for name, why in closed.items()]
    failed += [{"input": str(folder / name), "error": why} for name, why in index.failed().items()]
    more = {"model": opened.name, "threshold": limit.score, "images": len(names), "new": new, "embeddings": str(file)}
    _json.write(json_target, "faces search", results, failed, overwrite, **more)
    if json_target != _json.STDOUT:
        _tell(results, [score for score, _ in ranked], limit)
    return _tell_failures(failed, len(names))


def _names(folder: Path) -> tuple[list[str], dict[str, str]]:
    """List the images below a folder, and the folders that cannot be read, each with the reason."""
    if not folder.is_dir():
        raise UserError(
            f"{folder} is not a folder; give a folder of images" if folder.exists() else f"no folder {folder}"
        )
    start = 0 if folder == Path(".") else len(os.path.join(folder, ""))
    closed: dict[str, str] = {}
    found = [str(path)[start:] for path in search_folder(folder, None, closed) if path.suffix.lower() in image.SUFFIXES]
    if not found:
        why = "; ".join(closed.values()) or f"no images in {folder}; looked for {' '.join(image.SUFFIXES)}"
        raise InputError(why)
    return found, closed


def _update(
    index: FaceIndex,
    folder: Path,
    names: Sequence[str],
    opened: Open,
    aligner: FaceAligner,
    threads: int,
    rebuild: bool,
) -> int:
    """Embed the images that are new, with a progress bar; return how many were."""
    if rebuild:
        index.check_foreign()
    else:
        index.read()

    def embed(path: Path) -> Vectors:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(f"cannot be read ({error.strerror}); check its permissions") from error
        vectors: Vectors = opened.network.embed(np.stack(aligner.every(content)))
        return vectors

    new = index.drop(folder, names)
    if not new:
        return 0
    if any(_size(folder / name) not in (SIZE, None) for name in new):
        aligner.open()  # raises if it is not installed
    with show_bars() as bars:
        bar = bars.add_task("images", total=len(new))
        index.add(folder, new, embed, threads, lambda done: bars.advance(bar, done))
    return len(new)


def _size(path: Path) -> tuple[int, int] | None:
    try:
        return image.stored_size(path)
    except UserError:
        return None  # an error when it is read


def _is_query(folder: Path, name: str, query: Path) -> bool:
    """Return whether an image of the folder is the query itself."""
    path = os.path.join(folder, name)
    return os.path.basename(name) == query.name and os.path.exists(path) and os.path.samefile(path, query)


def _tell(results: Sequence[dict[str, Any]], scores: Sequence[float], limit: _Threshold) -> None:
    words = {True: "same       ", False: "different  ", None: ""}
    for one in results:
        click.echo(f"{words[one['same']]}{one['score']:6.3f}  {one['input']}")
    if limit.score is not None:
        same = sum(score >= limit.score for score in scores)
        click.echo(f"{same} of {len(scores)} images with a face score {limit.score:.3f} or more.")
    if limit.meaning:
        click.echo(limit.meaning)


def _tell_failures(failed: Sequence[dict[str, str]], total: int) -> int:
    """Print images without a face in one line, they are no fault, and others one by one; give the exit code."""
    faceless = [one["input"] for one in failed if one["error"] == str(NoFaceError())]
    if faceless:
        click.echo(f"note: no face in {len(faceless)} of {total} images: {shortened(faceless)}", err=True)
    for one in failed:
        if one["input"] not in faceless:
            named = "" if one["input"] in one["error"] else f"{one['input']}: "
            click.echo(f"error: {named}{one['error']}", err=True)
    return 1 if len(failed) > len(faceless) else 0
