"""A small detector with random weights as an .onnx file, made when torch is there."""

from pathlib import Path

CLASSES = ("cat", "dog")


def write_detector(folder: Path, nms: bool = False, **changes: object) -> Path:
    """Its scores spread over 0 to 1, so that some boxes are found in anything."""
    import torch

    from pixeldiff.export.objects import export_objects
    from pixeldiff.models import create_model
    from pixeldiff.models.calibration import calibrate_batch_norm
    from pixeldiff.models.saving import save_model

    torch.manual_seed(1)
    config = {"width": 0.25, "channels": 16, "kind": "central", "ratio": 0.3, "classes": 2, **changes}
    model = calibrate_batch_norm(create_model("ghostnet_objects", **config))
    with torch.no_grad():
        for output in model.outputs:
            output.weight.mul_(10)
            output.bias[:2] = -1.0
    weights = folder / "random.safetensors"
    save_model(model, weights, {"labels": list(CLASSES), "preprocessing": _preprocessing(), "license": "Apache-2.0"})
    export_objects(weights, folder / "random.onnx", nms=nms)
    return folder / "random.onnx"


def _preprocessing() -> dict[str, object]:
    from pixeldiff.image import preprocessing

    return preprocessing(size=96)
