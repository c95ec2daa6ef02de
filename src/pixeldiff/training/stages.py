"""What a command trains, and where: one recipe in `out`, or each stage of a network in out/<stage>.

A stage starts from the last weights of the one before. It begins when that one has ended, so a command that is given
again goes on at the last stage that has begun, and leaves the finished ones alone.
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


def plan(file: RecipeFile, out: Path, run: str = "", stage: str = "", changes: Sequence[str] = ()) -> Plan:
    """All that is still to be trained. Every recipe is read now: a mistake in the last one is told before the first."""
    if not file.stages or run:
        return [(out, parse_recipe(changed(file.table(run, stage), changes)))]
    if stage:
        return [(out / stage, _recipe(file, out, stage, changes))]
    others = [change for change in changes if change.partition("=")[0].strip() != "initial"]  # that is for the first
    all_of_them = [
        (out / name, _recipe(file, out, name, others if k else changes)) for k, name in enumerate(file.stages)
    ]
    begun = [k for k, (folder, _) in enumerate(all_of_them) if _has_begun(folder)]
    return all_of_them[max(begun, default=0) :]


def check_data(steps: Plan) -> None:
    """Open what each stage learns from and is scored on, as the stage will, so that a mistake in the last one is told
    before the first step. Stages that are alike in this are opened once."""
    opened: list[tuple[object, ...]] = []
    for folder, recipe in steps:
        parts = (recipe.task, recipe.model, recipe.data, recipe.loss, recipe.evaluate)
        if parts in opened:
            continue
        try:
            task_module(recipe.task).Task(recipe)
        except UserError as error:
            raise InputError(f"stage {folder.name}: {error}") from error
        opened.append(parts)


def _recipe(file: RecipeFile, out: Path, stage: str, changes: Sequence[str]) -> Recipe:
    table, names = file.table(stage=stage), list(file.stages)
    if before := names.index(stage):
        table = {**table, "initial": str(out / names[before - 1] / LAST)}
    return parse_recipe(changed(table, changes))


def _has_begun(folder: Path) -> bool:
    return any((folder / name).exists() for name in (CHECKPOINT, LAST))
