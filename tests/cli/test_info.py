"""`pixeldiff info`: cards, licenses and counts of names and files."""

import json

import pytest

from pixeldiff.cli import main
from pixeldiff.image import preprocessing
from tests.extras import NEEDS_TORCH, optional

create_model = optional("pixeldiff.models").create_model
save_model = optional("pixeldiff.models.saving").save_model


def run(capsys, *words):
    """The exit code and what is printed on stdout and stderr."""
    with pytest.raises(SystemExit) as stopped:
        main(["info", *map(str, words)])
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


def counts(capsys, *words):
    code, out, _ = run(capsys, *words, "--json", "-")
    assert code == 0
    (result,) = json.loads(out)["results"]
    return result


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("model", "size"),
    [
        ("resnet18_cifar", 32),
        ("resnet18", 224),
        ("ghostnet_objects", 256),
        ("sphereface20", [112, 96]),
        ("tiny-l", 224),
        ("bipdc-cifar100", 32),
    ],
)
def test_a_model_is_counted_at_its_input_size(capsys, model, size):
    result = counts(capsys, model, "--layers")
    assert result["input"] == size
    assert (result["layers"][0]["output"][1:] == [32, 32]) == (size == 32)


def test_a_file_is_counted_at_the_size_in_its_metadata(capsys, tmp_path):
    path = tmp_path / "objects.safetensors"
    described = {"preprocessing": preprocessing(size=96), "license": "CC0-1.0"}
    save_model(create_model("ghostnet_objects", width=0.25), path, described)
    result = counts(capsys, path)
    assert (result["input"], result["license"], result["task"]) == (96, "CC0-1.0", "objects")


@NEEDS_TORCH
def test_the_card_of_a_pretrained_model_is_shown(capsys):
    code, out, err = run(capsys, "pidinet_tiny")
    assert (code, err) == (0, "")
    assert "BSDS500, on which it was trained, is for non-commercial research" in " ".join(out.split())
    labels = {line.split()[0] for line in out.splitlines()}
    assert {"model", "license", "scores", "parameters", "operations", "memory"} <= labels
    assert "depthwise" not in out
    assert "stages.0.1.depthwise" in run(capsys, "tiny", "--layers")[1]


def test_without_torch_the_card_is_shown(capsys, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pixeldiff.models.counting", None)
    code, out, err = run(capsys, "tiny")
    assert code == 0
    assert "license" in out
    assert err.startswith("note: operations are not counted")
    assert run(capsys, "resnet18")[0] == 2


def test_the_width_can_be_changed(capsys, tmp_path):
    path = tmp_path / "quarter.safetensors"
    save_model(create_model("bipidinet18_cifar", width=0.25), path)
    results = [counts(capsys, path, "--input-size", 32), counts(capsys, "bipidinet18_cifar", "--width", 0.25)]
    assert [result["bops"] for result in results] == [21_818_112] * 2


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bipidinet18", "--width", 0.3], "not whole"),
        (["tiny", "--width", 20.5], "whole numbers"),
        (["tiny", "--width", 1e9], "too many weights"),
        (["resnet19"], "did you mean 'resnet18'"),
    ],
)
def test_mistakes_are_explained(capsys, words, message):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert message in err
