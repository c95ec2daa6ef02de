"""Every network of `list_models`, made narrow: forward, backward, save and load, fusion."""

import warnings

import pytest
import torch

from pixeldiff.errors import UserError
from pixeldiff.models import FAMILIES, create_model, init_from, list_models, model_task
from pixeldiff.models.saving import load_model, save_model
from pixeldiff.nn.layers import PDConv2d, fuse

# Family -> changes of its config that keep a test quick.
NARROW = {
    "pidinet": {"width": 6, "side_channels": 3},
    "bipidinet": {"width": 0.125, "classes": 7},
    "sphereface": {"width": 0.125, "embedding": 5},
    "ghostnet": {"width": 0.25, "classes": 7, "kind": "angular", "ratio": 0.3},
    "detector": {"width": 0.25, "classes": 3, "channels": 8, "kind": "central", "ratio": 0.3},
}
# Family -> height and width of an image, odd if its networks take odd sizes.
SIZES = {
    "pidinet": (33, 47),
    "bipidinet": (64, 96),
    "sphereface": (112, 96),
    "ghostnet": (65, 43),
    "detector": (32, 64),
}
ODD = {"plain": (67, 45), "before": (67, 45)}  # architectures without ReplicaPool, which needs even sizes
EVERY = [(family, name) for family, module in FAMILIES.items() for name in module.VARIANTS]


def narrow(family, name):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a published network never warns
        return create_model(name, **NARROW[family])


def images(family, config, count=2):
    size = ODD.get(getattr(config, "architecture", ""), SIZES[family]) if family == "bipidinet" else SIZES[family]
    return torch.randn(count, 3, *size, generator=torch.Generator().manual_seed(0))


def outputs(model, x):
    """All tensors that a network returns, side outputs included, as a list."""
    y = model.side_logits(x) if hasattr(model, "side_logits") else model(x)
    return list(y) if isinstance(y, list | tuple) else [y]


@pytest.mark.parametrize(("family", "name"), EVERY, ids=[name for _, name in EVERY])
def test_a_network_learns_and_is_saved_and_fused(family, name, tmp_path):
    model = narrow(family, name)
    x = images(family, model.config)
    first = outputs(model, x)
    shapes = {
        "edges": lambda: [(2, 1, *x.shape[2:])] * 5,
        "classes": lambda: [(2, 7)],
        "faces": lambda: [(2, 5)],
        "objects": lambda: [(2, 7)] if family == "ghostnet" else [(2, 7, 32 // s, 64 // s) for s in (8, 16, 32)],
    }
    assert [y.shape for y in first] == shapes[model_task(name)]()

    sum(y.square().sum() for y in first).backward()
    dead = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any() or p.grad.isnan().any()]
    assert dead == []

    model.eval()
    save_model(model, tmp_path / "a.safetensors")
    loaded = load_model(tmp_path / "a.safetensors")
    other = narrow(family, name)
    init_from(other, loaded)
    with torch.no_grad():
        expected = outputs(model, x)
        for twin in (loaded, other.eval()):
            assert all(torch.equal(a, b) for a, b in zip(outputs(twin, x), expected, strict=True))
        fused = fuse(model)
        assert not any(isinstance(layer, PDConv2d) for layer in fused.modules())
        for a, b in zip(outputs(fused, x), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_the_list_can_be_filtered():
    assert list_models() == [name for _, name in EVERY]
    assert list_models("resnet18*_cifar", task="classes") == [
        "resnet18_cifar",
        "resnet18_pdc_cifar",
        "resnet18_binary_cifar",
        "resnet18_bipdc_cifar",
    ]
    assert list_models(task="faces") == list_models("sphereface20*")
    assert "bipdc-cifar100" in list_models(pretrained=True, task="classes")
    assert list_models("no such") == []


def test_pretrained_models_have_names():
    model = create_model("bipdc-cifar100", pretrained=True)
    assert model.training
    assert (model.config.width, model.config.ratio) == (0.25, 0.2)
    with pytest.raises(UserError, match="did you mean 'bipdc-cifar100'"):
        create_model("bipdc-cifar10", pretrained=True)
    with pytest.raises(UserError, match="fit its own config only"):
        create_model("tiny", pretrained=True, width=4)


def test_weights_of_other_networks_are_refused():
    small = create_model("sphereface20_bipdc", width=0.125, embedding=4)
    with pytest.raises(UserError, match="weights of a BiPiDiNet, this is a SphereFace"):
        init_from(small, create_model("resnet18_cifar", width=0.125))
    with pytest.raises(UserError, match="kind 'angular' instead of 'central'"):
        init_from(small, create_model("sphereface20_bipdc", width=0.125, embedding=4, kind="angular"))
