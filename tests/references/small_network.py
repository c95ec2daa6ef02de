"""The small edge network of the tests: random weights, maps that span most of [0, 1]; trained file and export.

They lie beside, so that tests of the light world need no torch; `python -m tests.references.small_network` writes them
anew, and tests/export/test_small_network.py compares.
"""

from pathlib import Path

TRAINED = Path(__file__).with_name("small-random.safetensors")
FILE = TRAINED.with_suffix(".onnx")


def write(path: Path) -> None:
    """The .onnx file, and the trained one beside it."""
    import torch

    from pixeldiff.export.onnx import export_onnx
    from pixeldiff.models import create_model
    from pixeldiff.models.saving import save_model

    torch.manual_seed(0)
    model = create_model("tiny", width=8, side_channels=4)
    with torch.no_grad():
        for side in model.sides:
            side.reduce.weight.mul_(40)
    described = {"name": "small-random", "license": "Apache-2.0"}
    export_onnx(model, path, described)
    save_model(model, path.with_suffix(".safetensors"), described)


if __name__ == "__main__":
    write(FILE)
