"""Operations, parameters and memory: the paper's tables and counts by hand."""

import pytest

from pixeldiff.errors import UserError
from pixeldiff.metrics.complexity import LayerRecord, as_json, layer_table, total
from tests.extras import optional

create_model = optional("pixeldiff.models").create_model
count_layers = optional("pixeldiff.models.counting").count_layers
nn = optional("torch.nn")


@pytest.mark.parametrize(
    ("name", "bops", "binary_params", "flops", "ops", "fp_params", "memory"),
    [
        ("resnet18_binary", 1_676_279_808, 10_985_472, "1.45", "1.71", "0.20", 17),
        ("resnet18_bipdc", 1_640_027_648, 10_742_912, "1.46", "1.72", "0.21", 17),
        ("bipidinet18", 4_273_866_240, 19_233_600, "0.25", "0.92", "0.04", 20),
    ],
)
def test_the_paper_s_complexity_table(name, bops, binary_params, flops, ops, fp_params, memory):
    t = total(count_layers(create_model(name), 224))
    assert (t.bops, t.binary_params) == (bops, binary_params)
    rounded = (f"{t.flops / 1e8:.2f}", f"{t.ops / 1e8:.2f}", f"{t.fp_params / 1e6:.2f}", round(t.memory_mbit))
    assert rounded == (flops, ops, fp_params, memory)


def test_float_networks():
    t = total(count_layers(create_model("resnet18"), 224))
    assert (t.fp_params, t.bops, round(t.memory_mbit)) == (11_176_512, 0, 358)  # the paper's 11.18 M and 358 Mbit
    t = total(count_layers(create_model("basic"), 224))
    assert (t.fp_params, f"{t.flops / 1e9:.1f}") == (710_149, "4.1")
    # By hand for one layer of PiDiNet: a radial depthwise 3x3 reads 5x5.
    record = {r.name: r for r in count_layers(create_model("basic"), 32)}["stages.0.1.depthwise"]
    assert (record.operation, record.flops, record.fp_params) == ("radial 3x3", 60 * 32 * 32 * 25, 60 * 9)


def test_counts_equal_the_parameters_there_are():
    for name in ("resnet18_cifar", "bipidinet18_cifar", "tiny", "sphereface20"):
        model = create_model(name, **({"embedding_norm": True} if name == "sphereface20" else {}))
        records = count_layers(model, *((112, 96) if name == "sphereface20" else (32,)))
        everything = sum(r.fp_params + r.binary_params for r in records)
        assert everything == sum(p.numel() for p in model.parameters())
        assert [r.counted for r in records if r.operation == "linear"] == [False] * (name != "tiny")


def test_layers_that_no_rule_counts_are_errors():
    with pytest.raises(UserError, match=r"no rule counts 1, a GroupNorm"):
        count_layers(nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), 9)


def test_activation_only_networks_have_no_binary_operations():
    t = total(count_layers(create_model("resnet18_binary", binary_weights=False), 64))
    assert (t.bops, t.binary_params) == (0, 0)


def test_sums_and_table():
    records = [LayerRecord("a", "conv", (1, 2, 2), 10, 0, 4), LayerRecord("b", "binary", (1, 2, 2), 6, 128, 1, 64)]
    got = as_json([*records, LayerRecord("c", "linear", (9,), 5, 0, 5, counted=False)])
    assert {k: v for k, v in got.items() if k != "layers"} == {
        "flops": 16,
        "bops": 128,
        "ops": 18,
        "fp_params": 5,
        "binary_params": 64,
        "memory_mbit": (5 * 32 + 64) / 1e6,
    }
    assert [layer["name"] for layer in got["layers"]] == ["a", "b", "c"]
    assert " 1M" in layer_table([LayerRecord("a", "conv", (9,), 999_700)])
    assert "uncounted" in layer_table([LayerRecord("c", "linear", (9,), 5, 0, 5, counted=False)])
