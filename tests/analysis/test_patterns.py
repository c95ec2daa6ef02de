"""Patterns and frequencies of binary networks, by definition and through the command."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from pixeldiff.analysis import patterns as analysis
from pixeldiff.cli import main
from pixeldiff.models import create_model
from pixeldiff.models.saving import save_model
from pixeldiff.nn.binary import BinaryPDCBlock
from pixeldiff.nn.lbp import kernels_of
from pixeldiff.nn.ops import PixelPairs, pixel_differences, pixel_pairs
from tests.data.test_cifar import write_cifar


def test_patterns_count_the_codes_of_both_branches():
    layer = BinaryPDCBlock(10, 4, ratio=0.2)
    codes = np.arange(8).reshape(4, 2)
    layer.difference_weight.data = torch.from_numpy(kernels_of(codes))
    layer.weight.data.fill_(0.1)
    difference, vanilla = analysis.kernel_patterns(torch.nn.Sequential(layer))
    assert (difference.branch, vanilla.branch, vanilla.layer) == ("central", "vanilla", "0")
    assert difference.counts.tolist() == [1] * 8 + [0] * 248
    assert difference.uniform_fraction == 7 / 8  # of the codes 0 to 7 only 0b101 has four transitions
    assert (vanilla.counts[255], vanilla.uniform_fraction) == (32, 1.0)
    together = analysis.pooled([difference, difference, vanilla])
    assert [int(p.counts.sum()) for p in together] == [16, 32]


@pytest.mark.parametrize("channels", [6, 8])
def test_pairs_without_a_ring_have_no_codes(channels):
    knight = PixelPairs.from_list([((-1, 0), (1, 1)), ((0, -1), (1, 1)), ((-1, -1), (1, 0))], 3)
    patterns = analysis.kernel_patterns(BinaryPDCBlock(channels, 8, kind=knight, ratio=0.5))
    assert [(p.branch, p.counts.sum()) for p in patterns] == [("vanilla", 8 * channels / 2)]


def test_a_fresh_network_has_as_many_uniform_kernels_as_chance_gives():
    torch.manual_seed(0)
    for patterns in analysis.pooled(analysis.kernel_patterns(create_model("resnet18_bipdc_cifar", width=0.5))):
        assert patterns.uniform_fraction == pytest.approx(58 / 256, abs=0.01)


@pytest.mark.parametrize("kind", ["central", "angular", "radial"])
def test_filters_are_what_the_operator_does(kind, rng):
    x = torch.from_numpy(rng.normal(size=(1, 1, 9, 9)))
    planes = pixel_differences(x, pixel_pairs(kind))[0]
    filters = torch.from_numpy(analysis.shifting_filters(kind))
    expected = torch.nn.functional.conv2d(x, filters[:, None], padding=filters.shape[-1] // 2)[0]
    torch.testing.assert_close(planes, expected)


def test_differences_are_high_pass_and_shifts_are_all_pass():
    np.testing.assert_allclose(analysis.spectrum(analysis.shifting_filters("vanilla"), 32), 1.0)
    for kind in ("central", "angular", "radial"):
        magnitude = analysis.spectrum(analysis.shifting_filters(kind), 32)
        np.testing.assert_allclose(magnitude[:, 16, 16], 0.0, atol=1e-12)  # frequency zero
        assert magnitude.max() == pytest.approx(2.0)


def test_high_frequency_fraction():
    y, x = np.mgrid[:32, :32]
    slow, fast = np.sin(2 * np.pi * 2 * x / 32), np.sin(2 * np.pi * 13 * y / 32)
    assert analysis.high_frequency_fraction(analysis.spectrum(slow + 5)) == pytest.approx(0.0, abs=1e-12)
    assert analysis.high_frequency_fraction(analysis.spectrum(fast - 5)) == pytest.approx(1.0)
    assert analysis.high_frequency_fraction(analysis.spectrum(slow + 2 * fast)) == pytest.approx(0.8)


def test_feature_maps_are_the_branch_sums(rng):
    layer = BinaryPDCBlock(10, 4, ratio=0.5)
    x = torch.from_numpy(rng.normal(size=(2, 10, 6, 6))).float()
    maps = analysis.feature_maps(torch.nn.Sequential(layer), x)["0"]
    ones = torch.ones(4, 5, 8)
    layer.difference_weight.data = ones
    again = analysis.feature_maps(torch.nn.Sequential(layer), x)["0"]
    np.testing.assert_array_equal(maps["vanilla"], again["vanilla"])
    signs = np.where(pixel_differences(x[:, :5], pixel_pairs("central")).numpy() >= 0, 1, -1)
    np.testing.assert_allclose(again["central"], signs.sum(1))
    assert layer.training
    assert not layer.norm._forward_hooks


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(["analyze", *map(str, arguments)])
    return stop.value.code


def test_command(tmp_path, capsys):
    torch.manual_seed(7)
    model = create_model("resnet18_bipdc_cifar", width=0.125)
    weights, out = tmp_path / "m.safetensors", tmp_path / "out"
    save_model(model, weights, {"recipe": {"seed": 7}})
    data = write_cifar(tmp_path / "cifar-100-python")
    assert run(weights, "-o", out, "--data-dir", data, "--limit", 8) == 0
    figures = {f"{name}.png" for name in ("patterns", "kernels", "filters", "features")}
    assert {f.name for f in out.iterdir()} == {*figures, "analysis.json"}
    report = json.loads((out / "analysis.json").read_text())
    rows = report["layers"]
    assert [row["layer"] for row in rows[-2:]] == ["all", "all"]
    assert len(rows) == 2 * 16 + 2
    assert all(row["before"] == row["after"] for row in rows)  # untrained: the same seed gives the same kernels
    first = analysis.kernel_patterns(model)[0]
    assert [int(code) for code in rows[0]["most_frequent"]] == np.argsort(-first.counts, kind="stable")[:5].tolist()
    assert sum(rows[0]["most_frequent"].values()) == np.sort(first.counts)[-5:].sum() / first.counts.sum()
    assert set(report["high_frequency"]["stages.0.0.conv"]) == {"central", "vanilla"}
    assert "uniform" in capsys.readouterr().out
    assert run(weights, "-o", out) == 2
    assert "--overwrite" in capsys.readouterr().err


def test_images_as_the_network_was_trained(tmp_path, rng, capsys):
    """The recipe in the file, not the stem, decides how --data-dir is read."""
    (tmp_path / "val" / "a").mkdir(parents=True)
    Image.fromarray(rng.integers(256, size=(20, 20, 3), dtype=np.uint8)).save(tmp_path / "val/a/0.png")
    weights = tmp_path / "m.safetensors"
    recipe = {"seed": 0, "data": {"dataset": "folder", "size": 16}}
    save_model(create_model("resnet18_bipdc_cifar", width=0.125, classes=1), weights, {"recipe": recipe})
    assert run(weights, "-o", tmp_path / "out", "--data-dir", tmp_path) == 0
    assert "stages.2.0.conv" in json.loads((tmp_path / "out" / "analysis.json").read_text())["high_frequency"]


def test_bad_input(tmp_path, capsys):
    save_model(create_model("resnet18_cifar", width=0.125), tmp_path / "float.safetensors")
    assert run(tmp_path / "float.safetensors", "-o", tmp_path / "out") == 2
    assert "no 3x3 binary kernels" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert run(tmp_path / "missing.safetensors", "-o", tmp_path / "out") == 2
    assert run("bipdc-cifar100", "-o", tmp_path / "out", "--data-dir", tmp_path / "missing") == 2
    assert "no data folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
