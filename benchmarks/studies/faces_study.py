"""The reduced study of faces: trains the runs of faces/quarter, scores them and writes its table.

    PIXELDIFF_DATA=... python benchmarks/studies/faces_study.py --out runs/faces --faces data/faces [--table]

PIXELDIFF_DATA holds faces-aligned/cfp (with CFP's lists) and faces-aligned/imfdb, made by `pixeldiff faces align`.
--faces holds lfw and cfp as they are: each image is aligned once, and the images without a face are taken whole.
Runs that are finished stay as they are, interrupted ones go on; --table only scores what is there, and what is scored
already is kept in <out>/<run>/scores.json. Binary networks run packed, the float one in torch.
The errors of a difference are standard errors over folds and seeds (LFW: ten folds per seed), each paired.
Written: <out>/study.json and <out>/study.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from pixeldiff import image
from pixeldiff.data.faces import Pairs, read_pairs
from pixeldiff.evaluation.faces import cosines
from pixeldiff.export.packed import pack_model
from pixeldiff.files import atomic_write
from pixeldiff.inference.alignment import FaceAligner, NoFaceError
from pixeldiff.inference.faces import FaceEmbedder
from pixeldiff.metrics.faces import fold_accuracies, summarize
from pixeldiff.models.saving import load_model
from pixeldiff.training.tasks.faces import embed
from pixeldiff.weights import sha256

RECIPE = "faces/quarter"
SEEDS = {"float": (0,), "vanilla": (0, 1), "bicpdc": (0,), "biapdc": (0, 1), "birpdc": (0,)}
PAIR = ("vanilla", "biapdc")
WORDS = {
    "pixels": "raw pixels, cosine",
    "float": "full precision",
    "vanilla": "vanilla binary",
    "bicpdc": "Bi-CPDC, xi 0.2",
    "biapdc": "Bi-APDC, xi 0.2",
    "birpdc": "Bi-RPDC, xi 0.2",
}
DATASETS = {"lfw": "lfw", "cfp-ff": "cfp", "cfp-fp": "cfp"}

Faces = NDArray[np.uint8]
Embed = Callable[[Faces], NDArray[np.float32]]
Scores = dict[str, dict[str, Any]]  # data set -> numbers


def runs() -> list[tuple[str, int]]:
    return [(name, seed) for seed in (0, 1) for name, seeds in SEEDS.items() if seed in seeds]


def train(name: str, seed: int, out: Path) -> None:
    words = ["train", RECIPE, "--variant", name, "--set", f"seed={seed}", "-o", str(out / f"{name}-{seed}")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "pixeldiff", *words], env=environment, check=True)


# --- scores ----------------------------------------------------------------------------------------------------------


class Sets:
    """The pairs of every data set and its aligned faces, kept in memory."""

    def __init__(self, faces: Path, kept: Path) -> None:
        self.pairs: dict[str, Pairs] = {name: read_pairs(name, faces / folder) for name, folder in DATASETS.items()}
        self.faces: dict[str, Faces] = {}
        aligner = FaceAligner()
        for name, pairs in self.pairs.items():
            file = kept / f"{name}.npy"
            if not file.exists():
                np.save(file, np.stack([_aligned(aligner, item[0]) for item in pairs.items]))
            self.faces[name] = np.load(file)

    def score(self, embed: Embed) -> Scores:
        found = {}
        for name, pairs in self.pairs.items():
            scores = cosines(embed(self.faces[name]), pairs)
            folds = fold_accuracies(scores, pairs.same, pairs.folds)
            found[name] = {**summarize(scores, pairs.same, pairs.folds), "fold_accuracies": (100 * folds).tolist()}
        return found


def _aligned(aligner: FaceAligner, path: Path) -> Faces:
    photo = image.read8(path)
    try:
        return aligner(photo).image
    except NoFaceError:
        return image.as_8_bit(image.reduce(photo, image.FACE))


def pixels(faces: Faces) -> NDArray[np.float32]:
    """The baseline: what the network is given, and its mirror image, as a unit vector."""
    x = (faces.astype(np.float32) - 127.5) / 128
    both = np.concatenate([x.reshape(len(x), -1), x[:, :, ::-1].reshape(len(x), -1)], 1)
    unit: NDArray[np.float32] = both / np.linalg.norm(both, axis=1, keepdims=True)
    return unit


def scores_of(run: Path, sets: Sets) -> Scores | None:
    """Of a finished run's last weights."""
    weights = run / "last.safetensors"
    if not weights.exists() or not _finished(run):
        return None
    model = load_model(weights)
    binary = model.config.architecture == "binary"  # type: ignore[union-attr]
    return _kept(
        run / "scores.json",
        sha256(weights),
        lambda: sets.score(_packed(model) if binary else lambda faces: embed(model, faces)),
    )


