"""Edge labels in every layout and of every data set, and errors that say what to do."""

import json

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.edges import (
    READERS,
    EdgeDataset,
    EdgeLabels,
    by_name,
    find_labels,
    pair_folders,
    read_bsds,
    read_dataset,
    read_fraction,
    read_mask,
    read_pairs,
    split_folders,
)
from pixeldiff.errors import InputError, UserError
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
    labels = find_labels(tmp_path)
    assert list(labels) == ["12"]
    np.testing.assert_array_equal(labels["12"].masks(), masks)


def test_real_bsds_file(data):
    labels = find_labels(data / "BSDS500" / "groundTruth" / "test")
    assert len(labels) == 200
    loaded = labels["100007"].masks()
    assert 4 <= len(loaded) <= 9
    assert {mask.shape for mask in loaded} == {(321, 481)}


def test_folder_of_labels_is_one_annotator(tmp_path, masks):
    save_label(tmp_path / "a.png", masks[0])
    save_label(tmp_path / "b.png", masks[1], full=1)  # a 0/1 mask
    labels = find_labels(tmp_path)
    np.testing.assert_array_equal(labels["a"].masks(), [masks[0]])
    np.testing.assert_array_equal(labels["b"].masks(), [masks[1]])


def test_folder_per_annotator(tmp_path, masks):
    for k, mask in enumerate(masks):
        save_label(tmp_path / f"annotator{k}" / "a.png", mask)
    save_label(tmp_path / "annotator0" / "b.png", masks[0])
    labels = find_labels(tmp_path)
    np.testing.assert_array_equal(labels["a"].masks(), masks)
    assert len(labels["b"].masks()) == 1


@pytest.mark.parametrize("kind", ["pairs", "scale column", "tabs", "json"])
def test_lists(tmp_path, masks, kind):
    """Training reads the same lists and their third column."""
    label = "gt/label of a.png" if kind == "tabs" else "gt/label_of_a.png"
    save_label(tmp_path / label, masks[0])
    row = ["images/a.jpg", label]
    path = tmp_path / ("list.json" if kind == "json" else "list.lst")
    between = "\t" if kind == "tabs" else " "
    path.write_text(
        json.dumps([row])
        if kind == "json"
        else between.join(row + ["0.5"] * (kind in ("scale column", "tabs"))) + "\n\n"
    )
    labels = find_labels(path)
    assert labels["a"].image == tmp_path / "images" / "a.jpg"
    assert labels["a"].scale == (0.5 if kind == "scale column" or kind == "tabs" else 1.0)
    np.testing.assert_array_equal(labels["a"].masks(), [masks[0]])


def test_label_images_use_channel_0_and_half_strength(tmp_path):
    levels = np.array([[0, 127, 128, 255]], dtype=np.uint8)
    color = np.stack([levels, 255 - levels, 255 - levels], axis=-1)
    Image.fromarray(color).save(tmp_path / "a.png")
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png"), [[False, False, True, True]])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_shares_of_annotators_at_every_depth(tmp_path, dtype):
    shares = np.array([[0, 0.25, 0.5, 1.0]])
    full = {"f": 1, "u": np.iinfo(dtype).max if dtype != np.float32 else 1}[np.dtype(dtype).kind]
    Image.fromarray((shares * full).astype(dtype)).save(tmp_path / "a.tif")
    np.testing.assert_allclose(read_fraction(tmp_path / "a.tif"), shares * 255, atol=1)
    Image.fromarray((shares > 0.3).astype(dtype)).save(tmp_path / "mask.tif")
    assert read_fraction(tmp_path / "mask.tif").tolist() == [[0, 0, 255, 255]]


