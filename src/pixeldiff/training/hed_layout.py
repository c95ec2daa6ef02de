"""BSDS500 written out in the augmented layout of HED, for programs that read it; our own training does not need it.

train/aug_data{,_scale_0.5,_scale_1.5}/<angle>_1_<flip>/<id>.jpg    16 rotations x 2 flips x 3 scales
train/aug_gt{,_scale_0.5,_scale_1.5}/<angle>_1_<flip>/<id>.png      the share of annotators, 255 = all
test/<id>.jpg
train_pair.lst (train + val: 28,800 lines), train200_pair.lst (train: 19,200), test.lst (images only)
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from PIL import Image

from pixeldiff.data.bsds import split_folders
from pixeldiff.data.lists import list_images
from pixeldiff.errors import UserError
from pixeldiff.files import atomic_path, remove_stale_temp_files
from pixeldiff.training.tasks.edge_pairs import EdgePairs
from pixeldiff.training.tasks.edge_sources import Pair, list_pairs

SCALES = (1.0, 0.5, 1.5)
ROTATIONS = 16


def write_hed_bsds(
    source: Path, destination: Path, processes: int = 1, progress: Callable[[int, int], None] | None = None
) -> int:
    """Write the layout of raw BSDS500 in `source` to the new folder `destination`; returns the number of pairs.

    The folder gets its name when it is complete. `progress` is called with (images done, all images).
    """
    if destination.exists():
        raise UserError(f"{destination} exists; nothing is overwritten, choose another folder")
    splits = {split: list_pairs(source, split) for split in ("train", "val")}
    pairs = [pair for split in splits.values() for pair in split]
    images, _ = split_folders(source, "test")
    test = list_images(images) if images.is_dir() else []
    remove_stale_temp_files([destination.parent])
    with atomic_path(destination) as draft:
        (draft / "test").mkdir(parents=True)
        lines: list[list[str]] = []
        with ProcessPoolExecutor(processes, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for written in pool.map(partial(_write_versions, draft), pairs):
                lines.append(written)
                if progress:
                    progress(len(lines), len(pairs))
        for path in test:
            shutil.copy(path, draft / "test" / path.name)
        _write_list(draft / "train_pair.lst", lines)
        _write_list(draft / "train200_pair.lst", lines[: len(splits["train"])])
        _write_list(draft / "test.lst", [[f"test/{path.name}" for path in test]])
    return sum(map(len, lines))


def _write_versions(root: Path, pair: Pair) -> list[str]:
    """All versions of one image; returns their lines."""
    entries = EdgePairs([pair], 0, ROTATIONS, True, SCALES)
    lines = []
    for index in range(len(entries)):
        _, angle, flip, scale = entries.entry(index)
        suffix = "" if scale == 1 else f"_scale_{scale:g}"
        folder = f"{math.degrees(angle):.1f}_1_{int(flip)}"
        image, label, _ = entries[(0, index)]
        names = (
            f"train/aug_data{suffix}/{folder}/{pair.image.stem}.jpg",
            f"train/aug_gt{suffix}/{folder}/{pair.image.stem}.png",
        )
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / names[0], quality=95, subsampling=0)
        Image.fromarray(label[0].numpy()).save(root / names[1])
        lines.append(" ".join(names))
    return lines


def _write_list(path: Path, groups: list[list[str]]) -> None:
    path.write_text("".join(f"{line}\n" for group in groups for line in group))
