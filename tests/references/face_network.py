"""A network for faces with random weights, of two layers, as a .pdn file; written without torch."""

import json
from pathlib import Path

import numpy as np

from tests.references.tensors import save

SIZE = 16  # numbers in an embedding


def write(path: Path, seed: int = 0) -> Path:
    rng = np.random.default_rng(seed)
    described = {
        "format": "pixeldiff-packed",
        "version": 2,
        "name": path.stem,
        "task": "faces",
        "license": "none",
        "labels": [],
        "preprocessing": {"size": [112, 96], "mean": [0.5] * 3, "std": [128 / 255] * 3},
        "layers": [
            {"op": "conv", "inputs": 3, "outputs": 4, "kernel_size": 15, "stride": 16, "rprelu": False},
            {"op": "flatten_linear", "inputs": 4, "outputs": SIZE, "height": 7, "width": 6},
        ],
    }
    tensors = {
        "0.weight": rng.normal(size=(4, 3, 15, 15)).astype(np.float32),
        "0.norm": rng.normal(size=(2, 4)).astype(np.float32),
        "1.weight": rng.normal(size=(SIZE, 4, 7, 6)).astype(np.float32),
        "1.bias": rng.normal(size=SIZE).astype(np.float32),
    }
    path.write_bytes(save(tensors, {"pixeldiff": json.dumps(described)}))
    return path
