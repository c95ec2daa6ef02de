"""PidiNetDetector and the ComfyUI node: their maps are those of EdgeDetector."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff import EdgeDetector, UserError
from pixeldiff.compat.controlnet import PidiNetDetector
from pixeldiff.edgemap import to_8_bit
from pixeldiff.inference.edges import EdgeNetwork, Look
from tests.extras import optional

torch = optional("torch")


ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def detector(edge_weights):
    return PidiNetDetector.from_pretrained(edge_weights)


@pytest.fixture
def photo(rng):
    return rng.integers(0, 256, (50, 70, 3), dtype=np.uint8)


def test_without_a_resolution_the_map_is_that_of_edge_detector(detector, photo, edge_weights):
    expected = to_8_bit(EdgeDetector(edge_weights)(photo))
    result = detector(Image.fromarray(photo))
    assert isinstance(result, Image.Image)
    assert result.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(result), np.repeat(expected[..., None], 3, axis=2))
    np.testing.assert_array_equal(detector(photo, output_type="np"), np.asarray(result))


def test_lists_give_lists(detector, photo):
    results = detector([photo, photo[:33, :40]], output_type="np")
    assert [result.shape for result in results] == [(50, 70, 3), (33, 40, 3)]
    np.testing.assert_array_equal(results[1], detector(photo[:33, :40], output_type="np"))


@pytest.mark.parametrize(("resolution", "size"), [(64, (64, 64)), (128, (128, 192)), (100, (128, 128))])
def test_resolutions_are_the_shorter_side_on_a_grid_of_64(detector, photo, resolution, size):
    assert detector(photo, resolution, resolution, output_type="np").shape[:2] == size
    assert detector(photo, image_resolution=resolution, output_type="np").shape[:2] == size
    assert detector(photo, detect_resolution=resolution, output_type="np").shape[:2] == (50, 70)


def test_controlnet_preprocessing_is_bgr_without_normalization(edge_weights, photo):
    bgr = photo[..., ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255
    expected = EdgeNetwork(edge_weights).backend.run(bgr)
    old = PidiNetDetector.from_pretrained(edge_weights, preprocess="controlnet")
    (result,) = old.detect([photo], Look())
    np.testing.assert_allclose(result.edges, expected[0, 0], atol=1e-5)


def test_styles(detector, photo):
    soft = detector.detect([photo], Look())[0].edges
    safe = detector(photo, safe=True, output_type="np")[..., 0]
    np.testing.assert_array_equal(safe, np.round(np.minimum((soft * 3).astype(int), 2) / 2 * 255))
    filtered = detector(photo, apply_filter=True, output_type="np")[..., 0]
    np.testing.assert_array_equal(filtered, 255 * (soft > 0.5))
    assert set(np.unique(detector(photo, scribble=True, output_type="np"))) <= {0, 255}


@pytest.mark.parametrize("safe", [False, True])
def test_the_filter_comes_before_the_safe_levels(detector, photo, safe):
    soft = detector.detect([photo], Look())[0].edges
    between = (soft > 0.5) & (soft < 2 / 3)  # the other order would make these black
    assert between.any()
    drawn = detector(photo, safe=safe, apply_filter=True, output_type="np")[..., 0]
    np.testing.assert_array_equal(drawn, 255 * (soft > 0.5))


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u4", "u8", ">i4"])
def test_wide_integers_are_levels(detector, photo, dtype):
    levels = photo // 2  # int8 holds no more
    expected = detector(levels, output_type="np")
    np.testing.assert_array_equal(detector(levels.astype(dtype), output_type="np"), expected)
    gray = levels[..., 0]
    np.testing.assert_array_equal(detector(gray.astype(dtype), output_type="np"), detector(gray, output_type="np"))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "u2", ">u2"])
def test_dtypes_have_their_full_scale(detector, photo, dtype):
    scaled = photo.astype(np.uint16) * 257 if dtype.endswith("u2") else photo / 255
    expected = detector(photo, output_type="np")
    np.testing.assert_array_equal(detector(scaled.astype(dtype), output_type="np"), expected)


def test_booleans_are_black_and_white(detector, photo):
    mask = photo[..., 0] > 128
    expected = detector(np.where(mask, np.uint8(255), np.uint8(0)), output_type="np")
    np.testing.assert_array_equal(detector(mask, output_type="np"), expected)


@pytest.mark.parametrize("wrong", [np.full((9, 9, 3), 256), np.full((9, 9, 3), -1), np.full((9, 9, 3), 255.0)])
def test_numbers_without_a_scale_are_errors(detector, wrong):
    with pytest.raises(UserError, match="pixels"):
        detector(wrong)


@pytest.mark.parametrize("old", [{"return_pil": True}, {"return_pil": False}, {"output_type": False}])
def test_older_spellings_of_output_type(detector, photo, old):
    with pytest.warns(DeprecationWarning, match='use output_type="pil" or "np"'):
        result = detector(photo, **old)
    assert isinstance(result, Image.Image if old == {"return_pil": True} else np.ndarray)
    np.testing.assert_array_equal(np.asarray(result), detector(photo, output_type="np"))


def test_unknown_keywords_change_nothing_and_are_warned_of(detector, photo):
    with pytest.warns(UserWarning, match="without effect here: upscale_method, steps"):
        result = detector(photo, output_type="np", upscale_method="INTER_AREA", steps=3)
    np.testing.assert_array_equal(result, detector(photo, output_type="np"))


def test_arguments_and_their_order_are_those_of_controlnet_aux(edge_weights, detector, photo):
    positional = PidiNetDetector.from_pretrained(edge_weights.parent, edge_weights.name, None, True)
    by_name = PidiNetDetector.from_pretrained(
        pretrained_model_or_path=edge_weights.parent, filename=edge_weights.name, cache_dir=None, local_files_only=False
    )
    expected = detector(photo, 128, 64, safe=True, output_type="np", scribble=False, apply_filter=False)
    for one in (positional, by_name):
        np.testing.assert_array_equal(one(photo, 128, 64, True, "np", False, False), expected)


def test_max_size_bounds_the_models_input(edge_weights, detector, rng):
    photo = rng.integers(0, 256, (60, 1100, 3), dtype=np.uint8)
    own = EdgeDetector(edge_weights)

    def drawn(edges):
        return np.repeat(to_8_bit(edges)[..., None], 3, axis=2)

    for size in (..., None, 500):
        found = detector(photo, output_type="np", max_size=size)
        np.testing.assert_array_equal(found, drawn(own(photo, max_size=size)))
    assert (detector(photo, output_type="np") != detector(photo, output_type="np", max_size=None)).any()
    # detect_resolution alone sets no limit; both together apply in turn.
    wide = rng.integers(0, 256, (64, 1152, 3), dtype=np.uint8)
    np.testing.assert_array_equal(detector(wide, 64, 64, output_type="np"), drawn(own(wide, max_size=None)))
    np.testing.assert_array_equal(
        detector(wide, 64, 64, output_type="np", max_size=500), drawn(own(wide, max_size=500))
    )
    with pytest.raises(UserError, match="invalid max_size"):
        detector(photo, max_size=1)


def test_scribble_thickens_a_line():
    from pixeldiff.compat.controlnet import _pen

    drawn = np.zeros((60, 60), np.uint8)
    drawn[:, 25:35] = 255
    np.testing.assert_array_equal(np.flatnonzero(_pen(drawn)[30]), np.arange(25 - 6, 35 + 6))
    assert not _pen(np.zeros((9, 9), np.uint8)).any()


def test_names_of_hub_repositories_and_mistakes(tmp_path, edge_weights, detector, photo):
    from pixeldiff.compat.controlnet import _find_weights

    with pytest.warns(UserWarning, match="nothing is downloaded"):
        assert _find_weights("someone/Annotators", None) == "tiny"
    (tmp_path / "a.safetensors").write_bytes(edge_weights.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert PidiNetDetector.from_pretrained(tmp_path).to("cuda").network.name == "small-random"
    with pytest.raises(UserError, match="invalid preprocess"):
        PidiNetDetector.from_pretrained(edge_weights, preprocess="bgr")
    with pytest.raises(UserError, match="invalid output_type"):
        detector(photo, output_type="cv2")
    for wrong in (0, "512", float("nan"), float("inf")):
        with pytest.raises(UserError, match="resolution"):
            detector(photo, detect_resolution=wrong)


def load_pack():
    spec = importlib.util.spec_from_file_location("comfyui_pixeldiff", ROOT / "comfyui" / "__init__.py")
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    return pack


def test_comfyui_node(edge_weights, rng):
    pytest.importorskip("torch")
    pack = load_pack()
    node = pack.NODE_CLASS_MAPPINGS["PixeldiffEdges"]
    assert set(pack.NODE_DISPLAY_NAME_MAPPINGS) == set(pack.NODE_CLASS_MAPPINGS)
    inputs = node.INPUT_TYPES()["required"]
    assert inputs["model"][1]["default"] in inputs["model"][0]
    batch = torch.from_numpy(rng.random((3, 40, 50, 3), dtype=np.float32))
    options = {"model": str(edge_weights)}
    (edges,) = getattr(node(), node.FUNCTION)(batch, **options)
    assert edges.shape == batch.shape
    expected = EdgeDetector(edge_weights)(list(batch.numpy()))
    np.testing.assert_allclose(edges[..., 0], np.stack(expected), atol=1e-6)
    (inverted,) = node().detect(batch, **options, background="white")
    torch.testing.assert_close(inverted, 1 - edges)
    (hard,) = node().detect(batch, **options, threshold=0.5)
    torch.testing.assert_close(hard, (edges >= 0.5).float())
    (thin,) = node().detect(batch, **options, threshold=0.3, nms=True)
    wanted = EdgeDetector(edge_weights)(list(batch.numpy()), nms=True, threshold=0.3)
    np.testing.assert_array_equal(thin[..., 0], np.stack(wanted))
    transparent = torch.cat([batch, torch.ones(3, 40, 50, 1)], dim=-1)
    for preprocess in ("correct", "controlnet"):
        opaque, through = (node().detect(one, **options, preprocess=preprocess)[0] for one in (batch, transparent))
        torch.testing.assert_close(through, opaque, atol=1e-5, rtol=0)
    # The model stays open between runs; each preprocessing has one.
    assert pack._detector(str(edge_weights), "correct") is pack._detector(str(edge_weights), "correct")
    (old,) = node().detect(batch, **options, preprocess="controlnet")
    assert not torch.allclose(old, edges)


def test_comfyui_size(edge_weights, rng):
    pytest.importorskip("torch")
    node = load_pack().NODE_CLASS_MAPPINGS["PixeldiffEdges"]
    kind, widget = node.INPUT_TYPES()["optional"]["max_size"]
    assert (kind, widget["default"]) == ("INT", 800)
    photo = rng.random((40, 1100, 3), dtype=np.float32)
    own = EdgeDetector(edge_weights)
    for given, size in ((0, None), (512, 512), (800, 800)):
        (edges,) = node().detect(torch.from_numpy(photo)[None], model=str(edge_weights), max_size=given)
        np.testing.assert_allclose(edges[0, ..., 0], own(photo, max_size=size), atol=1e-6)
