"""Does a packed network say what its torch self says? Logits and top-1 over the whole CIFAR-100 test set; JSON out.

python benchmarks/packed_parity.py WEIGHTS.safetensors CIFAR_FOLDER
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from pixeldiff.data.cifar import read_cifar100
from pixeldiff.export.packed import pack_model
from pixeldiff.inference.classes import Classifier
from pixeldiff.models.saving import load_model
from pixeldiff.training.tasks.images import normalize

BATCH = 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("cifar", type=Path)
    options = parser.parse_args()
    model, data = load_model(options.weights), read_cifar100(options.cifar, "test")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pdn"
        deviation = pack_model(model, path)
        size, packed = path.stat().st_size, Classifier(path)
    worst: list[np.ndarray] = []
    same, right, seconds = 0, 0, [0.0, 0.0]
    for start in range(0, len(data.labels), BATCH):
        images, labels = data.images[start : start + BATCH], data.labels[start : start + BATCH]
        begin = time.perf_counter()
        ours = packed.logits(images)
        middle = time.perf_counter()
        with torch.inference_mode():
            theirs = model(normalize(torch.from_numpy(images).permute(0, 3, 1, 2))).numpy()
        seconds = [seconds[0] + middle - begin, seconds[1] + time.perf_counter() - middle]
        worst.append(np.abs(ours - theirs).max(1))
        same += int((ours.argmax(1) == theirs.argmax(1)).sum())
        right += int((ours.argmax(1) == labels).sum())
    deviations = np.concatenate(worst)
    report = {
        "weights": options.weights.name,
        "images": len(deviations),
        "same_top1": same,
        "top1_percent": round(100 * right / len(deviations), 2),
        "worst_logit_deviation": float(deviations.max()),
        "images_beyond_1e-3": int((deviations > 1e-3).sum()),
        "export_deviation": deviation,
        "file_bytes": size,
        "packed_seconds": round(seconds[0], 2),
        "torch_seconds": round(seconds[1], 2),
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
