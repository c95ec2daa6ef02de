"""Maps from files: what is read, and what is refused with which words."""

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.maps import FileMap, average, find_maps, read_map
from pixeldiff.errors import UserError
from tests.extras import optional

savemat = optional("scipy.io").savemat


@pytest.fixture
def edge_map(rng):
    return (rng.random((8, 11)) * 0.6).astype(np.float32)


def test_png_npy_and_mat_hold_the_same_map(tmp_path, edge_map):
    levels = np.round(edge_map * 255).astype(np.uint8)
    Image.fromarray(levels).save(tmp_path / "a.png")
    Image.fromarray(np.stack([levels] * 3, axis=-1)).save(tmp_path / "b.edges.png")  # gray, stored as RGB
    np.save(tmp_path / "c.npy", levels)
    np.save(tmp_path / "d.npy", levels / 255)
    savemat(tmp_path / "e.mat", {"result": levels / 255, "scale": np.zeros((2, 2, 2))})
    Image.fromarray(levels.astype(np.uint16) * 257).save(tmp_path / "f.png")
    maps = find_maps(tmp_path)
    assert list(maps) == list("abcdef")
    for one in maps.values():
        np.testing.assert_allclose(one.load(), levels / 255, atol=1e-6)


def test_average(tmp_path, edge_map):
    for name, value in (("rgb", 0.2), ("hha", 0.4)):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.full((3, 4), value, np.float32))
    rgb, hha = find_maps(tmp_path / "rgb"), find_maps(tmp_path / "hha")
    np.testing.assert_allclose(average(rgb, hha)["a"].load(), np.full((3, 4), 0.3), rtol=1e-6)
    with pytest.raises(UserError, match="1 maps are only in one"):
        average(rgb, {**hha, "b": FileMap(tmp_path / "b.npy")})


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full((4, 4), 1.5), r"0, 1\]: divide levels by 255"),
        (np.full((4, 4), -3.0), "sigmoid"),
        (np.full((4, 4), np.nan), "values from nan"),
        (np.full((4, 4), 0.9), "looks inverted"),
        (np.arange(48).reshape(4, 4, 3) / 48, "in color"),
        (np.zeros(5), "height x width"),
        (np.full((4, 4), "x"), "expected floats"),
        (np.full((4, 4), 200), "holds int64 values"),
    ],
)
def test_what_is_no_map_is_refused(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(UserError, match=words):
        read_map(tmp_path / "a.npy")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="no folder of maps"):
        find_maps(tmp_path / "nowhere")
    with pytest.raises(UserError, match="has no maps"):
        find_maps(tmp_path)
    for name in ("a.npy", "a.png", "a.mat"):
        (tmp_path / name).write_bytes(b"damaged")
        with pytest.raises(UserError, match=r"readable|known format"):
            read_map(tmp_path / name)
    np.savez(tmp_path / "several.npz", a=np.zeros((2, 2)))
    (tmp_path / "several.npz").rename(tmp_path / "b.NPY")
    with pytest.raises(UserError, match=r"b.NPY is an .npz archive"):
        read_map(tmp_path / "b.NPY")
    with pytest.raises(UserError, match="two maps of a"):
        find_maps(tmp_path)
    savemat(tmp_path / "two.mat", {"x": np.zeros((2, 2)), "y": np.zeros((2, 2))})
    with pytest.raises(UserError, match=r"one 2-D numeric variable.*x 2x2, y 2x2"):
        read_map(tmp_path / "two.mat")
