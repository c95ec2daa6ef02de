"""What a command trains, and where: one recipe in `out`, or each stage of a network in out/<stage>.

A stage starts from the last weights of the one before, and begins when that one has ended. So the same command resumes
at the last stage that has begun, and skips the finished ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pixeldiff.errors import InputError, UserError
from pixeldiff.training.recipe import Recipe, parse_recipe
from pixeldiff.training.recipe_file import RecipeFile, changed
from pixeldiff.training.run import CHECKPOINT, LAST
from pixeldiff.training.tasks import task_module

Plan = list[tuple[Path, Recipe]]  # in order, each with its folder


def plan(file: RecipeFile, out: Path, variant: str = "", stage: str = "", changes: Sequence[str] = ()) -> Plan:
    """List what is still to be trained. All recipes are checked now, not when their stage begins."""
    if not file.stages or variant:
        return [(out, parse_recipe(changed(file.table(variant, stage), changes)))]
    if stage:
        return [(out / stage, _recipe(file, out, stage, changes))]
    later = [change for change in changes if change.partition("=")[0].strip() != "init_from"]  # of the first stage
    stages = [(out / name, _recipe(file, out, name, later if k else changes)) for k, name in enumerate(file.stages)]
    begun = [k for k, (folder, _) in enumerate(stages) if _has_begun(folder)]
    return stages[max(begun, default=0) :]


def check_data(steps: Plan) -> None:
    """Open the data of each stage, so that a mistake in the last is an error before the first step.

    Stages with the same data are opened once.
    """
    opened: list[tuple[object, ...]] = []
    for folder, recipe in steps:
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
