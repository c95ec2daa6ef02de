"""EdgeDetector against the torch network, and against itself: backends, batches, scales, kinds of input."""

import json
import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector, UserError, _native, image
from pixeldiff.errors import InputError, MissingExtra, OutputError
from pixeldiff.inference.edges import Look, detect_edges
from pixeldiff.inference.sizes import DEFAULT_SIZE, input_size, prepare
from pixeldiff.render.drawing import Drawing, render
from tests.extras import NEEDS_TORCH, optional

onnx = optional("onnx")
torch = optional("torch")
export_onnx = optional("pixeldiff.export.onnx").export_onnx
create_model = optional("pixeldiff.models").create_model
TorchBackend = optional("pixeldiff.models.edge_backend").TorchBackend
save_model = optional("pixeldiff.models.saving").save_model


@pytest.fixture
def detector(edge_weights):
    return EdgeDetector(edge_weights, threads=1)


def noise(rng, *shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def graph(edge_onnx):
    return EdgeDetector(edge_onnx, threads=1)


@pytest.mark.parametrize("size", [(16, 16), (33, 47), (64, 96)])
def test_every_backend_equals_the_torch_network(size, rng, tmp_path):
    torch.manual_seed(1)
    model = create_model("tiny", width=4, side_channels=4).eval()
    save_model(model, tmp_path / "a.safetensors")
    export_onnx(model, tmp_path / "a.onnx")
    photo = noise(rng, *size, 3)
    with torch.no_grad():
        logits = model.side_logits(torch.from_numpy(image.normalize(photo, image.MEAN, image.STD))[None])
    expected = torch.sigmoid(torch.cat(logits))[:, 0].numpy()
    for backend in ("native", "torch", "onnx"):
        detector = EdgeDetector(tmp_path / ("a.onnx" if backend == "onnx" else "a.safetensors"))
        if backend == "torch":
            detector.network.backend = TorchBackend(detector.network.path, 1, "cpu")
        assert detector.network.backend.name == backend
        np.testing.assert_allclose(detector(photo), expected[-1], atol=1e-5)
        if backend != "onnx":
            maps = detector(photo, sides=True)
            assert (maps.shape, maps.dtype) == ((5, *size), np.float32)
            np.testing.assert_allclose(maps, expected, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 1), (1, 50), (50, 1), (7, 9), (15, 40), (40, 56)])
def test_maps_have_the_images_size(size, detector, rng):
    edges = detector(noise(rng, *size, 3))
    assert (edges.shape, edges.dtype) == (size, np.float32)
    assert 0 <= edges.min() <= edges.max() <= 1
    assert detector(noise(rng, *size, 3), sides=True).shape == (5, *size)


def test_every_kind_of_input_is_the_same_image(detector, rng, tmp_path):
    gray = noise(rng, 30, 41)
    Image.fromarray(gray).save(tmp_path / "a.png")
    opaque = np.dstack([gray, gray, gray, np.full_like(gray, 255)])
    expected = detector(gray)
    kinds = (str(tmp_path / "a.png"), tmp_path / "a.png", Image.fromarray(gray), gray[..., None], opaque, gray / 255)
    for one in kinds:
        np.testing.assert_allclose(detector(one), expected, atol=1e-5)


def test_a_list_of_mixed_sizes_gives_each_its_own_map(detector, rng):
    many = [noise(rng, *size, 3) for size in ((20, 30), (17, 17), (20, 30), (1, 5), (20, 30))]
    for own, photo in zip(detector(many), many, strict=True):
        np.testing.assert_allclose(own, detector(photo), atol=1e-6)
    assert detector([]) == []


def test_strips_of_the_cpp_engine_change_nothing_at_all(detector, graph, rng):
    photo = image.resize(noise(rng, 38, 60, 3), (301, 475)).astype(np.uint8)
    maps = detector(photo, sides=True)
    np.testing.assert_allclose(graph(photo), maps[-1], atol=2e-4)
    detector.network.memory_budget = 1
    np.testing.assert_array_equal(detector(photo, sides=True), maps)
    np.testing.assert_array_equal(detector(photo), maps[-1])


