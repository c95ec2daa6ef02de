"""Seconds of one core for all 75 corruptions of one 481 x 321 image, per kind; JSON on stdout.

python benchmarks/corruptions.py [IMAGE]
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from pixeldiff import image
from pixeldiff.evaluation.corruptions import KINDS, SEVERITIES, corrupt

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "coffee.jpg"


def main() -> None:
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGE
    photo = np.asarray(Image.fromarray(image.read(source)).resize((481, 321)))
    seconds = {}
    for kind in KINDS:
        start = time.process_time()
        for severity in SEVERITIES:
            corrupt(photo, severity, kind)
        seconds[kind] = round(time.process_time() - start, 3)
    json.dump(
        {"size": [481, 321], "cpu_seconds": seconds, "total": round(sum(seconds.values()), 2)}, sys.stdout, indent=1
    )


if __name__ == "__main__":
    main()