@pytest.mark.parametrize(
    ("label", "says"),
    [
        (np.array([[0, 200]], np.uint16), "unknown full scale"),
        (np.array([[0, 200]], np.int32), "unknown full scale"),
        (np.array([[0, 10**6]], np.int32), "unknown full scale"),
        (np.array([[0, 200]], np.float32), "floats in a label lie in"),
        (np.array([[0, np.nan]], np.float32), "floats in a label"),
    ],
)
def test_labels_without_a_scale_are_refused(tmp_path, label, says):
    Image.fromarray(label).save(tmp_path / "a.tif")
    with pytest.raises(InputError, match=says):
        read_fraction(tmp_path / "a.tif")


def test_print_colors_are_no_label(tmp_path):
    Image.new("CMYK", (4, 3)).save(tmp_path / "a.tif")
    with pytest.raises(UserError, match="CMYK"):
        read_fraction(tmp_path / "a.tif")


@pytest.mark.parametrize("name", ["list.lst", "list.json"])
def test_a_byte_order_mark_is_no_part_of_a_list(tmp_path, masks, name):
    save_label(tmp_path / "a.png", masks[0])
    text = "a.jpg a.png\n" if name.endswith("lst") else '[["a.jpg", "a.png"]]'
    (tmp_path / name).write_text(text, "utf-8-sig")
    assert find_labels(tmp_path / name)["a"].image == tmp_path / "a.jpg"


@pytest.mark.parametrize(("sizes", "says"), [((), "no masks"), (((9, 7), (5, 4)), "4x5 and 7x9 masks")])
def test_annotators_of_one_image_agree_on_its_size(tmp_path, sizes, says):
    save_bsds(tmp_path / "a.mat", [np.zeros(size) for size in sizes])
    with pytest.raises(InputError, match=says):
        read_bsds(tmp_path / "a.mat")


def test_hidden_files_are_no_truth(tmp_path, masks):
    save_bsds(tmp_path / "b.mat", masks)
    (tmp_path / "._b.mat").write_bytes(b"left behind by an archive")
    assert list(find_labels(tmp_path)) == ["b"]


def test_one_file(tmp_path, masks):
    save_label(tmp_path / "a.png", masks[0])
    save_bsds(tmp_path / "b.mat", masks)
    np.testing.assert_array_equal(find_labels(tmp_path / "a.png")["a"].masks(), [masks[0]])
    np.testing.assert_array_equal(find_labels(tmp_path / "b.mat")["b"].masks(), masks)