def test_an_onnx_file_has_no_side_outputs(graph, rng):
    with pytest.raises(InputError, match=r"\.safetensors"):
        graph(noise(rng, 20, 30, 3), sides=True)


def test_the_backend_follows_the_file_and_the_device(detector, graph, edge_weights, edge_onnx, monkeypatch):
    assert (detector.network.backend.name, graph.network.backend.name) == ("native", "onnx")
    for model, arguments, subject in (
        (edge_onnx, {"device": "quantum"}, "device 'quantum'"),
        (edge_onnx, {"device": "cuda:x"}, "device 'cuda:x'"),
        (edge_weights, {"providers": ["CPUExecutionProvider"]}, r"small-random\.safetensors"),
    ):
        with pytest.raises(UserError, match=subject):
            EdgeDetector(model, **arguments)
    for name, model, arguments, extra in (
        ("onnxruntime", edge_onnx, {}, "onnx"),
        ("torch", edge_weights, {"device": "cuda"}, "train"),
    ):
        with monkeypatch.context() as patch:
            for module in ("pixeldiff.inference.onnx_session", "pixeldiff.models.edge_backend"):
                patch.delitem(sys.modules, module, raising=False)
            patch.delattr("pixeldiff.inference.onnx_session", raising=False)
            patch.setitem(sys.modules, name, None)
            with pytest.raises(MissingExtra, match=rf"pixeldiff\[{extra}\]"):
                EdgeDetector(model, **arguments)


@NEEDS_TORCH
def test_torch_runs_on_the_device_or_says_what_it_lacks(edge_weights, rng):
    photo = noise(rng, 20, 30, 3)
    assert EdgeDetector(edge_weights, device="meta").network.backend.name == "torch"
    for device in ("quantum", "cuda:99"):
        with pytest.raises(UserError, match=f"device '{device}'"):
            EdgeDetector(edge_weights, device=device)
    if torch.cuda.is_available():
        expected = EdgeDetector(edge_weights)(photo)
        np.testing.assert_allclose(EdgeDetector(edge_weights, device="cuda")(photo), expected, atol=1e-3)


def test_flip_averages_with_the_flipped_image(detector, rng):
    image = noise(rng, 40, 61, 3)
    for scales in ((1.0,), (0.5, 1.5)):
        flipped = detector(np.ascontiguousarray(image[:, ::-1]), scales=scales)[:, ::-1]
        expected = (detector(image, scales=scales) + flipped) / 2
        np.testing.assert_allclose(detector(image, scales=scales, flip=True), expected, atol=1e-5)


def test_scales_average_the_maps(detector, rng):
    photo = noise(rng, 40, 61, 3)
    unit = photo / np.float32(255)
    half, large = image.resize(unit, (20, 30)), image.resize(unit, (60, 92))
    expected = [image.resize(detector(one), (40, 61)) for one in (half, photo, large)]
    np.testing.assert_allclose(detector(photo, scales=(0.5, 1, 1.5)), np.mean(expected, axis=0), atol=1e-5)
    for bad in ((), (0,), (-1, 1), (9,), 1.0, "no", [None]):
        with pytest.raises(UserError, match="invalid scales"):
            detector(photo, scales=bad)


def test_nms_is_the_benchmarks_suppression(detector, rng):
    from pixeldiff.edgemap import nms

    image = noise(rng, 40, 50, 3)
    np.testing.assert_array_equal(detector(image, nms=True), nms(detector(image)))


def test_one_detector_serves_several_threads(detector, rng):
    from concurrent.futures import ThreadPoolExecutor

    many = [noise(rng, 32, 32 + n, 3) for n in range(12)]
    with ThreadPoolExecutor(4) as workers:
        for own, image in zip(workers.map(detector, many), many, strict=True):
            np.testing.assert_array_equal(own, detector(image))


