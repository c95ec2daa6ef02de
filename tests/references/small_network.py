"""The small edge network of the tests: random weights, maps that span most of [0, 1], as `pixeldiff export` writes it.

Its file lies beside, so that tests of the light world need no torch; `python -m tests.references.small_network`
writes it anew, and tests/export/test_small_network.py compares the two.
"""

from pathlib import Path

FILE = Path(__file__).with_name("small-random.onnx")


def write(path: Path) -> None:
    import torch

    from pixeldiff.export.onnx import export_onnx
    from pixeldiff.models import create_model

    torch.manual_seed(0)
    model = create_model("tiny", width=8, side_channels=4)
    with torch.no_grad():
        for side in model.sides:
            side.reduce.weight.mul_(40)
    export_onnx(model, path, {"name": "small-random", "licence": "Apache-2.0"})


if __name__ == "__main__":
    write(FILE)
