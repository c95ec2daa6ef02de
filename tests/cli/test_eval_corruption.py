"""`pixeldiff eval ... --corruption` on small data sets of the real layouts and networks of random weights."""

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
        main(["eval", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """An edge network of random weights, twice."""
    import torch

    from pixeldiff.models import create_model
    from pixeldiff.models.saving import save_model

    folder = tmp_path_factory.mktemp("network")
    torch.manual_seed(0)
    save_model(create_model("tiny-l"), folder / "first.safetensors")
    torch.manual_seed(1)
    save_model(create_model("tiny-l"), folder / "other.safetensors")
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
    models = ["-m", network / "first.safetensors", "-m", network / "other.safetensors"]
    given = ["edges", *models, "--dataset", "bsds500", "--data-dir", bsds]
    asked = ["--severity", "1,5", "--corruption", "fog,jpeg_compression", "--json", scores]
    assert run(*given, *asked, "--plot", plot) == 0
    printed = capsys.readouterr().out
    assert "other against first, all severities: ahead in" in printed
    assert "first (L5)" in printed
    content = json.loads(scores.read_text())
    assert (content["version"], content["command"], content["failed"]) == (1, "eval edges", [])
    assert len(content["results"]) == 2 * (1 + 2 * 2)
    assert {"corruption", "severity", "ods", "ois"} <= set(content["results"][0])
    assert [c["severity"] for c in content["comparisons"]] == [1, 5, None]
    assert Image.open(plot).width > 100
    assert run(*given, *asked, "--plot", plot) == 2
    assert str(plot) in capsys.readouterr().err
    # Again: nothing is scored, the same is printed.
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
    names = ("resnet18_binary_cifar", "resnet18_bipdc_cifar")
    models = [word for name in names for word in ("-m", classifiers / f"{name}.safetensors")]
    given = ["classes", "--dataset", "cifar100-c", *models, "--data-dir", tmp_path, "--json", tmp_path / "r.json"]
    assert run(*given, "--corruption", "fog,snow") == 0
    assert "resnet18_bipdc_cifar against resnet18_binary_cifar, all severities" in capsys.readouterr().out
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["data"], content["images"]) == ("CIFAR-100-C as published", 6)
    cells = {(c["corruption"], c["severity"]) for c in content["results"]}
    assert cells == {(kind, severity) for kind in ("fog", "snow") for severity in (1, 5)}
    assert all(c["top1"] in [100 * n / 6 for n in range(7)] for c in content["results"])
    assert run(*given, "--corruption", "all") == 0  # those that the folder has
    assert max(map(len, capsys.readouterr().out.splitlines()[1:9])) <= 80
    assert run(*given, "--corruption", "gaussian_noise") == 2
    assert "gaussian_noise.npy" in capsys.readouterr().err
    assert run(*given, "--overwrite") == 2
    assert "--corruption" in capsys.readouterr().err
    (tmp_path / "a.json").mkdir()
    assert run(*given[:-1], tmp_path / "a.json", "--corruption", "fog") == 2
    assert "a.json" in capsys.readouterr().err


def test_cifar_100_is_corrupted_on_the_fly(classifiers, tmp_path, rng, capsys):
    labels = rng.integers(0, 100, 5)
    table = {b"data": rng.integers(0, 256, (5, 3072), dtype=np.uint8), b"fine_labels": labels.tolist()}
    (tmp_path / "test").write_bytes(pickle.dumps(table))
    (tmp_path / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"class %d" % i for i in range(100)]}))
    weights = classifiers / "resnet18_binary_cifar.safetensors"
    given = ["classes", "--data-dir", tmp_path, "--limit", 4, "--corruption", "fog", "--severity", 5]
    assert run(*given, "-m", weights, "--json", tmp_path / "r.json") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Clean: resnet18_binary_cifar ")
    export_packed(weights, tmp_path / "resnet18_binary_cifar.pdn")
    assert run(*given, "-m", tmp_path / "resnet18_binary_cifar.pdn") == 0
    assert capsys.readouterr().out == printed
    content = json.loads((tmp_path / "r.json").read_text())
    assert (content["data"], content["images"]) == ("CIFAR-100 test", 4)
    assert [(c["corruption"], c["severity"]) for c in content["results"]] == [("clean", 0), ("fog", 5)]
    assert run("classes", "-m", weights, "--data-dir", tmp_path / "..") == 2
    assert "is not CIFAR-100" in capsys.readouterr().err


def test_both_files_of_a_network_say_the_same(rng):
    """To the last bit: a sign hangs on how the pixels are normalized."""
    images = rng.integers(0, 256, (8, 32, 32, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = load_model("bipdc-cifar100")(normalize(torch.tensor(images).permute(0, 3, 1, 2)))
    np.testing.assert_allclose(Classifier("bipdc-cifar100").logits(images), expected.numpy(), atol=1e-5)


def test_json_on_stdout_is_all_that_is_printed(bsds, network, capsys):
    once = ["edges", "-m", network / "first.safetensors", "--dataset", "bsds500", "--data-dir", bsds, "--limit", 1]
    assert run(*once, "--severity", 2, "--corruption", "fog", "--json", "-", "--threads", 1) == 0
    content = json.loads(capsys.readouterr().out)
    cells = [(cell["corruption"], cell["severity"]) for cell in content["results"]]
    assert cells == [("clean", 0), ("fog", 2)]


@pytest.mark.parametrize(
    ("arguments", "subject"),
    [
        (["-m", "missing.onnx"], "missing.onnx"),
        (["-m", "nonsense"], "nonsense"),
        (["-m", "NET", "-m", "NET"], "--model"),
        (["-m", "NET", "--corruption", "rain"], "'rain'"),
        (["-m", "NET", "--data-dir", "nowhere"], "nowhere"),
        (["-m", "NET", "--data-dir", "."], "images/test"),
        (["-m", "NET", "--severity", "7"], "7"),
        (["-m", "NET", "--flip"], "--flip"),
        ([], "--model"),
    ],
)
def test_mistakes_are_one_line(arguments, subject, bsds, network, tmp_path, monkeypatch, capsys):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    given = [str(network / "first.safetensors") if a == "NET" else a for a in arguments]
    data = [] if "--data-dir" in given else ["--data-dir", bsds]
    corruption = [] if "--corruption" in given else ["--corruption", "fog"]
    assert run("edges", "--dataset", "bsds500", *given, *data, *corruption) == 2
    message = capsys.readouterr().err
    assert subject in message
    assert message.count("\n") == 1