def test_wrong_weights_are_errors(tmp_path, edge_onnx):
    plain = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        "other",
        [onnx.helper.make_tensor_value_info("x", 1, [1])],
        [onnx.helper.make_tensor_value_info("y", 1, [1])],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(plain, opset_imports=opset, ir_version=8), tmp_path / "other.onnx")
    (tmp_path / "corrupt.onnx").write_bytes(edge_onnx.read_bytes()[:5000])
    (tmp_path / "empty.onnx").write_bytes(b"")
    for name, says in {
        "other.onnx": "weights of another network",
        "corrupt.onnx": "not a readable ONNX file",
        "empty.onnx": "not a readable ONNX file",
        "a.pth": "pixeldiff export .*a.pth -o a.safetensors",
        "missing.onnx": "no weights file",
        "no-such-model": "no pretrained model named",
        "x" * 5000: "no pretrained model named 'x{99}'",
    }.items():
        with pytest.raises(UserError, match=says):
            EdgeDetector(tmp_path / name if "." in name else name)


def test_arguments_of_the_session(edge_onnx):
    with pytest.raises(UserError, match=r"no provider 'Quantum'.*CPUExecutionProvider"):
        EdgeDetector(edge_onnx, providers=["Quantum"])
    with pytest.raises(UserError, match="threads is at least 1"):
        EdgeDetector(edge_onnx, threads=0)
    with pytest.raises(UserError, match="invalid streams"):
        EdgeDetector(edge_onnx, streams=0)
    assert (
        EdgeDetector(edge_onnx, streams=4).network.memory_budget == EdgeDetector(edge_onnx).network.memory_budget // 4
    )
    assert EdgeDetector(edge_onnx, providers=["CPUExecutionProvider"]).network.backend.session.get_providers() == [
        "CPUExecutionProvider"
    ]


@pytest.mark.parametrize(("memory", "budget"), [(512, 256), (4096, 1000), (32768, 4096)])
def test_the_budget_follows_the_machine(memory, budget, edge_onnx, monkeypatch):
    size = {"SC_PAGE_SIZE": 10**6, "SC_PHYS_PAGES": memory}
    monkeypatch.setattr("os.sysconf", size.get)
    assert EdgeDetector(edge_onnx).network.memory_budget == budget * 10**6


def test_large_images_are_downscaled_and_maps_have_their_size(detector, rng):
    photo = image.resize(noise(rng, 30, 40, 3), (120, 161)).astype(np.uint8)
    edges = detector(photo, max_size=80)
    assert edges.shape == (120, 161)
    small = image.reduce(photo, (60, 80))
    np.testing.assert_array_equal(edges, image.resize(detector(small), (120, 161)))
    np.testing.assert_allclose(detector(photo / 255, max_size=80), edges, atol=0.02)
    np.testing.assert_array_equal(detector(photo, max_size=161), detector(photo))
    np.testing.assert_array_equal(detector(photo, max_size=None), detector(photo))
    np.testing.assert_array_equal(detector([photo, small], max_size=80)[0], edges)
    assert detector(photo, max_size=80, sides=True, nms=True).shape == (5, 120, 161)


def test_input_size():
    assert input_size((3000, 4000)) == (DEFAULT_SIZE * 3 // 4, DEFAULT_SIZE)
    assert input_size((DEFAULT_SIZE + 1, DEFAULT_SIZE + 1)) == (DEFAULT_SIZE, DEFAULT_SIZE)
    assert input_size((4000, 3000), 481) == (481, 361)
    assert input_size((3000, 4000), None) == (3000, 4000)
    assert input_size((321, 481), 1000) == input_size((321, 481)) == (321, 481)
    assert input_size((DEFAULT_SIZE, 7)) == (DEFAULT_SIZE, 7)
    assert input_size((1, 30000), np.int64(100)) == (1, 100)
    for bad in (0, 15, -1, 2.5, "all", True):
        with pytest.raises(UserError, match="invalid max_size"):
            input_size((9, 9), bad)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": 5}, "'name'"),
        ({"task": 5}, "'task'"),
        ({"preprocessing": 5}, "the preprocessing is not a JSON object"),
        ({"preprocessing": {"mean": [0, 0, 0], "std": [1, 1]}}, "'std' of the preprocessing"),
        ({"preprocessing": {"mean": [0, 0, 0], "std": [1, 1, 0]}}, "a std above 0"),
    ],
)
def test_a_description_that_lies_is_refused(tmp_path, edge_onnx, change, says):
    proto = onnx.load(edge_onnx)
    described = json.loads(proto.metadata_props[0].value)
    described |= change
    onnx.helper.set_model_props(proto, {"pixeldiff": json.dumps(described)})
    onnx.save(proto, tmp_path / "lies.onnx")
    with pytest.raises(UserError, match=says):
        EdgeDetector(tmp_path / "lies.onnx", threads=1)


