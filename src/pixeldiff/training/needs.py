"""What a stage needs before its first step: weights of another recipe, and maps of a teacher.

    init_from = "edges/tiny:more"                                   # the last weights of this stage or variant
    { type = "bsds500", split = "train", maps = "../maps", teacher = "edges/basic" }

`train` trains a recipe that is named so in <output>/needs/<recipe>, unless it is done, and writes the maps that are
missing. ":upright" is an earlier stage of the same recipe. Other references are pretrained models or weights files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixeldiff import image
from pixeldiff.data.edges import split_folders
from pixeldiff.data.lists import find_root
from pixeldiff.edgemap import PAPER_SCALES
from pixeldiff.errors import InputError
from pixeldiff.files import Job, atomic_write
from pixeldiff.inference.edges import Look
from pixeldiff.jobs.detect import PseudoLabel
from pixeldiff.jobs.local import run_local
from pixeldiff.jobs.operation import ModelSpec
from pixeldiff.machine import cores
from pixeldiff.render.drawing import Drawing
from pixeldiff.training.lineage import TEACHER
from pixeldiff.training.recipe import Recipe
from pixeldiff.training.recipe_file import names, read_file
from pixeldiff.training.run import LAST
from pixeldiff.weights import sha256, training_file

NEEDS = "needs"  # folder of the recipes that another one needs


def references(recipe: Recipe) -> Iterator[str]:
    """Yield the names of all weights that a recipe needs."""
    yield from filter(None, [recipe.init_from, getattr(recipe.loss, "teacher", "")])
    yield from (source.teacher for source in _taught(recipe))


def recipe_of(reference: str) -> tuple[str, str] | None:
    """Return the recipe and the stage or variant that a reference names; None if it names weights."""
    if reference in names() or reference.endswith(".toml"):
        return reference, ""
    name, _, part = reference.rpartition(":")
    return (name, part) if name in names() or name.endswith(".toml") else None


def place_of(name: str, out: Path) -> Path:
    """Return the folder of a recipe that another one needs."""
    return out / NEEDS / name.removesuffix(".toml").lstrip("./").replace(":", "")


def weights_of(reference: str, stages: Path, out: Path) -> str:
    """Return the weights that a reference names: of a stage in `stages`, of a recipe below `out`, or as they are."""
    if reference.startswith(":"):
        return str(stages / reference[1:] / LAST)
    named = recipe_of(reference)
    if named is None:
        return reference
    name, part = named
    file = read_file(name)
    if file.stages and not part:
        part = list(file.stages)[-1]
    file.table("" if file.stages else part, part if file.stages else "")  # an error for a wrong part
    return str(place_of(name, out) / part / LAST)


def resolved(recipe: Recipe, stages: Path, out: Path) -> Recipe:
    """Return the recipe with files in place of what it names as needed; `stages` is the folder of its stages."""
    data, loss = recipe.data, recipe.loss
    if teacher := getattr(loss, "teacher", ""):
        loss = dataclasses.replace(loss, teacher=weights_of(teacher, stages, out))
    if _taught(recipe):
        sources = tuple(dataclasses.replace(s, teacher=weights_of(s.teacher, stages, out)) for s in data.sources)
        data = dataclasses.replace(data, sources=sources)
    return dataclasses.replace(recipe, init_from=weights_of(recipe.init_from, stages, out), data=data, loss=loss)


def without_maps(recipe: Recipe) -> Recipe | None:
    """Return the recipe without the maps that are still to be made, to check the rest; None if nothing remains."""
    if not _taught(recipe):
        return recipe
    sources = tuple(
        dataclasses.replace(source, maps="", teacher="") if source.teacher else source
        for source in recipe.data.sources
        if not (source.teacher and source.type in ("pseudo-labels", "outlines"))
    )
    if not sources:
        return None
    return dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, sources=sources))


def make_maps(recipe: Recipe) -> None:
    """Write the maps that are missing, by the teachers that the sources name."""
    for source in _taught(recipe):
        root = find_root(recipe.data.root, "the data of the recipe")
        weights, folder = training_file(source.teacher), root / source.maps
        _check_teacher(folder, sha256(weights), source.teacher)
        jobs = [Job(path, target) for path, target in _labels(_images(root, source), folder) if not target.exists()]
        if not jobs:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / TEACHER).exists():
            atomic_write(folder / TEACHER, json.dumps({"sha256": sha256(weights)}).encode())
        operation = PseudoLabel(ModelSpec(recipe.task, weights), Look(scales=PAPER_SCALES, flip=True), Drawing())
        for result in run_local(operation, jobs, threads=cores()):
            if result.status != "done":
                raise InputError(f"no map of {result.job.source} by {source.teacher}: {result.error or result.status}")


def _taught(recipe: Recipe) -> list[Any]:
    return [source for source in getattr(recipe.data, "sources", ()) if getattr(source, "teacher", "")]


def _images(root: Path, source: Any) -> Path:
    return root / source.images if source.images else split_folders(root, source.split)[0]


def _labels(images: Path, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each image below a folder and the place of its map."""
    if not images.is_dir():
        raise InputError(f"no folder of images {images}; check the source and data.root")
    for path in sorted(images.rglob("*")):
        if path.suffix.lower() in image.SUFFIXES and not path.name.startswith("."):
            yield path, folder / path.relative_to(images).with_suffix(".png")


def _check_teacher(folder: Path, digest: str, teacher: str) -> None:
    """Raise an error if other weights made the maps in a folder."""
    path = folder / TEACHER
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise InputError(
                f"{folder} has maps of an unknown teacher; remove `teacher` from the source, or the folder"
            )
        return
    if json.loads(path.read_text()).get("sha256") != digest:
        raise InputError(f"the maps in {folder} are by other weights than {teacher}; choose another folder for them")