def _kept(path: Path, of: str, score: Callable[[], Scores]) -> Scores:
    """The scores of those weights, from the file if they are in it."""
    if path.exists() and (known := json.loads(path.read_text()))["sha256"] == of:
        scores: Scores = known["scores"]
        return scores
    found = score()
    atomic_write(path, json.dumps({"sha256": of, "scores": found}, indent=1).encode())
    return found


def _packed(model: nn.Module) -> Embed:
    """The same numbers as torch's to 1e-4, and many times as quick."""
    with tempfile.TemporaryDirectory() as folder:
        pack_model(model, Path(folder) / "model.pdn")
        network = FaceEmbedder(Path(folder) / "model.pdn")
    return lambda faces: np.concatenate([network.embed(faces[k : k + 16]) for k in range(0, len(faces), 16)])


def _finished(run: Path) -> bool:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return any("auc" in json.loads(line) for line in lines if line.endswith("}"))


# --- the table -------------------------------------------------------------------------------------------------------


def paired_difference(table: dict[str, dict[str, Scores]], dataset: str) -> dict[str, float] | None:
    """Bi-APDC minus vanilla in accuracy, over the folds of the seeds that both have."""
    reference, ours = (table.get(name, {}) for name in PAIR)
    differences = [
        np.subtract(ours[seed][dataset]["fold_accuracies"], reference[seed][dataset]["fold_accuracies"])
        for seed in sorted(ours.keys() & reference.keys())
    ]
    if not differences:
        return None
    every = np.concatenate(differences)
    return {
        "mean": float(every.mean()),
        "standard_error": float(every.std(ddof=1) / len(every) ** 0.5),
        "seeds": len(differences),
        "of_seeds": [float(one.mean()) for one in differences],  # type: ignore[dict-item]
    }


def as_markdown(table: dict[str, dict[str, Scores]]) -> str:
    heads = [f"{name.upper()} {what}" for name in DATASETS for what in ("accuracy (%)", "AUC")]
    lines = [f"| network | seed | {' | '.join(heads)} |", "|---" * (2 + len(heads)) + "|"]
    for name, words in WORDS.items():
        for seed, scores in table.get(name, {}).items():
            cells = [
                cell
                for dataset in DATASETS
                for cell in (
                    f"{scores[dataset]['accuracy']:.2f} +- {scores[dataset]['accuracy_error']:.2f}",
                    f"{scores[dataset]['auc']:.3f}",
                )
            ]
            lines.append(f"| {words} | {seed if name != 'pixels' else ''} | {' | '.join(cells)} |")
    lines += ["", "Bi-APDC minus vanilla, accuracy, paired over folds and seeds:", ""]
    for dataset in DATASETS:
        if found := paired_difference(table, dataset):
            each = ", ".join(f"{one:+.2f}" for one in found["of_seeds"])  # type: ignore[attr-defined]
            lines.append(
                f"- {dataset.upper()} {found['mean']:+.2f} +- {found['standard_error']:.2f} (seed by seed {each})"
            )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--faces", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="only score what is finished and write the table")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, seed in [] if options.table else runs():
        train(name, seed, options.out)
    sets = Sets(options.faces, options.out)
    table: dict[str, dict[str, Scores]] = {
        "pixels": {"0": _kept(options.out / "pixels.json", "", lambda: sets.score(pixels))}
    }
    for name, seed in runs():
        if found := scores_of(options.out / f"{name}-{seed}", sets):
            table.setdefault(name, {})[str(seed)] = found
    result = {"runs": table, "biapdc_minus_vanilla": {name: paired_difference(table, name) for name in DATASETS}}
    for file, text in (("study.json", json.dumps(result, indent=1) + "\n"), ("study.md", as_markdown(table))):
        atomic_write(options.out / file, text.encode())
    print(as_markdown(table), end="")


if __name__ == "__main__":
    main()
