"""`pixeldiff robustness` as a user runs it, on small data sets of the real layouts and networks of random weights."""

import json
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from pixeldiff.cli import main
from pixeldiff.export.packed import export_packed
from pixeldiff.inference.classes import Classifier
from pixeldiff.models.saving import load_model
from pixeldiff.training.tasks.images import normalize


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["robustness", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """An edge network of random weights, as safetensors and ONNX."""
    import torch

    from pixeldiff.export.onnx import export_weights
    from pixeldiff.models import create_model
    from pixeldiff.models.saving import save_model

    folder = tmp_path_factory.mktemp("network")
    torch.manual_seed(0)
    save_model(create_model("tiny-l"), folder / "first.safetensors")
    torch.manual_seed(1)
    save_model(create_model("tiny-l"), folder / "other.safetensors")
    export_weights(folder / "first.safetensors", folder / "first.onnx")
    return folder


@pytest.fixture
def bsds(tmp_path, rng):
    """Two images and their annotations in the layout of BSDS500."""
    for part in ("images", "groundTruth"):
        (tmp_path / part / "test").mkdir(parents=True)
    for name in ("1", "2"):
        Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(tmp_path / f"images/test/{name}.jpg")
        truth = np.empty((1, 2), object)
        for k in range(2):
            truth[0, k] = {"Boundaries": (rng.random((48, 64)) < 0.05).astype(np.uint8)}
        savemat(tmp_path / f"groundTruth/test/{name}.mat", {"groundTruth": truth})
    return tmp_path


def test_the_edge_table_from_two_networks(bsds, network, tmp_path, capsys):
    scores, plot = tmp_path / "r.json", tmp_path / "r.png"
    given = ["--task", "edges", "--model", network / "first.onnx", network / "other.safetensors", "--data", bsds]
    asked = ["--severity", 1, 5, "--kind", "fog", "jpeg_compression", "--json", scores]
    assert run(*given, *asked, "--plot", plot) == 0
    printed = capsys.readouterr().out
    assert "other against first, all levels: ahead in" in printed
    assert "first (L5)" in printed
    content = json.loads(scores.read_text())
    assert (content["version"], content["command"], content["failed"]) == (1, "robustness", [])
    assert len(content["results"]) == 2 * (1 + 2 * 2)
    assert {"ods", "ois"} <= set(content["results"][0])
    assert [c["severity"] for c in content["comparisons"]] == [1, 5, None]
    assert Image.open(plot).width > 100
    assert run(*given, *asked, "--plot", plot) == 2
    assert f"{plot} exists" in capsys.readouterr().err
    # Again: nothing is scored anew, the same is printed.
    assert run(*given, *asked) == 0
    assert capsys.readouterr().out == printed
    assert json.loads(scores.read_text()) == content


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    """Two narrow networks of random weights for 100 classes."""
    import torch

    from pixeldiff.models import create_model
    from pixeldiff.models.saving import save_model

    folder = tmp_path_factory.mktemp("classifiers")
    for seed, name in enumerate(("resnet18_binary_cifar", "resnet18_bipdc_cifar")):
        torch.manual_seed(seed)
        save_model(create_model(name, width=0.125, classes=100), folder / f"{name}.safetensors")
    return folder


def test_the_classification_table_from_published_files(classifiers, tmp_path, rng, capsys):
    np.save(tmp_path / "labels.npy", np.tile(rng.integers(0, 100, 6), 5).astype(np.uint8))
    for kind in ("fog", "snow"):
        np.save(tmp_path / f"{kind}.npy", rng.integers(0, 256, (30, 32, 32, 3), dtype=np.uint8))
    models = [classifiers / f"{name}.safetensors" for name in ("resnet18_binary_cifar", "resnet18_bipdc_cifar")]
    given = ["--task", "classes", "--model", *models, "--data", tmp_path, "--json", tmp_path / "r.json"]
    assert run(*given, "--kind", "fog", "snow") == 0
    assert "resnet18_bipdc_cifar against resnet18_binary_cifar, all levels" in capsys.readouterr().out
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["data"], content["images"]) == ("CIFAR-100-C as published", 6)
    assert {(c["kind"], c["severity"]) for c in content["results"]} == {(k, s) for k in ("fog", "snow") for s in (1, 5)}
    assert all(c["top1"] in [100 * n / 6 for n in range(7)] for c in content["results"])
    assert run(*given) == 0  # by default the kinds that are there
    assert max(map(len, capsys.readouterr().out.splitlines()[1:9])) <= 80
    assert run(*given, "--kind", "gaussian_noise") == 2
    assert "gaussian_noise.npy" in capsys.readouterr().err
    (tmp_path / "a.json").mkdir()
    assert run(*given[:-1], tmp_path / "a.json") == 2
    assert "is a folder; give the name of a file" in capsys.readouterr().err


