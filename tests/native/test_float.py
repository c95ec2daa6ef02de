"""The float engine: its own weights reader, and a network's maps against torch's, on every instruction set here."""

import dataclasses
import json

import numpy as np
import pytest

from pixeldiff import _native, weights
from pixeldiff.errors import UserError
from pixeldiff.image import normalize
from pixeldiff.inference.edge_file import KINDS, parse_edges, read_edges
from pixeldiff.weights.pairs import folded
from tests.extras import NEEDS_TORCH
from tests.references import small_network
from tests.references.tensors import load, save

TOLERANCE = 1e-5


@pytest.fixture(params=_native.float_instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setenv("PIXELDIFF_ISA", request.param)
    return request.param


def engine(file):
    config = file.config
    return _native.EdgeNetwork(
        config.width, config.side_channels, config.pattern, config.cdcm, config.csam, config.shortcuts, file.weights
    )


@pytest.fixture(scope="module")
def small():
    return read_edges(small_network.TRAINED)


def test_the_count_of_weights_is_that_of_the_tensors(small):
    for change in ({}, {"cdcm": False}, {"csam": False}, {"shortcuts": False}, {"pattern": "r" * 16}, {"width": 3}):
        config = dataclasses.replace(small.config, **change)
        support = {"radial": 25}
        count = sum(int(np.prod(s)) // 9 * support.get(k, 9) if k else int(np.prod(s)) for _, s, k in config.layers())
        assert count == _native.edge_weight_count(*dataclasses.astuple(config))


def test_neither_threads_nor_strips_nor_a_larger_image_before_change_a_bit(small, instruction_set, rng):
    network = engine(small)
    assert network.instruction_set == instruction_set
    for height, width in ((8, 8), (9, 300), (131, 77), (64, 64)):
        planes = rng.normal(size=(3, height, width)).astype(np.float32)
        edges, none = network.planes(planes, threads=1)
        assert not none
        for threads, memory in ((2, 2**30), (3, 1), (1, 1)):
            again, sides = network.planes(planes, True, threads, memory)
            np.testing.assert_array_equal(again, edges)
            assert [side.shape for side in sides] == [(height >> k, width >> k) for k in range(4)]


def test_bytes_are_normalized_as_in_numpy(small, rng):
    network = engine(small)
    image = rng.integers(0, 256, (33, 47, 3), dtype=np.uint8)
    mean, std = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    every = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    table = np.ascontiguousarray(normalize(every, mean, std)[:, 0])
    edges, _ = network.picture(image, table)
    np.testing.assert_array_equal(edges, network.planes(normalize(image, mean, std))[0])


@pytest.mark.parametrize(
    ("image", "message"),
    [(np.zeros((3, 7, 9), np.float32), "at least 8"), (np.zeros((4, 9, 9), np.float32), r"\(3, height, width\)")],
)
def test_images_that_cannot_be(small, image, message):
    with pytest.raises(ValueError, match=message):
        engine(small).planes(image)


def test_weights_that_cannot_be(small):
    config = dataclasses.astuple(small.config)
    with pytest.raises(ValueError, match="number of weights"):
        _native.EdgeNetwork(*config, small.weights[:-1])
    with pytest.raises(ValueError, match="not finite"):
        _native.EdgeNetwork(*config, small.weights * np.float32(np.nan))
    with pytest.raises(ValueError, match="16 of the letters"):
        _native.EdgeNetwork(config[0], config[1], "x" * 16, *config[3:], small.weights)


@NEEDS_TORCH
@pytest.mark.parametrize(
    ("config", "size"),
    [
        ({"width": 20, "side_channels": 8, "pattern": "carv"}, (65, 47)),
        ({"width": 5, "side_channels": 3, "pattern": "r16"}, (33, 101)),
        ({"width": 7, "side_channels": 1, "pattern": "c16", "cdcm": False}, (24, 40)),
        ({"width": 1, "side_channels": 9, "pattern": "a16", "csam": False}, (8, 8)),
        ({"width": 6, "side_channels": 5, "pattern": "baseline", "shortcuts": False}, (15, 9)),
        ({"width": 9, "side_channels": 2, "pattern": "rvvv", "cdcm": False, "csam": False}, (131, 19)),
    ],
)
def test_maps_are_those_of_the_unfused_network(config, size, instruction_set, tmp_path):
    import torch

    from pixeldiff.models.pidinet import PiDiNet, PiDiNetConfig
    from pixeldiff.models.saving import save_model

    torch.manual_seed(0)
    model = PiDiNet(PiDiNetConfig(**config)).eval()
    with torch.no_grad():
        for side in model.sides:
            side.reduce.weight.mul_(10)
    save_model(model, tmp_path / "network.safetensors")
    network = engine(read_edges(tmp_path / "network.safetensors"))
    x = torch.randn(1, 3, *size)
    with torch.inference_mode():
        expected, sides = torch.sigmoid(model(x))[0, 0].numpy(), [side[0, 0].numpy() for side in model.side_maps(x)]
    edges, own = network.planes(x[0].numpy(), sides=True)
    np.testing.assert_allclose(edges, expected, rtol=0, atol=TOLERANCE)
    for one, other in zip(own, sides, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@NEEDS_TORCH
@pytest.mark.parametrize("name", list(weights.shipped("edges")))
def test_shipped_networks_agree_with_torch_on_photos(name, data):
    import torch

    from pixeldiff import image
    from pixeldiff.models.saving import load_model

    model, network = load_model(name), engine(read_edges(weights.FOLDER / f"{name}.safetensors"))
    photo = sorted((data / "BSDS500/images/test").glob("*.jpg"))[3]
    for height, width in ((200, 161), (97, 250)):
        planes = image.normalize(image.load(photo)[:height, :width], (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        with torch.inference_mode():
            expected = torch.sigmoid(model(torch.from_numpy(planes)[None]))[0, 0].numpy()
        np.testing.assert_allclose(network.planes(planes)[0], expected, rtol=0, atol=TOLERANCE)


@NEEDS_TORCH
@pytest.mark.parametrize("kind", KINDS.values())
def test_folding_is_that_of_the_operator(kind, rng):
    import torch

    from pixeldiff.nn.ops import fold

    weight = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    np.testing.assert_allclose(folded(weight, kind), fold(torch.from_numpy(weight), kind).numpy(), rtol=0, atol=1e-6)


def changed(change):
    tensors, metadata = load(small_network.TRAINED.read_bytes())
    described = json.loads(metadata["pixeldiff"])
    change(described, tensors)
    return save(tensors, {"pixeldiff": json.dumps(described)})


def set_value(tensors, value):
    tensors["stem.weight"].flat[3] = value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(family="resnet"), "the family 'resnet'"),
        (lambda d, a: d["config"].update(width=0), "'width' of the config is not a whole number from 1 to 4096"),
        (lambda d, a: d["config"].update(width=10**9), "not a whole number from 1 to 4096"),
        (lambda d, a: d["config"].update(width=4096), "tensor 'stem.weight' is not F32"),
        (lambda d, a: d["config"].update(pattern="carv"), "16 of the letters"),
        (lambda d, a: d["config"].update(cdcm=1), "neither true nor false"),
        (lambda d, a: d["config"].update(csam=False), "of no layer"),
        (lambda d, a: d.pop("config"), "no 'config'"),
        (lambda d, a: a.pop("fusion.bias"), "tensor 'fusion.bias' is missing"),
        (lambda d, a: set_value(a, np.nan), "not finite"),
        (lambda d, a: set_value(a, np.inf), "not finite"),
    ],
)
def test_files_that_lie_are_told_in_one_line(change, message):
    with pytest.raises(UserError, match=message) as error:
        parse_edges(changed(change))
    assert "\n" not in str(error.value)


def test_files_that_are_cut_short(tmp_path):
    content = small_network.TRAINED.read_bytes()
    for length in (0, 7, 8, 100, len(content) // 2, len(content) - 1):
        path = tmp_path / "cut.safetensors"
        path.write_bytes(content[:length])
        with pytest.raises(UserError, match=r"cut\.safetensors holds no usable edge network"):
            read_edges(path)


def test_half_precision_is_read():
    def halve(described, tensors):
        tensors.update({name: array.astype(np.float16) for name, array in tensors.items()})

    file, whole = parse_edges(changed(halve)), parse_edges(small_network.TRAINED.read_bytes())
    np.testing.assert_allclose(file.weights, whole.weights, rtol=2e-3, atol=1e-3)
