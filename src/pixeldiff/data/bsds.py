"""BSDS500 as it is published: images/<split>/<name>.jpg with groundTruth/<split>/<name>.mat, in train, val and test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pixeldiff.data.truth import GroundTruth, find_ground_truth
from pixeldiff.errors import UserError

ORIGIN = "BSDS500: https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/bsds/; others: docs/guide/training.md"
SPLITS = ("train", "val", "test")


def split_folders(root: Path, split: str) -> tuple[Path, Path]:
    """The images of a split, and their annotations."""
    return root / "images" / split, root / "groundTruth" / split


def find_split(root: Path, split: str) -> dict[str, GroundTruth]:
    """The annotators of each image, with the image, which need not be there to score maps."""
    images, truths = split_folders(root, split)
    if not truths.is_dir() and split not in SPLITS and truths.parent.is_dir():
        raise UserError(f"BSDS500 has {', '.join(SPLITS)}, not {split!r}")
    if not truths.is_dir():
        raise UserError(f"{root} is not BSDS500: no images/{split} with groundTruth/{split} in it; get {ORIGIN}")
    return {name: replace(one, image=images / f"{name}.jpg") for name, one in find_ground_truth(truths).items()}