def test_a_layer_that_would_take_any_memory_is_refused(tmp_path, edge_onnx):
    proto = onnx.load(edge_onnx)
    pads = next(a for node in proto.graph.node for a in node.attribute if a.name == "pads")
    for wrong in (65, 10**6, -(10**6), 2**63 - 1):
        pads.ints[1] = wrong
        onnx.save(proto, tmp_path / "wide.onnx")
        with pytest.raises(UserError, match="pads or reaches beyond 64 pixels"):
            EdgeDetector(tmp_path / "wide.onnx", threads=1)


def test_a_graph_with_layers_of_other_kinds_is_not_opened(tmp_path, edge_onnx):
    node = onnx.helper.make_node
    own = onnx.helper.make_function("", "Relu", ["x"], ["y"], [], [onnx.helper.make_opsetid("", 17)])
    for layer, says in (
        (node("Loop", ["", "yes", "image"], ["odd"]), "a layer 'Loop'"),  # without end
        (node("ConstantOfShape", ["any"], ["odd"]), "a layer 'ConstantOfShape'"),  # of any size
        (node("Relu", ["image"], ["odd"], domain="theirs"), "a layer 'Relu'"),
        (None, "custom layers"),
    ):
        proto = onnx.load(edge_onnx)
        (proto.graph.node if layer else proto.functions).append(layer or own)
        onnx.save(proto, tmp_path / "odd.onnx")
        with pytest.raises(UserError, match=says):
            EdgeDetector(tmp_path / "odd.onnx", threads=1)


def test_a_graph_that_does_not_run_or_gives_no_maps_is_told(tmp_path, edge_onnx):
    for fault, says in (("sizes", "does not run"), ("channels", "gives no maps of edges")):
        proto = onnx.load(edge_onnx)
        last = next(node for node in proto.graph.node if node.output[0] == "edges")
        last.input[0] = "image"
        if fault == "sizes":
            pool = onnx.helper.make_node("MaxPool", ["image"], ["half"], kernel_shape=[2, 2], strides=[2, 2])
            proto.graph.node.insert(0, pool)
            last.op_type = "Add"
            last.input.append("half")
        onnx.save(proto, tmp_path / "odd.onnx")
        with pytest.raises(UserError, match=says):
            EdgeDetector(tmp_path / "odd.onnx", threads=1)(np.zeros((20, 30, 3), np.uint8))


def test_prints_itself(edge_onnx):
    shown = repr(EdgeDetector(edge_onnx, threads=1, streams=2, max_size=None))
    assert shown == f"EdgeDetector({EdgeDetector(edge_onnx).name!r}, max_size=None, threads=1, streams=2)"
    assert f"max_size={DEFAULT_SIZE}" in repr(EdgeDetector(edge_onnx))


def test_pickled_and_back(edge_onnx, rng, monkeypatch, tmp_path):
    monkeypatch.chdir(edge_onnx.parent)
    detector = EdgeDetector(edge_onnx.name, threads=1, streams=3, max_size=32)
    detector.network.memory_budget = 10**8
    stored = pickle.dumps(detector)
    monkeypatch.chdir(tmp_path)
    again = pickle.loads(stored)
    assert (repr(again), again.network.memory_budget) == (repr(detector), 10**8)
    image = noise(rng, 40, 50, 3)
    np.testing.assert_array_equal(again(image), detector(image))


