"""Does a packed network for faces say what its torch self says? Vectors and verdicts on LFW's 6,000 pairs; JSON out.

python benchmarks/faces_parity.py WEIGHTS.safetensors LFW_ALIGNED [--lists LFW]

LFW_ALIGNED is LFW after `pixeldiff faces align`; its pairs.txt is there, or in the folder --lists. A verdict is whether
a pair's cosine reaches the best threshold of the torch network.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from pixeldiff.data.faces import read_pairs
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.faces import FaceBenchmark, cosines
from pixeldiff.export.packed import pack_model
from pixeldiff.inference.faces import FaceEmbedder
from pixeldiff.metrics.faces import best_threshold
from pixeldiff.models.saving import load_model
from pixeldiff.training.tasks.faces import embed, read_face


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("lfw", type=Path)
    parser.add_argument("--lists", type=Path)
    options = parser.parse_args()
    model, pairs = load_model(options.weights), read_pairs("lfw", options.lfw, options.lists)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pdn"
        deviation = pack_model(model, path)
        size, packed = path.stat().st_size, FaceEmbedder(path)
    counts = evaluate(FaceBenchmark(pairs, packed.find), [Model("packed", packed)])["packed"]
    ours = np.stack([vector for vector, _ in counts])
    theirs = embed(model, np.stack([read_face(item[0]) for item in pairs.items]))
    scores = [cosines(vectors, pairs) for vectors in (ours, theirs)]
    threshold = best_threshold(scores[1], pairs.same)
    report = {
        "weights": options.weights.name,
        "images": len(ours),
        "worst_deviation": float(np.abs(ours - theirs).max()),
        "pairs": len(pairs.same),
        "same_verdict": int(((scores[0] >= threshold) == (scores[1] >= threshold)).sum()),
        "worst_cosine_deviation": float(np.abs(scores[0] - scores[1]).max()),
        "nearest_pair_to_threshold": float(np.abs(scores[1] - threshold).min()),
        "export_deviation": deviation,
        "file_bytes": size,
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