def test_cifar_100_is_corrupted_on_the_fly(classifiers, tmp_path, rng, capsys):
    labels = rng.integers(0, 100, 5)
    table = {b"data": rng.integers(0, 256, (5, 3072), dtype=np.uint8), b"fine_labels": labels.tolist()}
    (tmp_path / "test").write_bytes(pickle.dumps(table))
    (tmp_path / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"class %d" % i for i in range(100)]}))
    given = ["--task", "classes", "--model", classifiers / "resnet18_binary_cifar.safetensors", "--data", tmp_path]
    asked = ["--limit", 4, "--kind", "fog", "--severity", 5]
    assert run(*given, *asked, "--json", tmp_path / "r.json") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Clean: resnet18_binary_cifar ")
    export_packed(given[3], tmp_path / "resnet18_binary_cifar.pdn")
    assert run(*given[:3], tmp_path / "resnet18_binary_cifar.pdn", *given[4:], *asked) == 0
    assert capsys.readouterr().out == printed
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["data"], content["images"]) == ("CIFAR-100 test, corrupted here", 4)
    assert [(c["kind"], c["severity"]) for c in content["results"]] == [("clean", 0), ("fog", 5)]
    assert run("--task", "classes", "--model", given[3], "--data", tmp_path / "..") == 2
    assert "is not CIFAR-100" in capsys.readouterr().err


def test_both_files_of_a_network_say_the_same(rng):
    """To the last bit: a sign hangs on how the pixels are normalized."""
    images = rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = load_model("bipdc-cifar100")(normalize(torch.tensor(images).permute(0, 3, 1, 2)))
    np.testing.assert_allclose(Classifier("bipdc-cifar100").logits(images), expected.numpy(), atol=1e-5)


def test_options_that_repeat_take_one_or_many_values(bsds, network, capsys):
    once = ["--task", "edges", "--model", network / "first.onnx", "--data", bsds, "--limit", 1]
    assert run(*once, "--kind", "fog", "--kind", "snow", "--severity", 2) == 0
    repeated = capsys.readouterr().out
    assert run(*once, "--severity", 2, "--kind", "fog", "snow") == 0
    assert capsys.readouterr().out == repeated
    assert run(*once, "--severity", 2, "--kind", "fog", "--json", "-", "--threads", 1) == 0
    content = json.loads(capsys.readouterr().out)
    assert [(cell["kind"], cell["severity"]) for cell in content["results"]] == [("clean", 0), ("fog", 2)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--model", "missing.onnx"], "no weights file missing.onnx"),
        (["--model", "nonsense"], "nonsense"),
        (["--model", "NET", "--model", "NET"], "given twice"),
        (["--model", "NET", "--kind", "rain"], "unknown corruption 'rain'"),
        (["--model", "NET", "--data", "nowhere"], "no data folder 'nowhere'"),
        (["--model", "NET", "--data", "."], "no images/test"),
        (["--model", "NET", "--severity", "7"], "7"),
    ],
)
def test_mistakes_are_one_line(arguments, says, bsds, network, tmp_path, monkeypatch, capsys):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    given = [str(network / "first.onnx") if a == "NET" else a for a in arguments]
    data = [] if "--data" in given else ["--data", bsds]
    assert run("--task", "edges", *given, *data) == 2
    message = capsys.readouterr().err
    assert says in message
    assert message.count("\n") == 1
