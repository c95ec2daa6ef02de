"""Face verification on pairs: vectors of images and videos, scores, and the command."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from pixeldiff.cli import main
from pixeldiff.data.faces import read_pairs
from pixeldiff.evaluation.benchmark import Model, evaluate
from pixeldiff.evaluation.faces import FaceBenchmark, limit_pairs
from tests.extras import NEEDS_TORCH


def run(words):
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


class Brightness:
    """In place of a network: the mean colors as a unit vector; images that are no faces have none."""

    def find(self, image):
        return image if image.shape == (112, 96, 3) else None

    def embed(self, faces):
        means = faces.mean((1, 2)).astype(np.float32)
        return means / np.linalg.norm(means, axis=1, keepdims=True)


@pytest.fixture
def folder(tmp_path):
    colors = {"a": (250, 10, 10), "b": (200, 20, 20), "c": (10, 250, 10), "d": (20, 200, 30)}
    for name, color in colors.items():
        Image.new("RGB", (96, 112), color).save(tmp_path / f"{name}.png")
    Image.new("RGB", (50, 40), (240, 30, 10)).save(tmp_path / "tight.png")
    (tmp_path / "pairs.txt").write_text("a.png b.png 1\na.png c.png 0\nc.png d.png 1\ntight.png d.png 0\n")
    return tmp_path


def test_pairs_are_scored_and_images_without_a_face_count(folder):
    pairs = read_pairs("pairs", folder)
    benchmark, steps = FaceBenchmark(pairs, Brightness().find), []
    counts = evaluate(benchmark, [Model("m", Brightness())], threads=2, advance=steps.append)["m"]
    scores = benchmark.cosines(counts)
    assert (benchmark.summarize(counts)["without_face"], sum(steps), len(counts)) == (1, 5, 5)
    assert scores[pairs.same].min() > 0.98
    assert scores[~pairs.same].max() < 0.3


def test_a_video_is_the_mean_of_its_frames(folder):
    pairs = read_pairs("pairs", folder)
    frames = tuple(folder / f"{name}.png" for name in "ac")
    videos = dataclasses.replace(pairs, items=(frames, frames[:1]))
    (video, _), (one, _) = evaluate(FaceBenchmark(videos, Brightness().find), [Model("m", Brightness())])["m"]
    both = Brightness().embed(np.stack([np.asarray(Image.open(frame)) for frame in frames])).mean(0)
    np.testing.assert_allclose(video, both / np.linalg.norm(both), rtol=1e-6)
    assert one[0] > 0.99


def test_aligned_faces_are_corrupted_and_kept(folder):
    pytest.importorskip("scipy")
    from pixeldiff.evaluation.corruptions import corrupt

    found = []
    pairs = read_pairs("pairs", folder)
    benchmark = FaceBenchmark(pairs, lambda image: found.append(1) or Brightness().find(image), keep_faces=True)
    for condition in (("fog", 1), ("fog", 5)):
        sample = benchmark.load(0, condition, 7)
        photo = np.asarray(Image.open(pairs.items[0][0]))
        np.testing.assert_array_equal(sample.faces[0], corrupt(photo, condition[1], "fog", seed=7))
    assert found == [1]


def test_a_limit_keeps_pairs_of_each_fold_and_kind(folder):
    pairs = read_pairs("pairs", folder)
    limited = limit_pairs(pairs, 1)
    assert [int(limited.same[limited.folds == fold].sum()) for fold in np.unique(pairs.folds)] == [1, 1]
    assert limit_pairs(pairs, None) is pairs


@NEEDS_TORCH
def test_the_command_scores_a_file_and_draws_its_curve(folder, tmp_path_factory, capsys):
    pytest.importorskip("matplotlib")
    from pixeldiff.export.packed import pack_model
    from pixeldiff.models import create_model

    (folder / "pairs.txt").write_text("a.png b.png 1\na.png c.png 0\nc.png d.png 1\nb.png d.png 0\n")
    out = tmp_path_factory.mktemp("out")
    pack_model(create_model("sphereface20_bipdc", width=0.125, embedding=4), out / "face.pdn")
    words = ["eval", "faces", "-m", str(out / "face.pdn"), "--dataset", "pairs", "--data-dir", str(folder), "--json"]
    assert run([*words, str(out / "x.json"), "--plot", str(out / "roc.png")]) == 0
    assert "accuracy (%)" in capsys.readouterr().out
    (result,) = json.loads((out / "x.json").read_text())["results"]
    assert {"accuracy", "auc", "eer", "tar", "threshold", "without_face", "sha256"} <= result.keys()
    assert (result["pairs"], result["folds"], result["without_face"]) == (4, 2, 0)
    assert Image.open(out / "roc.png").size == (1100, 1100)
    for changed, said in (
        (["--data-dir", str(out)], "no pairs.txt in"),
        (["--plot", str(out / "roc.gif")], "cannot plot to 'roc.gif'"),
        (["--plot", str(out / "roc.png")], "roc.png"),
    ):
        assert run([*words, "-", *changed]) == 2
        assert said in capsys.readouterr().err
    (folder / "d.png").unlink()
    assert run([*words, "-"]) == 2
    assert "d.png" in capsys.readouterr().err
