"""Old keys of weights files, migrated on read: a rename in the code never rewrites a file."""

from __future__ import annotations

from typing import Any

RENAMED = {"licence": "license"}
TASKS = {"boxes": "objects"}
NAMES = {"cpdc-boxes": "cpdc-objects", "ghostnet_boxes": "ghostnet_objects"}
CONFIG = {"share": "ratio"}  # of networks
RECIPE = {
    "model": CONFIG,
    "optimizer": {"kind": "name"},
    "data": {"colour": "color"},
    "evaluate": {"pictures": "images"},
}


def migrate(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a weights file with today's keys and names."""
    migrated = {RENAMED.get(key, key): value for key, value in metadata.items()}
    task = migrated.get("task")
    if isinstance(task, str):
        migrated["task"] = TASKS.get(task, task)
    name = migrated.get("name")
    if isinstance(name, str):
        migrated["name"] = NAMES.get(name, name)
    if isinstance(config := migrated.get("config"), dict):
        migrated["config"] = {CONFIG.get(key, key): value for key, value in config.items()}
    if isinstance(recipe := migrated.get("recipe"), dict):
        migrated["recipe"] = _migrate_recipe(recipe)
    return migrated


def _migrate_recipe(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe that a file was trained by, likewise."""
    migrated = {**recipe, "task": TASKS.get(recipe.get("task", ""), recipe.get("task"))}
    if isinstance(model := migrated.get("model"), dict) and model.get("name") in NAMES:
        migrated["model"] = {**model, "name": NAMES[model["name"]]}
    for table, keys in RECIPE.items():
        if isinstance(old := migrated.get(table), dict):
            migrated[table] = {keys.get(key, key): value for key, value in old.items()}
    return migrated
