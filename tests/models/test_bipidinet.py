"""Bi-PiDiNet and its relatives: names, shapes and switches."""

import pytest
import torch
from torch import nn

from pixeldiff.errors import UserError
from pixeldiff.models import create_model, list_models
from pixeldiff.models.bipidinet import VARIANTS
from pixeldiff.nn.binary import BinaryPDCBlock, ReplicaPool
from pixeldiff.nn.layers import PDConv2d, replace_convs
from pixeldiff.nn.ops import pixel_pairs

BINARY = ["resnet18_binary", "resnet18_bipdc", "bipidinet18"]


def test_names():
    names = set(VARIANTS)
    assert names <= set(list_models())
    for depth in (18, 34):
        for name in (f"resnet{depth}", f"resnet{depth}_pdc", f"resnet{depth}_binary", f"resnet{depth}_bipdc"):
            assert {name, f"{name}_cifar"} <= names
        assert {f"bipidinet{depth}", f"bipidinet{depth}_cifar"} <= names


def convs(name, **changes):
    return [m for m in create_model(name, width=0.25, **changes).modules() if isinstance(m, BinaryPDCBlock)]


def test_layout_before_and_after():
    assert [c.difference_channels for c in convs("resnet18_binary")] == [0] * 16
    assert all(c.difference_channels == int(0.2 * c.in_channels) for c in convs("resnet18_bipdc"))
    after = convs("bipidinet18")
    assert [(c.in_channels, c.out_channels, c.stride) for c in after[:6]] == [
        (8, 16, 1),
        (16, 32, 2),
        (32, 32, 1),
        (32, 32, 1),
        (32, 32, 1),
        (32, 48, 2),
    ]
    assert after[0].difference_channels == 0
    assert all(c.difference_channels == int(0.2 * c.in_channels) for c in after[1:])
    assert (len(convs("bipidinet34")), len(convs("resnet34_bipdc"))) == (32, 32)
    pools = [m for m in create_model("bipidinet18").modules() if isinstance(m, ReplicaPool)]
    assert [(p.copies, p.parts, p.pool) for p in pools] == [(1, 1, False), (1, 1, True), (1, 2, True)] + [
        (1, 1, True)
    ] * 2


def test_switches_reach_the_layers():
    layers = convs("resnet18_bipdc_cifar", kind="angular", ratio=0.5, activation="branch", fixed_lbp="random", clip=1.2)
    assert {(c.kind, c.ratio, c.clip, len(c.activations)) for c in layers} == {("angular", 0.5, 1.2, 2)}
    assert not any(c.difference_weight.requires_grad for c in layers)
    assert all(not c.binary_weights for c in convs("bipidinet18", binary_weights=False))
    plain = [m for m in create_model("resnet18_pdc", width=0.25, kind="radial").modules() if isinstance(m, PDConv2d)]
    assert len(plain) == 16
    assert {m.padding for m in plain} == {(2, 2)}
    assert not any(isinstance(m, PDConv2d) for m in create_model("resnet18", width=0.25).modules())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ratio": 1.01}, "0 to 1"),
        ({"width": 0.3}, "not whole"),
        ({"width": 0.0}, "not whole"),
        ({"kind": "diagonal"}, "unknown kind"),
        ({"activation": "relu"}, "sum, branch"),
        ({"fixed_lbp": "case 3"}, "random, uniform"),
        ({"depth": 50}, "18, 34"),
        ({"stem": "mnist"}, "imagenet, cifar"),
        ({"architecture": "during"}, "plain, before, after"),
        ({"classes": 0}, "positive"),
    ],
)
def test_bad_options(changes, message):
    with pytest.raises(UserError, match=message):
        create_model("bipidinet18", **changes)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("resnet18_binary_cifar", {"ratio": 0.4}, "give ratio 0, or a kind of differences"),
        ("resnet18_binary_cifar", {"kind": "angular"}, "give a ratio above 0, or kind 'vanilla'"),
        ("resnet18_cifar", {"kind": "angular"}, "give a ratio above 0"),
        ("resnet18_binary_cifar", {"fixed_lbp": "random"}, "fixed_lbp has no effect"),
        ("resnet18_pdc", {"binary_weights": False, "activation": "branch"}, "activation, binary_weights has no"),
    ],
)
def test_an_option_without_effect_is_refused(name, changes, message):
    with pytest.raises(UserError, match=message):
        create_model(name, **changes)


def test_fixed_kernels_in_bipidinet():
    fixed = convs("bipidinet18_cifar", fixed_lbp="uniform")
    assert [c.difference_weight is None or c.difference_weight.requires_grad for c in fixed] == [True] + [False] * 15


def test_replica_pool_needs_even_sizes():
    with pytest.raises(UserError, match="even, got 25x25"):
        create_model("bipidinet18", width=0.125)(torch.zeros(1, 3, 50, 50))


def test_one_batch_norm_per_branch():
    norms = [sum(isinstance(m, nn.BatchNorm2d) for m in c.modules()) for c in convs("bipidinet18")]
    assert norms == [1] + [2] * 15


@pytest.mark.parametrize("name", ["resnet18_bipdc_cifar", "sphereface20_bipdc", "ghostnet", "ghostnet_objects"])
def test_a_kind_is_one_that_a_weights_file_can_name(name):
    pairs = pixel_pairs("central")
    with pytest.raises(UserError, match=r"the kind of a network is a name, vanilla, .*replace_convs\(model, pairs\)"):
        create_model(name, kind=pairs, ratio=0.5)
    with pytest.raises(UserError, match=r"unknown kind 'diagonal'; use one of vanilla, central, angular, radial$"):
        create_model(name, kind="diagonal", ratio=0.5)
    for wrong in (None, 3, ["central"], {"kernel_size": 3}):
        with pytest.raises(UserError, match="unknown kind"):
            create_model(name, kind=wrong, ratio=0.5)


def test_pixel_pairs_go_into_a_network_through_replace_convs():
    model = create_model("resnet18_cifar", width=0.125)
    changed = replace_convs(model, pixel_pairs("angular"), ratio=0.5)
    assert min(changed.values()) == 1
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 100)
