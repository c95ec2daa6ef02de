"""The float engine: its weights reader, and a network's maps against torch's, on every instruction set here."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from pixeldiff import EdgeDetector, _native, weights
from pixeldiff.errors import InputError, UserError
from pixeldiff.image import normalize
from pixeldiff.inference.edge_file import EdgeConfig, engine_sizes, parse_edges, read_edges
from tests.extras import NEEDS_TORCH
from tests.references import small_network
from tests.references.tensors import load, save

TOLERANCE = 1e-5


@pytest.fixture(params=_native.float_instruction_sets())
def instruction_set(request, monkeypatch):
    monkeypatch.setenv("PIXELDIFF_ISA", request.param)
    return request.param


def engine(file):
    return _native.EdgeNetwork(*dataclasses.astuple(file.config), file.weights)


@pytest.fixture(scope="module")
def small():
    return read_edges(small_network.TRAINED)


@NEEDS_TORCH
@pytest.mark.parametrize("switches", itertools.product((False, True), repeat=3))
@pytest.mark.parametrize("pattern", ["carv", "baseline", "r16", "a16", "cvvv"])
def test_the_layout_that_torch_writes_is_what_the_engine_takes(pattern, switches):
    """Tensor by tensor: the size after folding."""
    from pixeldiff.models.pidinet import PiDiNet, PiDiNetConfig, engine_layout
    from pixeldiff.weights.pairs import pixel_pairs

    for width, side_channels in ((1, 1), (3, 5), (20, 8)):
        model = PiDiNet(PiDiNetConfig(width, side_channels, pattern, *switches))
        state, layout = model.state_dict(), engine_layout(model)
        assert sorted(name for name, _ in layout) == sorted(state)
        folding = {kind: pixel_pairs(kind).support for _, kind in layout if kind}
        sizes = [
            state[name].numel() // 9 * folding[kind] ** 2 if kind else state[name].numel() for name, kind in layout
        ]
        kernel_sizes = tuple(folding[kind] for _, kind in layout if kind)
        assert engine_sizes(EdgeConfig(width, side_channels, kernel_sizes, *switches)) == sizes


@NEEDS_TORCH
def test_every_variant_is_laid_out_for_the_engine():
    from pixeldiff.models.pidinet import VARIANTS, PiDiNet
    from pixeldiff.models.saving import layout_for_engine

    for config in VARIANTS.values():
        layout = layout_for_engine(PiDiNet(config))["engine"]
        sizes = tuple(3 if len(layout["folding"][kind]) == 9 else 5 for _, kind in layout["tensors"] if kind)
        switches = (config.cdcm, config.csam, config.shortcuts)
        expected = engine_sizes(EdgeConfig(config.width, config.side_channels, sizes, *switches))
        assert len(layout["tensors"]) == len(expected)


@NEEDS_TORCH
def test_a_network_that_the_engine_cannot_run_is_saved_without_a_layout(tmp_path):
    """The kernels of this made-up kind are 5x5 and not radial."""
    from pixeldiff.models.pidinet import PiDiNet, PiDiNetConfig
    from pixeldiff.models.saving import save_model
    from pixeldiff.weights.pairs import KINDS

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "jump", lambda point: (point, (-2 * point[0], 2 * point[1])))
        save_model(PiDiNet(PiDiNetConfig(2, 2, "jvvv" * 4)), tmp_path / "jump.safetensors")
        assert "engine" not in weights.describe(tmp_path / "jump.safetensors")
        assert EdgeDetector(tmp_path / "jump.safetensors").network.backend.name == "torch"
        with pytest.raises(InputError, match=r"jump\.safetensors.*engine"):
            read_edges(tmp_path / "jump.safetensors")


@NEEDS_TORCH
def test_a_made_up_3x3_kind_trains_and_runs_on_the_engine(tmp_path, rng):
    """One entry of KINDS; the maps are those of its definition as loops."""
    import torch

    from pixeldiff.models.pidinet import PiDiNet, PiDiNetConfig
    from pixeldiff.models.saving import load_model, save_model
    from pixeldiff.nn.ops import fold
    from pixeldiff.weights.pairs import KINDS

    def mirrored(point):
        return point, (-point[0], -point[1])  # x_p - x_-p

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "mirrored", mirrored)
        torch.manual_seed(0)
        model = PiDiNet(PiDiNetConfig(4, 3, "mcmv" * 4))
        x, y = rng.normal(size=(2, 7, 9)).astype(np.float32), rng.normal(size=(2, 3, 3)).astype(np.float32)
        expected = np.zeros((2, 7, 9))
        padded = np.pad(x, ((0, 0), (1, 1), (1, 1)))
        for c, row, column in np.ndindex(2, 7, 9):
            for dy, dx in np.ndindex(3, 3):
                difference = padded[c, row + dy, column + dx] - padded[c, row + 2 - dy, column + 2 - dx]
                expected[c, row, column] += y[c, dy, dx] * difference
        kernels = fold(torch.from_numpy(y)[:, None], "mirrored")
        differences = torch.nn.functional.conv2d(torch.from_numpy(x)[None], kernels, padding=1, groups=2)
        np.testing.assert_allclose(differences[0].numpy(), expected, atol=1e-5)

        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        before = model.stem.weight.detach().clone()
        model(torch.randn(1, 3, 16, 16)).square().mean().backward()
        optimizer.step()
        assert (model.stem.weight != before).any()
        save_model(model, tmp_path / "mirrored.safetensors")
        model = load_model(tmp_path / "mirrored.safetensors")
    # The file alone says what the kind is.
    planes = rng.normal(size=(3, 33, 41)).astype(np.float32)
    with torch.inference_mode():
        edges = torch.sigmoid(model(torch.from_numpy(planes)[None]))[0, 0].numpy()
    file = read_edges(tmp_path / "mirrored.safetensors")
    np.testing.assert_allclose(engine(file).planes(planes)[0], edges, rtol=0, atol=TOLERANCE)


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
    for kernel_sizes in ((3,) * 15, (3,) * 15 + (4,)):
        with pytest.raises(ValueError, match=r"16 layers|3x3"):
            _native.EdgeNetwork(config[0], config[1], kernel_sizes, *config[3:], small.weights)


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


def changed(change):
    tensors, metadata = load(small_network.TRAINED.read_bytes())
    described = json.loads(metadata["pixeldiff"])
    change(described, tensors)
    return save(tensors, {"pixeldiff": json.dumps(described)})


def set_value(tensors, value):
    tensors["stem.weight"].flat[2:4] = value


def set_entry(described, index, entry):
    described["engine"]["tensors"][index] = entry


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (lambda d, a: d.pop("engine"), "engine"),
        (lambda d, a: d.update(engine=[]), "engine"),
        (lambda d, a: d["engine"].pop("folding"), "'folding'"),
        (lambda d, a: d["engine"].pop("tensors"), "'tensors'"),
        (lambda d, a: d["engine"].update(tensors=[["stem.weight", "central"]] * 1001), "'tensors'"),
        (lambda d, a: d["engine"]["tensors"].pop(), "82 tensors"),
        (lambda d, a: d["engine"]["tensors"].reverse(), "tensor 0"),
        (lambda d, a: set_entry(d, 0, ["stem.weight"]), "entry"),
        (lambda d, a: set_entry(d, 0, ["stem.weight", "odd"]), "'odd'"),
        (lambda d, a: set_entry(d, 0, ["stem.weight", ""]), "16 layers"),
        (lambda d, a: set_entry(d, 1, ["stem.weight", "central"]), "twice"),
        (lambda d, a: set_entry(d, 2, ["stages.0.0.pointwise.weight", "central"]), "pointwise.weight' has no 3x3"),
        (lambda d, a: d["engine"]["folding"].update(central=[[0] * 9] * 8), "'central'"),
        (lambda d, a: d["engine"]["folding"].update(central=[[0] * 8] * 9), "'central'"),
        (lambda d, a: d["engine"]["folding"].update(central=[[float("nan")] * 9] * 9), "'central'"),
        (lambda d, a: d["engine"]["folding"].update(central=[[10**400] * 9] * 9), "'central'"),
        (lambda d, a: d["engine"]["folding"]["radial"][12].__setitem__(0, 1), "'radial'.*not radial"),
        (lambda d, a: d["engine"]["folding"].update({str(k): [[0] * 9] * 9 for k in range(20)}), "16 kinds"),
        (lambda d, a: d["config"].update(width=0), "'width' of the config"),
        (lambda d, a: d["config"].update(width=10**9), "'width' of the config"),
        (lambda d, a: d["config"].update(width=4096), "tensor 0"),
        (lambda d, a: d["config"].update(cdcm=1), "'cdcm'"),
        (lambda d, a: d["config"].update(csam=False), "83 tensors"),
        (lambda d, a: d.pop("config"), "'config'"),
        (lambda d, a: a.pop("fusion.bias"), "'fusion.bias'"),
        (lambda d, a: a.update(extra=np.zeros(3, np.float32)), "'extra'"),
        (lambda d, a: a.update({"fusion.bias": np.zeros((1, 1, 1, 1, 1), np.float32)}), "'fusion.bias'"),
        (lambda d, a: set_value(a, np.nan), "stem.weight"),
        (lambda d, a: set_value(a, np.inf), "stem.weight"),
        (lambda d, a: set_value(a, 3e38), "too large"),
    ],
)
def test_files_that_lie_are_an_error_in_one_line(change, subject):
    with pytest.raises(UserError, match=subject) as error:
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
