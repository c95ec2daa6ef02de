"""Detectors as ONNX: the network's own results for any size, suppression inside the graph as outside."""

import numpy as np
import onnx
import pytest
import torch

from pixeldiff.cli import main
from pixeldiff.errors import UserError
from pixeldiff.export.objects import export_objects
from pixeldiff.inference.objects import THRESHOLD, ObjectDetector, choose
from pixeldiff.inference.onnx_session import open_session
from pixeldiff.models import create_model
from pixeldiff.models.saving import load_model, save_model
from tests.references.box_network import write_detector


def test_the_graph_agrees_at_any_size(tmp_path):
    path = write_detector(tmp_path)
    model, session = load_model(tmp_path / "random.safetensors"), open_session(path, 1, None)
    for shape in ((1, 3, 32, 32), (3, 3, 64, 160)):
        x = torch.randn(shape)
        boxes, scores = session.run(["boxes", "scores"], {"image": x.numpy()})
        with torch.no_grad():
            logits, corners = model.decode(model(x))
        np.testing.assert_allclose(scores, logits.sigmoid(), atol=1e-4)
        np.testing.assert_allclose(boxes, corners, rtol=1e-3, atol=1e-2)


def test_suppression_inside_is_that_outside(tmp_path):
    path = write_detector(tmp_path, nms=True)
    detector = ObjectDetector(path, threads=1)  # it has both
    outputs = [output.name for output in detector.session.get_outputs()]
    assert outputs == ["boxes", "scores", "detected_boxes", "detected_scores", "detected_labels", "detected_images"]
    image = np.random.default_rng(0).normal(size=(2, 3, 96, 96)).astype(np.float32)
    boxes, scores, found, values, labels, images = detector.session.run(outputs, {"image": image})
    assert len(found) > 3
    for one in range(2):
        outside = choose(boxes[one], scores[one], THRESHOLD)
        own = images == one
        order = np.lexsort((labels[own], -values[own]))
        np.testing.assert_allclose(found[own][order], outside.boxes[np.lexsort((outside.labels, -outside.scores))])


def test_the_command(tmp_path, capsys):
    write_detector(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["export", str(tmp_path / "random.safetensors"), "-o", str(tmp_path / "n.onnx"), "--nms"])
    assert stopped.value.code == 0
    assert "detected_boxes" in [output.name for output in onnx.load(tmp_path / "n.onnx").graph.output]
    with pytest.raises(SystemExit) as stopped:
        main(["export", "tiny", "-o", str(tmp_path / "t.onnx"), "--nms"])
    assert stopped.value.code == 2
    assert "--nms is for networks for objects, not for edges" in capsys.readouterr().err


def test_the_body_alone_is_refused(tmp_path):
    save_model(create_model("ghostnet", width=0.25, classes=2), tmp_path / "body.safetensors")
    with pytest.raises(UserError, match="holds a ghostnet, the body of a detector; train its next stage"):
        export_objects(tmp_path / "body.safetensors", tmp_path / "b.onnx")
    assert not (tmp_path / "b.onnx").exists()
