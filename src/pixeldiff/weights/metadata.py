"""Old keys of weights files, migrated on read: a rename in the code never rewrites a file."""

from __future__ import annotations

from typing import Any

RENAMED = {"licence": "license"}
TASKS = {"boxes": "objects"}
NAMES = {"cpdc-boxes": "cpdc-objects", "ghostnet_boxes": "ghostnet_objects"}
CONFIG = {"share": "ratio"}  # of networks
RECIPE_KEYS = {  # old recipes have a table [loop]; these keys moved with their values, `_computed_keys` has the others
    "paper": "reference",
    "initial": "init_from",
    "optimizer.kind": "optimizer.name",
    "schedule.kind": "schedule.name",
    "loop.accumulate": "train.grad_accum_steps",
    "loop.ema": "train.ema_decay",
    "loop.log_steps": "train.log_every",
    "loop.evaluate_steps": "train.eval_every",
    "loop.preview_steps": "train.preview_every",
    **{f"loop.{key}": f"train.{key}" for key in ("channels_last", "compile", "workers", "checkpoint_minutes")},
    "data.colour": "augment.color_jitter",
    "data.color": "augment.color_jitter",
    "data.flips": "augment.hflip",
    "data.scales": "augment.scale",
    "data.area": "augment.min_area",
    **{f"data.{key}": f"augment.{key}" for key in ("rotations", "crop", "zoom", "stretch", "mosaic", "padding")},
    "data.leave_out": "data.exclude",
    "evaluate.pictures": "evaluate.limit",
    "evaluate.images": "evaluate.limit",
    "evaluate.batch": "evaluate.batch_size",
    "evaluate.data": "evaluate.root",
}
COMPUTED = {f"loop.{key}" for key in ("batch", "bf16")} | {f"schedule.{key}" for key in ("epochs", "milestones")}
COMPUTED |= {"data.fill", "data.share", "data.sources", "evaluate.sources"}


def migrate(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a weights file with current keys and names."""
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
        migrated["recipe"] = _migrate_recipe(recipe, migrated.get("steps"))
    if "initial_sha256" in migrated:
        migrated["lineage"] = {"init_from": migrated.pop("initial_sha256")}
    return migrated


def _migrate_recipe(recipe: dict[str, Any], steps: Any) -> dict[str, Any]:
    """Return the recipe that a file was trained by, with today's keys; `steps` is the number of its steps."""
    task = recipe.get("task")
    migrated = {**recipe, "task": TASKS.get(task, task) if isinstance(task, str) else task}
    if isinstance(model := migrated.get("model"), dict):
        model = {CONFIG.get(key, key): value for key, value in model.items()}
        name = model.get("name")
        migrated["model"] = {**model, "name": NAMES[name]} if isinstance(name, str) and name in NAMES else model
    if not isinstance(migrated.get("loop"), dict):
        return migrated
    flat: dict[str, Any] = {}
    for key, value in migrated.items():
        flat |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    try:
        computed = _computed_keys(flat, steps)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):  # not a recipe: whoever needs it says so
        return migrated
    tables: dict[str, Any] = {}
    for key, value in ({RECIPE_KEYS.get(k, k): v for k, v in flat.items() if k not in COMPUTED} | computed).items():
        table, _, name = key.rpartition(".")
        (tables.setdefault(table, {}) if table else tables)[name] = value
    return tables


def _computed_keys(flat: dict[str, Any], steps: Any) -> dict[str, Any]:
    """Return today's keys whose values follow from several old ones. The old length was in epochs."""
    epochs, batch = flat["schedule.epochs"], flat["loop.batch"]
    computed = {
        "schedule.samples": int(steps) * batch,
        "train.batch_size": batch // flat.get("loop.accumulate", 1),
        "train.precision": "bf16" if flat.get("loop.bf16") else "fp32",
    }
    if flat["schedule.kind"] == "multistep":
        computed["schedule.milestones"] = [round(milestone / epochs, 6) for milestone in flat["schedule.milestones"]]
    if "data.fill" in flat:
        computed["augment.pad"] = "reflect" if flat["data.fill"] else "none"
    for table in ("data", "evaluate"):
        if f"{table}.sources" in flat:
            fraction = flat.get("data.share", 0.0)
            read = _edge_source if flat["task"] == "edges" else _object_source
            computed[f"{table}.sources"] = [read(source, fraction) for source in flat[f"{table}.sources"]]
    return computed


def _object_source(source: str, fraction: float) -> dict[str, Any]:
    return {"type": "coco" if source.endswith(".json") else "voc", "split": source}


def _edge_source(source: str, fraction: float) -> dict[str, Any]:
    """Return the table of a source that was a string: "train", "a.lst", "photos:edges", "soft:photos:maps" ..."""
    kind, _, rest = source.partition(":")
    if kind == "blend":
        inner, _, maps = rest.rpartition(":")
        return {**_edge_source(inner, 0.0), "maps": maps}
    if kind in ("soft", "objects") and ":" in rest:
        keys = ("images", "maps") if kind == "soft" else ("images", "labels", "maps")
        new_kind = "pseudo-labels" if kind == "soft" else "outlines"
        return {"type": new_kind, **dict(zip(keys, rest.split(":"), strict=True)), "fraction": fraction}
    if rest:
        return {"type": "folders", "images": kind, "labels": rest}
    if source.endswith((".lst", ".txt", ".json")):
        return {"type": "list", "file": source}
    return {"type": "bsds500", "split": source}
