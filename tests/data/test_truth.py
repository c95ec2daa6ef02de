"""Truth in every layout, and errors that say what to do."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.truth import find_ground_truth, read_bsds, read_label, read_shares
from pixeldiff.errors import UserError
from tests.extras import optional

savemat = optional("scipy.io").savemat


def save_label(path, mask, full=255):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((mask * full).astype(np.uint8)).save(path)


def save_bsds(path, masks):
    cells = np.empty((1, len(masks)), dtype=object)
    for k, mask in enumerate(masks):
        cells[0, k] = {"Boundaries": mask.astype(np.uint8), "Segmentation": mask.astype(np.uint16)}
    savemat(path, {"groundTruth": cells})


@pytest.fixture
def masks(rng):
    return [rng.random((9, 7)) < 0.3 for _ in range(3)]


def test_bsds_files(tmp_path, masks):
    save_bsds(tmp_path / "12.mat", masks)
    truth = find_ground_truth(tmp_path)
    assert list(truth) == ["12"]
    np.testing.assert_array_equal(truth["12"].load(), masks)


def test_real_bsds_file(data):
    truth = find_ground_truth(data / "BSDS500" / "groundTruth" / "test")
    assert len(truth) == 200
    loaded = truth["100007"].load()
    assert 4 <= len(loaded) <= 9
    assert {mask.shape for mask in loaded} == {(321, 481)}


def test_folder_of_labels_is_one_annotator(tmp_path, masks):
    save_label(tmp_path / "a.png", masks[0])
    save_label(tmp_path / "b.png", masks[1], full=1)  # a 0/1 mask
    truth = find_ground_truth(tmp_path)
    np.testing.assert_array_equal(truth["a"].load(), [masks[0]])
    np.testing.assert_array_equal(truth["b"].load(), [masks[1]])


def test_folder_per_annotator(tmp_path, masks):
    for k, mask in enumerate(masks):
        save_label(tmp_path / f"annotator{k}" / "a.png", mask)
    save_label(tmp_path / "annotator0" / "b.png", masks[0])
    truth = find_ground_truth(tmp_path)
    np.testing.assert_array_equal(truth["a"].load(), masks)
    assert len(truth["b"].load()) == 1


@pytest.mark.parametrize("kind", ["pairs", "scale column", "tabs", "json"])
def test_lists(tmp_path, masks, kind):
    label = "gt/label of a.png" if kind == "tabs" else "gt/label_of_a.png"
    save_label(tmp_path / label, masks[0])
    row = ["images/a.jpg", label]
    path = tmp_path / ("list.json" if kind == "json" else "list.lst")
    between = "\t" if kind == "tabs" else " "
    path.write_text(json.dumps([row]) if kind == "json" else between.join(row + ["0.5"] * (kind != "pairs")) + "\n\n")
    truth = find_ground_truth(path)
    assert truth["a"].image == tmp_path / "images" / "a.jpg"
    np.testing.assert_array_equal(truth["a"].load(), [masks[0]])


def test_label_images_use_channel_0_and_half_strength(tmp_path):
    levels = np.array([[0, 127, 128, 255]], dtype=np.uint8)
    color = np.stack([levels, 255 - levels, 255 - levels], axis=-1)
    Image.fromarray(color).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_label(tmp_path / "a.png"), [[False, False, True, True]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_shares_of_annotators_at_every_depth(tmp_path, dtype):
    shares = np.array([[0, 0.25, 0.5, 1.0]])
    full = {"f": 1, "u": np.iinfo(dtype).max if dtype != np.float32 else 1}[np.dtype(dtype).kind]
    Image.fromarray((shares * full).astype(dtype)).save(tmp_path / "a.tif")
    np.testing.assert_allclose(read_shares(tmp_path / "a.tif"), shares * 255, atol=1)
    Image.fromarray((shares > 0.3).astype(dtype)).save(tmp_path / "mask.tif")
    assert read_shares(tmp_path / "mask.tif").tolist() == [[0, 0, 255, 255]]


@pytest.mark.parametrize(
    ("label", "says"),
    [
        (np.array([[0, 200]], np.uint16), "unknown full scale"),
        (np.array([[0, 200]], np.int32), "unknown full scale"),
        (np.array([[0, 10**6]], np.int32), "unknown full scale"),
        (np.array([[0, 200]], np.float32), "floats in a label lie in 0 to 1"),
        (np.array([[0, np.nan]], np.float32), "floats in a label"),
    ],
)
def test_labels_without_a_scale_are_refused(tmp_path, label, says):
    Image.fromarray(label).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match=says):
        read_shares(tmp_path / "a.tif")


def test_print_colors_are_no_label(tmp_path):
    Image.new("CMYK", (4, 3)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match="CMYK"):
        read_shares(tmp_path / "a.tif")


@pytest.mark.parametrize("name", ["list.lst", "list.json"])
def test_a_byte_order_mark_is_no_part_of_a_list(tmp_path, masks, name):
    save_label(tmp_path / "a.png", masks[0])
    text = "a.jpg a.png\n" if name.endswith("lst") else '[["a.jpg", "a.png"]]'
    (tmp_path / name).write_text(text, "utf-8-sig")
    assert find_ground_truth(tmp_path / name)["a"].image == tmp_path / "a.jpg"


@pytest.mark.parametrize(("sizes", "says"), [((), "no masks"), (((9, 7), (5, 4)), "4x5 and 7x9 masks")])
def test_annotators_of_one_image_agree_on_its_size(tmp_path, sizes, says):
    save_bsds(tmp_path / "a.mat", [np.zeros(size) for size in sizes])
    with pytest.raises(UserError, match=says):
        read_bsds(tmp_path / "a.mat")


def test_hidden_files_are_no_truth(tmp_path, masks):
    save_bsds(tmp_path / "b.mat", masks)
    (tmp_path / "._b.mat").write_bytes(b"left behind by an archive")
    assert list(find_ground_truth(tmp_path)) == ["b"]


def test_one_file(tmp_path, masks):
    save_label(tmp_path / "a.png", masks[0])
    save_bsds(tmp_path / "b.mat", masks)
    np.testing.assert_array_equal(find_ground_truth(tmp_path / "a.png")["a"].load(), [masks[0]])
    np.testing.assert_array_equal(find_ground_truth(tmp_path / "b.mat")["b"].load(), masks)


def test_errors_teach(tmp_path, masks):
    (tmp_path / "pairs.bin").write_bytes(bytes(range(128, 255)))
    with pytest.raises(UserError, match="lists are text"):
        find_ground_truth(tmp_path / "pairs.bin")
    (tmp_path / "pairs.bin").unlink()
    with pytest.raises(UserError, match="no truth"):
        find_ground_truth(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"no \.mat files"):
        find_ground_truth(tmp_path)
    (tmp_path / "groundTruth").mkdir()
    with pytest.raises(UserError, match="--dataset bsds500"):
        find_ground_truth(tmp_path)
    (tmp_path / "images.lst").write_text("images/a.jpg\n")
    with pytest.raises(UserError, match=r"names images only.*folder of labels"):
        find_ground_truth(tmp_path / "images.lst")
    (tmp_path / "pairs.lst").write_text("".join(f"{k}.jpg {k}.png\n" for k in range(12)))
    with pytest.raises(UserError, match=r"12 files that are not there.*and 2 more"):
        find_ground_truth(tmp_path / "pairs.lst")
    (tmp_path / "bad.json").write_text('{"a": 1}')
    with pytest.raises(UserError, match="JSON array"):
        find_ground_truth(tmp_path / "bad.json")
    savemat(tmp_path / "x.mat", {"edges": np.zeros((2, 3))})
    with pytest.raises(UserError, match="found edges 2x3"):
        find_ground_truth(tmp_path)["x"].load()
    (tmp_path / "y.mat").write_bytes(b"no such thing")
    with pytest.raises(UserError, match="not a readable"):
        find_ground_truth(tmp_path)["y"].load()


def save_photo(path, rng, mode="RGB"):
    """Coarse random colors, as photographs have them: little is black or at full strength."""
    small = Image.fromarray(rng.integers(20, 235, (6, 8, 3), dtype=np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize((48, 36), Image.Resampling.BICUBIC).convert(mode).save(path)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_photograph_is_no_label(tmp_path, rng, suffix):
    save_photo(tmp_path / f"a.{suffix}", rng)
    with pytest.raises(UserError, match="looks like a color photograph"):
        read_label(tmp_path / f"a.{suffix}")


def test_red_lines_on_black_are_a_label(tmp_path):
    label = np.zeros((20, 30, 3), np.uint8)
    label[4, :, 0] = 255
    Image.fromarray(label).save(tmp_path / "a.jpg", quality=95)
    assert read_label(tmp_path / "a.jpg")[4].all()


def test_inverted_truth_is_refused_unless_meant(tmp_path, rng):
    inverted = [rng.random((37, 41)) < 0.9 for _ in range(3)]
    save_label(tmp_path / "a.png", inverted[0])
    save_bsds(tmp_path / "b.mat", inverted)
    for path, read in ((tmp_path / "a.png", read_label), (tmp_path / "b.mat", read_bsds)):
        with pytest.raises(UserError, match=r"looks inverted \(.*invert it"):
            read(path)
    np.testing.assert_array_equal(read_label(tmp_path / "a.png", force=True), inverted[0])
    np.testing.assert_array_equal(read_bsds(tmp_path / "b.mat", force=True), inverted)


def test_images_and_their_labels(tmp_path, masks, rng):
    for name in ("a", "b"):
        save_photo(tmp_path / "my:photos" / f"{name}.jpg", rng)
        save_label(tmp_path / "edges" / f"{name}.png", masks[0])
    source = f"{tmp_path / 'my:photos'}:{tmp_path / 'edges'}"
    truths = find_ground_truth(Path(source))
    assert {name: one.image.name for name, one in truths.items()} == {"a": "a.jpg", "b": "b.jpg"}
    np.testing.assert_array_equal(truths["b"].load(), [masks[0]])
    (tmp_path / "edges" / "b.png").rename(tmp_path / "edges" / "c.png")
    with pytest.raises(UserError, match="2 names have an image or a label only: b, c"):
        find_ground_truth(Path(source))
    save_photo(tmp_path / "my:photos" / "a.png", rng)
    with pytest.raises(UserError, match="two images of one name"):
        find_ground_truth(Path(source))
    with pytest.raises(UserError, match="IMAGES:LABELS"):
        find_ground_truth(tmp_path / "photos:nowhere")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.lst", "a.jpg\0 b.png", "lists are text"),
        ("a.lst", "a" * 20_000 + " b.png", "20006 characters is no line of a list"),
        ("a.lst", "a.jpg " + "b" * 5_000, "1 files that are not there"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '[["a.jpg", "b\\u0000.png"]]', "pairs of names"),
        ("a.json", '[["a.jpg", "b\\ud800.png"]]', "not there"),
        ("a.json", '[["a.jpg", [["b.png"]]]]', "pairs of names"),
        ("a.json", "[[1, 2]]", "pairs of names"),
        ("a.json", f'[["a.jpg", {"9" * 5000}]]', "JSON array"),
        ("a.json", "7", "JSON array"),
    ],
)
def test_lists_beyond_reason(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says) as refused:
        find_ground_truth(tmp_path / name)
    assert len(str(refused.value)) < 1000


def test_a_list_of_gigabytes_is_none(tmp_path):
    with (tmp_path / "a.lst").open("wb") as file:
        file.truncate(2**31)  # without taking room on the disk
    with pytest.raises(UserError, match="larger than 32 MB"):
        find_ground_truth(tmp_path / "a.lst")
