"""Put the weights of a run into the package: safetensors, the file that runs if it is another one, and a model card.

    pixeldiff eval edges -m runs/tiny/whole/last.safetensors --dataset bsds500 --data-dir BSDS500 --json tiny.json
    python tools/ship.py tiny runs/tiny/whole/last.safetensors tiny.json --recipe edges/tiny --stage whole \
        --data "BSDS500 train + val" --note "what a reader should know"

`pixeldiff.tasks` names the suffix of the file that runs, and the scores.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from pixeldiff.cli.export import EXPORTERS
from pixeldiff.files import atomic_write
from pixeldiff.models import list_models, model_config
from pixeldiff.models.saving import load_model, read_metadata, save_model
from pixeldiff.tasks import find_task, load
from pixeldiff.training.recipe import Recipe, as_table, parse_recipe, read_recipe
from pixeldiff.weights import canonical_name, sha256
from pixeldiff.weights.description import TRAINED

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "src/pixeldiff/weights"  # of the clone, not of an installed package

# By task: the command that scores a pretrained model, the license of shipped weights, and scores that a model card has
# beyond those that rank models.
COMMANDS = {
    "edges": "pixeldiff eval edges -m {name} --dataset bsds500 --data-dir BSDS500",
    "classes": "pixeldiff eval classes -m {name} --dataset cifar100 --data-dir cifar-100-python",
    "faces": "pixeldiff eval faces -m {name} --dataset lfw --data-dir lfw",
    "objects": "pixeldiff eval objects -m {name} --dataset voc --data-dir VOCdevkit",
}
LICENSES = {
    "edges": "Apache-2.0 for the file; BSDS500, on which it was trained, is for non-commercial research and education",
    "classes": "Apache-2.0 for the file; CIFAR-100, on which it was trained, names no license: take it for research",
    "faces": "Apache-2.0 for the file; CFP and IMFDB, on which it was trained, are for research",
    "objects": "Apache-2.0 for the file; VOC 2012, on which it was trained, has photographs of Flickr under its terms",
}
EXTRA_SCORES = {"faces": ("threshold", "true_accepts", "false_accepts")}


def decisive(recipe: Recipe) -> dict[str, Any]:
    """Return the parts of a recipe that change what is learned, without the places of its images and first weights."""
    table = as_table(recipe)
    table["data"] = {key: value for key, value in table["data"].items() if key not in ("root", "roots")}
    parts = {key: table[key] for key in ("task", "model", "data", "augment", "loss", "optimizer", "seed")}
    unused = ("milestones", "factor") if recipe.schedule.name == "cosine" else ()
    schedule = {key: value for key, value in table["schedule"].items() if key not in unused}
    parts["schedule"] = {**schedule, "samples": recipe.steps}
    train = ("batch_size", "grad_accum_steps", "ema_decay", "precision")
    return {**parts, **{f"train.{key}": table["train"][key] for key in train}}


def recipe_words(facts: dict[str, str]) -> dict[str, str]:
    """Return what names a recipe: its name, and the variant or the stage."""
    return {key: facts[key] for key in ("recipe", "variant", "stage") if facts.get(key)}


def card_scores(task: str) -> tuple[str, ...]:
    """Return the names of the scores that a model card of a task holds."""
    return (*find_task(task).scores, *EXTRA_SCORES.get(task, ()))


def license(task: str, facts: dict[str, str]) -> str:
    """Return the task's license, with the terms of what else a network was trained on."""
    return "; ".join(filter(None, [LICENSES[task], facts.get("terms")]))


