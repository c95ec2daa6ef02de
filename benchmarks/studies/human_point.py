"""The human point of the BSDS500 plots: each annotator of the test images scored against the others.

python benchmarks/studies/human_point.py BSDS500
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from pixeldiff.data.edges import find_labels
from pixeldiff.metrics.edges import evaluate_image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bsds500", type=Path)
    labels = find_labels(parser.parse_args().bsds500 / "groundTruth" / "test")
    counts = []
    for one in labels.values():
        masks = one.masks()
        for k, mask in enumerate(masks):
            counts.append(evaluate_image(mask.astype(np.float32), masks[:k] + masks[k + 1 :], [0.5], nms=False))
    total = sum(counts[1:], counts[0])
    recall, precision, f = (float(values[0]) for values in (total.recall, total.precision, total.f))
    print(f"{len(counts)} annotations of {len(labels)} images")
    print(f"recall {recall:.4f}, precision {precision:.4f}, F {f:.4f}")


if __name__ == "__main__":
    main()