def test_shipped_weights_are_pickled_by_name():
    detector = EdgeDetector("tiny", threads=1)
    assert str(detector.network.path.parent).encode() not in pickle.dumps(detector)
    assert pickle.loads(pickle.dumps(detector)).network.path == detector.network.path


def test_threshold(detector, rng):
    image = noise(rng, 40, 50, 3)
    edges = detector(image)
    level = float(np.median(edges))
    np.testing.assert_array_equal(detector(image, threshold=level), edges >= level)
    maps = detector([image], threshold=level, sides=True)[0]
    np.testing.assert_array_equal(maps[-1], edges >= level)
    for bad in (-0.1, 2, np.nan, "a"):
        with pytest.raises(UserError, match="invalid threshold"):
            detector(image, threshold=bad)


@pytest.mark.parametrize("name", ["a.png", "a.npy", "a.SVG"])
def test_saved_as_the_command_does(name, detector, rng, tmp_path):
    photo = image.resize(noise(rng, 8, 10, 3), (40, 50)).astype(np.uint8)
    Image.fromarray(photo).save(tmp_path / "photo.png")
    options = {"threshold": 0.3, "background": "white"}
    assert detector.save(tmp_path / "photo.png", tmp_path / name, nms=True, **options) == tmp_path / name
    result = detect_edges(detector.network, photo, Look(nms=True))
    assert (tmp_path / name).read_bytes() == render(result, Drawing(name[2:].lower(), **options))
    with pytest.raises(OutputError, match="gif"):
        detector.save(photo, tmp_path / "a.gif")
    with pytest.raises(InputError, match="unknown option 'thin'"):
        detector.save(photo, tmp_path / "a.png", thin=True)
    with pytest.raises(InputError, match="transparent"):
        detector.save(photo, tmp_path / "a.jpg", background="transparent")


def test_draws_what_it_saves(detector, rng, tmp_path):
    photo = noise(rng, 40, 50, 3)
    for background in ("black", "white", "transparent", "photo"):
        drawn = detector.draw(photo, background=background, threshold=0.4)
        detector.save(photo, tmp_path / "a.png", background=background, threshold=0.4)
        saved = Image.open(tmp_path / "a.png")
        assert saved.mode == drawn.mode
        np.testing.assert_array_equal(np.asarray(saved), np.asarray(drawn))


def test_a_large_image_may_be_released_before_the_network_runs(detector, rng):
    image = noise(rng, 90, 120, 3)
    prepared = prepare(image, 60)
    assert (prepared.image.shape, prepared.size) == ((45, 60, 3), (90, 120))
    np.testing.assert_array_equal(detector(prepared), detector(image, max_size=60))


def test_maps_are_upscaled_in_bands(detector, rng):
    photo = noise(rng, 600, 40, 3)
    small = detector(image.reduce(photo, (100, 7)))
    np.testing.assert_array_equal(detector(photo, max_size=100), image.resize(small, (600, 40)))


def test_thin_lines_of_a_downscaled_image_stay_thin_and_connected(detector, monkeypatch):
    """A ring, as the network would give it at a quarter of the size."""
    rows, columns = np.mgrid[:75, :100]
    ring = np.exp(-((np.hypot(rows - 37, columns - 50) - 25) ** 2) / 4).astype(np.float32)
    monkeypatch.setattr(detector.network, "run", lambda *_: ring[None, None])
    thin = detector(np.zeros((300, 401, 3), np.uint8), max_size=100, nms=True)
    on = np.ascontiguousarray(thin > 0.5)
    assert on.sum() <= 1.1 * _native.thin(on.view(np.uint8)).sum()
    radius = np.hypot(*(np.argwhere(on) + 0.5 - (150, 202)).T)
    assert np.abs(radius - 100).max() < 5
    label = pytest.importorskip("scipy.ndimage").label
    assert label(on, np.ones((3, 3)))[1] == 1
    assert on.sum() > 500  # all the way round