def card(name: str, weights: Path, scores: dict[str, Any], **facts: str) -> dict[str, Any]:
    """Return the model card of a network whose files `<name>.*` are in the package."""
    described = read_metadata(weights)
    task = find_task(described["task"])
    files = sorted(path for path in FOLDER.glob(f"{name}.*") if path.suffix in (task.suffix, TRAINED))
    return {
        "name": name,
        "task": described["task"],
        "params": sum(p.numel() for p in load_model(weights).parameters()),
        "files": {path.suffix: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files},
        **{key: round(scores[key], 4) for key in card_scores(task.name)},
        "command": COMMANDS[task.name].format(name=name),
        **recipe_words(facts),
        "commit": described["commit"],
        "data": facts["data"],
        "wall_clock_hours": described["wall_clock_hours"],
        "steps": described["steps"],
        "seed": described["recipe"]["seed"],
        "license": license(task.name, facts),
        "note": facts["note"],
    }


def ship(name: str, weights: Path, scores: dict[str, Any], **facts: str) -> Path:
    """Save with the license inside, export, and write the model card last; return the card's file."""
    name = canonical_name(name)
    described = read_metadata(weights)
    task = find_task(described["task"])
    if not scores.keys() >= {*card_scores(task.name), "sha256"} or scores["sha256"] != sha256(weights):
        raise click.UsageError(
            f"these are not the scores of {weights}: run `pixeldiff eval {task.name} -m {weights} --json FILE`"
        )
    usual = {"edges": "test", "objects": "val"}.get(task.name)
    if (split := scores.get("split")) not in (None, usual):
        raise click.UsageError(f"a card's scores are of {usual}, these of {split}; score again without --split")
    if strong := {"flip", "scales"} & scores.keys():
        raise click.UsageError(
            f"a card's scores are of one scale without flips; score again without {', '.join(strong)}"
        )
    named = read_recipe(**recipe_words(facts))
    _check_facts(name, described, named, recipe_words(facts))
    # The shipped recipe: that of the run holds folders of the machine on which it ran.
    metadata = {**described, "recipe": as_table(named), "license": license(task.name, facts)}
    save_model(load_model(weights), FOLDER / f"{name}{TRAINED}", metadata)
    if task.suffix != TRAINED:
        export = load(EXPORTERS[task.name])
        export(FOLDER / f"{name}{TRAINED}", FOLDER / f"{name}{task.suffix}")  # the file takes its name
    path = FOLDER / f"{name}.json"
    atomic_write(path, (json.dumps(card(name, weights, scores, **facts), indent=1) + "\n").encode())
    return path


def _check_facts(name: str, described: dict[str, Any], recipe: Recipe, words: dict[str, str]) -> None:
    """Raise an error unless the file was trained by the recipe of the card and is the network of that name."""
    inside, named = decisive(parse_recipe(described["recipe"])), decisive(recipe)
    if other := [key for key in inside if inside[key] != named[key]]:
        raise click.UsageError(
            f"{' '.join(words.values())} is not what these weights were trained with: {', '.join(other)} differ"
        )
    if name in list_models() and dataclasses.asdict(model_config(name)) != described["config"]:
        raise click.UsageError(f"these are not the weights of a {name}: their network has another configuration")


@click.command()
@click.argument("name")
@click.argument("weights", type=click.Path(path_type=Path, exists=True))
@click.argument("scores", type=click.Path(path_type=Path, exists=True))
@click.option("--recipe", required=True, help="Name of a shipped recipe, such as edges/tiny.")
@click.option("--variant", default="", help="Variant of the recipe.")
@click.option("--stage", default="", help="Stage of the recipe.")
@click.option("--data", required=True, help="Description of the training data.")
@click.option("--terms", default="", help="Further terms of the training images, beyond the task's license.")
@click.option("--note", required=True, help="Note for readers of the model card.")
def main(name: str, weights: Path, scores: Path, **facts: str) -> None:
    """Put WEIGHTS (.safetensors of a run) into the package as NAME, with its SCORES (`pixeldiff eval --json`)."""
    results = json.loads(scores.read_text())["results"]
    if len(results) != 1:
        raise click.UsageError(f"{scores} holds {len(results)} results; score {weights} alone")
    print(ship(name, weights, results[0], **facts))
    print("Now update the images of the docs: make gallery; python tools/poster.py docs/images/poster.jpg")


if __name__ == "__main__":
    main()
