"""Ancestry of weights as data: the sha256 of the weights that a run starts from and learns from."""

from __future__ import annotations

import json
from pathlib import Path

from pixeldiff.data.lists import find_root
from pixeldiff.training.recipe import Recipe
from pixeldiff.weights import sha256, training_file

TEACHER = "teacher.json"  # in a folder of maps: the sha256 of the weights that made them


def lineage(recipe: Recipe) -> dict[str, str]:
    """Return the sha256 of `init_from`, of the teacher, and of the teacher of each folder of maps that names it."""
    digests = {}
    if recipe.init_from:
        digests["init_from"] = sha256(training_file(recipe.init_from))
    if teacher := getattr(recipe.loss, "teacher", ""):
        digests["teacher"] = sha256(training_file(teacher))
    for source in getattr(recipe.data, "sources", ()):
        if maps := getattr(source, "maps", ""):
            path = Path(find_root(recipe.data.root, "the data of the recipe")) / maps / TEACHER
            if path.is_file():
                digests[f"maps {maps}"] = str(json.loads(path.read_text()).get("sha256", ""))
    return digests
