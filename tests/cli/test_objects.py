"""`pixeldiff objects`: images drawn, folders, videos, COCO's results, mistakes in one line."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from pixeldiff.cli import main
from pixeldiff.errors import UserError
from pixeldiff.files import is_result
from pixeldiff.inference.objects import ObjectDetector
from pixeldiff.jobs.bench import synthetic_image
from pixeldiff.jobs.objects import FindObjects
from pixeldiff.jobs.operation import ModelSpec
from tests.data.test_voc import write_images
from tests.references.box_network import CLASSES, write_detector

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_detector(tmp_path_factory.mktemp("network"))


def run(capsys, *words):
    with pytest.raises(SystemExit) as stopped:
        main(["objects", *(str(word) for word in words)])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def test_a_folder_is_drawn_and_told(tmp_path, network, capsys):
    write_images(tmp_path / "in")
    (tmp_path / "in" / "bad.jpg").write_bytes(b"none")
    told = (tmp_path / "in", "-o", tmp_path / "out", "--model", network, "--threshold", 0.3)
    code, out, err = run(capsys, *told, "--json", tmp_path / "r.json")
    assert code == 1
    assert "error: " in err
    assert "bad.jpg" in err
    assert "3 images in" in out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"p{k}.objects.png" for k in range(3)]
    content = json.loads((tmp_path / "r.json").read_text())
    assert content["categories"] == [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}]
    assert [one["image_id"] for one in content["images"]] == ["p0", "p1", "p2"]
    own = [one for one in content["results"] if one["image_id"] == "p0"]
    found = ObjectDetector(network)(tmp_path / "in" / "p0.png", 0.3)
    assert [one["category"] for one in own] == list(found.names)
    for one, box, score in zip(own, found.boxes, found.scores, strict=True):
        np.testing.assert_allclose(one["bbox"], [*box[:2], *(box[2:] - box[:2])], atol=0.02)
        assert one["score"] == pytest.approx(float(score), abs=1e-3)
    code, out, _ = run(capsys, *told)
    assert "3 already exist, skipped" in out
    assert all(is_result(path) for path in (tmp_path / "out").iterdir())


def test_drawing_changes_no_boxes(tmp_path, network, capsys):
    """Of a JPEG that is decoded reduced; at once, on a cluster, and where the drawing exists."""
    path = tmp_path / "p.jpg"
    Image.fromarray(synthetic_image(375, 500)).save(path, quality=60)
    told = (path, "--model", network, "--threshold", 0.3, "--json", "-")
    drawn, kept, alone = (json.loads(run(capsys, *told, *more)[1])["results"] for more in ((), (), ("--no-draw",)))
    assert len(alone) > 0
    assert drawn == kept == alone
    operation = FindObjects(ModelSpec("objects", network), 0.3)
    output = operation.run(ObjectDetector(network), path.read_bytes(), "p.jpg")
    assert output.record["objects"] == [{key: one[key] for key in output.record["objects"][0]} for one in alone]
    with Image.open(io.BytesIO(output.files[""])) as image:
        assert np.array_equal(image, Image.open(tmp_path / "p.objects.jpg"))
    with pytest.raises(UserError, match=r"^p\.jpg is not an image"):
        operation.run(ObjectDetector(network), b"none", "p.jpg")


def test_one_image(tmp_path, network, capsys):
    write_images(tmp_path)
    code, out, _ = run(capsys, tmp_path / "p0.png", "-o", tmp_path / "a.jpg", "--model", network, "--threshold", 0.3)
    assert code == 0
    assert out.splitlines()[-1] == str(tmp_path / "a.jpg")
    with Image.open(tmp_path / "a.jpg") as drawn:
        assert drawn.size == (64, 48)
    code, out, _ = run(capsys, tmp_path / "p0.png", "--model", network, "--no-draw", "--json", "-", "--threshold", 0.3)
    assert code == 0
    assert {one["category"] for one in json.loads(out)["results"]} <= set(CLASSES)
    assert not (tmp_path / "p0.objects.png").exists()


def test_a_clip(tmp_path, network, capsys):
    av = pytest.importorskip("av")
    with av.open(str(tmp_path / "c.mp4"), "w") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for k in range(5):
            image = np.full((48, 64, 3), 40 * k, np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))
    code, out, _ = run(capsys, tmp_path / "c.mp4", "--model", network)
    assert code == 0
    assert "5 frames" in out
    with av.open(str(tmp_path / "c.objects.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 5
    assert is_result(tmp_path / "c.objects.mp4")


def test_mistakes(tmp_path, network, capsys, monkeypatch):
    write_images(tmp_path)
    image = tmp_path / "p0.png"
    for words, says in (
        ((tmp_path / "gone.jpg", "--model", network), "no file"),
        ((image, "--model", "tiny"), "for edges, not for objects"),
        ((image, "--model", network, "--no-draw", "-o", tmp_path / "x"), "omit it or -o"),
        ((image, "--model", network, "-o", tmp_path / "x.gif"), "results are not written as .gif"),
        ((image, "--model", network, "-o", image), "p0.png is an input"),
        ((image, "--model", network, "-o", tmp_path / "x.mp4"), "results are not written as .mp4"),
    ):
        code, _, err = run(capsys, *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert says in err
    monkeypatch.setattr("pixeldiff.weights.cards", dict)
    code, _, err = run(capsys, image)
    assert (code, err.count("\n")) == (2, 1)
    assert "no pretrained model for objects" in err
