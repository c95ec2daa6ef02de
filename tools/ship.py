"""Put the weights of a run into the package: safetensors, ONNX, and the card that says where they come from.

    pixeldiff eval --weights runs/tiny/last.safetensors --dataset bsds500 --data BSDS500 --json tiny.json
    python tools/ship.py tiny runs/tiny/last.safetensors tiny.json --recipe recipes/pidinet-tiny-bsds500.toml \
        --data "BSDS500 train + val" --note "what a reader should know"
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pixeldiff.checkpoint import load_model, read_metadata, save_model
from pixeldiff.export import export_weights
from pixeldiff.weights import FOLDER, canonical_name, sha256

LICENCE = "Apache-2.0 for the file; BSDS500, on which it was trained, is for non-commercial research and education"
COMMAND = "pixeldiff eval --model {name} --dataset bsds500 --data BSDS500"


def card(name: str, weights: Path, scores: dict[str, Any], **facts: str) -> dict[str, Any]:
    """What is known about a network whose files `<name>.*` lie in the package."""
    described = read_metadata(weights)
    files = sorted(path for path in FOLDER.glob(f"{name}.*") if path.suffix in (".onnx", ".safetensors"))
    return {
        "name": name,
        "task": described.get("task", "edges"),
        "params": sum(p.numel() for p in load_model(weights).parameters()),
        "files": {path.suffix: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in files},
        **{key: round(scores[key], 4) for key in ("ods", "ois", "ap")},
        "command": COMMAND.format(name=name),
        "recipe": facts["recipe"],
        "commit": described["commit"],
        "data": facts["data"],
        "wall_clock_hours": described["wall_clock_hours"],
        "steps": described["steps"],
        "seed": described["recipe"]["seed"],
        "licence": LICENCE,
        "note": facts["note"],
    }


def ship(name: str, weights: Path, scores: dict[str, Any], **facts: str) -> Path:
    """Save with the licence inside, export, write the card last; returns the card's file."""
    name = canonical_name(name)
    described = {**read_metadata(weights), "licence": LICENCE}
    save_model(load_model(weights), FOLDER / f"{name}.safetensors", described)
    export_weights(FOLDER / f"{name}.safetensors", FOLDER / f"{name}.onnx")  # the file says its own name
    path = FOLDER / f"{name}.json"
    path.write_text(json.dumps(card(name, weights, scores, **facts), indent=1) + "\n")
    return path


@click.command()
@click.argument("name")
@click.argument("weights", type=click.Path(path_type=Path, exists=True))
@click.argument("scores", type=click.Path(path_type=Path, exists=True))
@click.option("--recipe", required=True, help="The recipe's path in the repository.")
@click.option("--data", required=True, help="What it was trained on, in words.")
@click.option("--note", required=True, help="What a reader should know.")
def main(name: str, weights: Path, scores: Path, recipe: str, data: str, note: str) -> None:
    """NAME in the package, its WEIGHTS (.safetensors of a run), its SCORES (`pixeldiff eval --json`)."""
    print(ship(name, weights, json.loads(scores.read_text()), recipe=recipe, data=data, note=note))


if __name__ == "__main__":
    main()
