"""What a command trains, and where: one recipe in `out`, or each stage of a network in out/<stage>; before it, in
out/needs, the recipes whose weights it needs.

A stage starts from the last weights of the one before, and begins when that one has ended. So the same command resumes
at the last stage that has begun, and skips the finished ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pixeldiff.errors import InputError, UserError
from pixeldiff.training.needs import place_of, recipe_of, references, resolved, without_maps
from pixeldiff.training.recipe import Recipe, parse_recipe
from pixeldiff.training.recipe_file import RecipeFile, changed, read_file
from pixeldiff.training.run import CHECKPOINT, LAST
from pixeldiff.training.tasks import task_module

Plan = list[tuple[Path, Recipe]]  # in order, each with its folder


def plan(file: RecipeFile, out: Path, variant: str = "", stage: str = "", changes: Sequence[str] = ()) -> Plan:
    """List what is still to be trained. All recipes are checked now, not when their stage begins."""
    return _with_needs(_steps(file, out, variant, stage, changes), out, out, (file.name,))


def _steps(file: RecipeFile, out: Path, variant: str = "", stage: str = "", changes: Sequence[str] = ()) -> Plan:
    """List what is still to be trained of one file."""
    if not file.stages or variant:
        return [(out, parse_recipe(changed(file.table(variant, stage), changes)))]
    if stage:
        return [(out / stage, _recipe(file, out, stage, changes))]
    later = [change for change in changes if change.partition("=")[0].strip() != "init_from"]  # of the first stage
    stages = [(out / name, _recipe(file, out, name, later if k else changes)) for k, name in enumerate(file.stages)]
    begun = [k for k, (folder, _) in enumerate(stages) if _has_begun(folder)]
    return stages[max(begun, default=0) :]


def _with_needs(steps: Plan, stages: Path, out: Path, chain: tuple[str, ...]) -> Plan:
    """Put the recipes that the steps need before them, each once."""
    ordered: dict[Path, Recipe] = {}
    for folder, recipe in steps:
        for name, part in filter(None, map(recipe_of, references(recipe))):
            if name in chain:
                raise InputError(f"recipe {name} needs itself: {' needs '.join((*chain, name))}")
            place = place_of(name, out)
            ordered = dict(_with_needs(_until(name, part, place), place, out, (*chain, name))) | ordered
        ordered[folder] = resolved(recipe, stages, out)
    return list(ordered.items())


def _until(name: str, part: str, place: Path) -> Plan:
    """List what is still to be trained of a recipe up to a stage, or of one variant."""
    file = read_file(name)
    if not file.stages:
        return _steps(file, place / part, part)
    order = list(file.stages)
    file.table(stage=part or order[-1])  # an error for an unknown stage
    last = order.index(part or order[-1])
    return [(folder, recipe) for folder, recipe in _steps(file, place) if order.index(folder.name) <= last]


def check_data(steps: Plan) -> None:
    """Open the data of each stage, so that a mistake in the last is an error before the first step.

    Stages with the same data are opened once.
    """
    opened: list[tuple[object, ...]] = []
    for folder, settings in steps:
        recipe = without_maps(settings)
        if recipe is None:
            continue
        parts = (recipe.task, recipe.model, recipe.data, recipe.augment, recipe.loss, recipe.evaluate)
        if parts in opened:
            continue
        try:
            task_module(recipe.task).Task(recipe)
        except UserError as error:
            raise InputError(f"stage {folder.name}: {error}") from error
        opened.append(parts)


def _recipe(file: RecipeFile, out: Path, stage: str, changes: Sequence[str]) -> Recipe:
    table, names = file.table(stage=stage), list(file.stages)
    if position := names.index(stage):
        table = {**table, "init_from": str(out / names[position - 1] / LAST)}
    return parse_recipe(changed(table, changes))


def _has_begun(folder: Path) -> bool:
    return any((folder / name).exists() for name in (CHECKPOINT, LAST))