def test_errors_teach(tmp_path, masks):
    (tmp_path / "pairs.bin").write_bytes(bytes(range(128, 255)))
    with pytest.raises(InputError, match="lists are text"):
        find_labels(tmp_path / "pairs.bin")
    (tmp_path / "pairs.bin").unlink()
    with pytest.raises(InputError, match="no ground truth"):
        find_labels(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no \.mat files"):
        find_labels(tmp_path)
    (tmp_path / "groundTruth").mkdir()
    with pytest.raises(InputError, match="--dataset bsds500"):
        find_labels(tmp_path)
    (tmp_path / "images.lst").write_text("images/a.jpg\n")
    with pytest.raises(InputError, match=r"names only an image.*folder of labels"):
        find_labels(tmp_path / "images.lst")
    (tmp_path / "pairs.lst").write_text("".join(f"{k}.jpg {k}.png\n" for k in range(12)))
    with pytest.raises(InputError, match=r"12 files that do not exist.*and 2 more"):
        find_labels(tmp_path / "pairs.lst")
    (tmp_path / "bad.json").write_text('{"a": 1}')
    with pytest.raises(InputError, match="JSON array"):
        find_labels(tmp_path / "bad.json")
    savemat(tmp_path / "x.mat", {"edges": np.zeros((2, 3))})
    with pytest.raises(InputError, match="got edges 2x3"):
        find_labels(tmp_path)["x"].masks()
    (tmp_path / "y.mat").write_bytes(b"no such thing")
    with pytest.raises(InputError, match="not a readable"):
        find_labels(tmp_path)["y"].masks()


def save_photo(path, rng, mode="RGB"):
    """Coarse random colors, as photographs have them: little is black or at full strength."""
    small = Image.fromarray(rng.integers(20, 235, (6, 8, 3), dtype=np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    small.resize((48, 36), Image.Resampling.BICUBIC).convert(mode).save(path)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_photograph_is_no_label(tmp_path, rng, suffix):
    save_photo(tmp_path / f"a.{suffix}", rng)
    with pytest.raises(InputError, match="looks like a color photo"):
        read_mask(tmp_path / f"a.{suffix}")


def test_red_lines_on_black_are_a_label(tmp_path):
    label = np.zeros((20, 30, 3), np.uint8)
    label[4, :, 0] = 255
    Image.fromarray(label).save(tmp_path / "a.jpg", quality=95)
    assert read_mask(tmp_path / "a.jpg")[4].all()


def test_inverted_truth_is_refused_unless_meant(tmp_path, rng):
    inverted = [rng.random((37, 41)) < 0.9 for _ in range(3)]
    save_label(tmp_path / "a.png", inverted[0])
    save_bsds(tmp_path / "b.mat", inverted)
    for path, read in ((tmp_path / "a.png", read_mask), (tmp_path / "b.mat", read_bsds)):
        with pytest.raises(InputError, match=r"looks inverted \(.*invert it"):
            read(path)
    np.testing.assert_array_equal(read_mask(tmp_path / "a.png", allow_inverted=True), inverted[0])
    np.testing.assert_array_equal(read_bsds(tmp_path / "b.mat", allow_inverted=True), inverted)


def test_images_and_their_labels(tmp_path, masks, rng):
    for name in ("a", "b"):
        save_photo(tmp_path / "photos" / f"{name}.jpg", rng)
        save_label(tmp_path / "edges" / f"{name}.png", masks[0])
    labels = pair_folders(tmp_path / "photos", tmp_path / "edges")
    assert {name: one.image.name for name, one in labels.items()} == {"a": "a.jpg", "b": "b.jpg"}
    np.testing.assert_array_equal(labels["b"].masks(), [masks[0]])
    (tmp_path / "edges" / "b.png").rename(tmp_path / "edges" / "c.png")
    with pytest.raises(InputError, match="2 names have only an image or only a label: b, c"):
        pair_folders(tmp_path / "photos", tmp_path / "edges")
    save_photo(tmp_path / "photos" / "a.png", rng)
    with pytest.raises(InputError, match="two images a"):
        pair_folders(tmp_path / "photos", tmp_path / "edges")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.lst", "a.jpg\0 b.png", "lists are text"),
        ("a.lst", "a" * 20_000 + " b.png", "invalid line of a list, 20006 characters"),
        ("a.lst", "a.jpg " + "b" * 5_000, "1 files that do not exist"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '[["a.jpg", "b\\u0000.png"]]', "pairs of names"),
        ("a.json", '[["a.jpg", "b\\ud800.png"]]', "do not exist"),
        ("a.json", '[["a.jpg", [["b.png"]]]]', "pairs of names"),
        ("a.json", "[[1, 2]]", "pairs of names"),
        ("a.json", f'[["a.jpg", {"9" * 5000}]]', "JSON array"),
        ("a.json", "7", "JSON array"),
    ],
)
def test_lists_beyond_reason(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says) as refused:
        find_labels(tmp_path / name)
    assert len(str(refused.value)) < 1000


def test_a_list_of_gigabytes_is_none(tmp_path):
    with (tmp_path / "a.lst").open("wb") as file:
        file.truncate(2**31)  # without taking room on the disk
    with pytest.raises(InputError, match="larger than 32 MB"):
        find_labels(tmp_path / "a.lst")


def test_a_gray_label_is_the_fraction_of_annotators_for_training_and_scoring(tmp_path, masks):
    (tmp_path / "mat").mkdir()
    save_bsds(tmp_path / "mat" / "a.mat", masks)
    for k, mask in enumerate(masks):
        save_label(tmp_path / "people" / str(k) / "a.png", mask)
    expected = np.rint(np.mean(masks, axis=0) * 255).astype(np.uint8)
    for folder in ("mat", "people"):
        labels = find_labels(tmp_path / folder)["a"]
        np.testing.assert_array_equal(labels.fraction(), expected)
        np.testing.assert_array_equal(labels.masks(), masks)
    Image.fromarray(expected).save(tmp_path / "gray.png")
    gray = EdgeLabels((tmp_path / "gray.png",))
    np.testing.assert_array_equal(gray.fraction(), expected)
    np.testing.assert_array_equal(gray.masks(), [np.mean(masks, axis=0) >= 0.5])


def test_annotators_of_different_sizes_have_no_fraction(tmp_path, masks):
    save_label(tmp_path / "0" / "a.png", masks[0])
    save_label(tmp_path / "1" / "a.png", masks[0][1:])
    with pytest.raises(InputError, match="differ in size"):
        find_labels(tmp_path)["a"].fraction()


def test_a_split_of_bsds500_has_images_and_annotators(tmp_path, masks):
    images, folder = split_folders(tmp_path, "val")
    folder.mkdir(parents=True)
    save_bsds(folder / "12.mat", masks)
    (labels,) = read_dataset("bsds500", tmp_path, "val")
    assert labels.image == images / "12.jpg"
    np.testing.assert_array_equal(labels.masks(), masks)
    with pytest.raises(InputError, match="no images/test with groundTruth/test"):
        read_dataset("bsds500", tmp_path, "test")
    with pytest.raises(InputError, match="its splits are train, val, test"):
        read_dataset("bsds500", tmp_path, "validation")


def test_the_real_test_split(data):
    labels = by_name(read_dataset("bsds500", data / "BSDS500", "test"))
    assert len(labels) == 200
    assert all(one.image is not None and one.image.is_file() for one in labels.values())


@pytest.mark.parametrize(
    ("name", "split", "file"),
    [
        ("nyud", "train", "image-train_da.lst"),
        ("multicue", "train_pair_edge_set_1", "train_pair_edge_set_1.lst"),
        ("biped", "test", "test_rgb.json"),
    ],
)
def test_data_sets_with_lists(tmp_path, masks, name, split, file):
    save_label(tmp_path / "GT/a.png", masks[0])
    text = '[["images/a.png", "GT/a.png"]]' if file.endswith("json") else "images/a.png GT/a.png 0.5\n"
    (tmp_path / file).write_text(text)
    (labels,) = read_dataset(name, tmp_path, split)
    np.testing.assert_array_equal(labels.masks(), [masks[0]])
    assert labels.scale == (1.0 if file.endswith("json") else 0.5)


def test_a_made_up_data_set_is_one_entry(tmp_path, masks, monkeypatch):
    save_label(tmp_path / "lines-test/a.png", masks[0])

    def read(root, split):
        return list(find_labels(root / f"lines-{split}").values())

    monkeypatch.setitem(READERS, "lines", EdgeDataset(read, "Lines", "nowhere", max_dist=0.02))
    (labels,) = read_dataset("lines", tmp_path, "test")
    np.testing.assert_array_equal(labels.masks(), [masks[0]])


def test_tolerances_are_those_of_the_papers():
    tolerances = {name: dataset.max_dist for name, dataset in READERS.items()}
    assert tolerances.pop("nyud") == 0.011
    assert set(tolerances.values()) == {0.0075}


def test_names_in_a_list_are_looked_for_in_the_folders_of_the_data(tmp_path, masks):
    save_label(tmp_path / "GT/a.png", masks[0])
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/train.lst").write_text("a.jpg GT/a.png\n")
    (labels,) = read_pairs(tmp_path / "lists/train.lst", [tmp_path])
    assert labels.files == (tmp_path / "GT/a.png",)
