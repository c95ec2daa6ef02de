"""Edge pairs: every layout, the augmentation's geometry, determinism, and what is said about broken data."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from pixeldiff.data.edges import READERS
from pixeldiff.data.lists import find_root
from pixeldiff.errors import InputError, UserError
from pixeldiff.training.tasks.edge_pairs import Augment, EdgePairs, inscribed, recolor, warp
from pixeldiff.training.tasks.edge_sources import IGNORED, Pair, Source, list_pairs, read_fractions, read_pair
from pixeldiff.training.tasks.images import normalize


def write_pair(root: Path, image: str, label: str, rng: np.random.Generator, size: tuple[int, int] = (21, 33)) -> Pair:
    for name, array in (
        (image, rng.integers(0, 256, (*size, 3), dtype=np.uint8)),
        (label, rng.choice([0, 100, 255], size).astype(np.uint8)),
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(path)
    return Pair(root / image, root / label)


def write_mat(path: Path, annotators: list[np.ndarray]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = np.empty((1, len(annotators)), dtype=object)
    for k, boundaries in enumerate(annotators):
        cells[0, k] = {"Boundaries": boundaries.astype(np.uint8), "Segmentation": np.zeros(boundaries.shape)}
    savemat(path, {"groundTruth": cells})


def test_layouts(tmp_path: Path, rng: np.random.Generator) -> None:
    hed = write_pair(tmp_path, "train/aug_data/0.0_1_0/1.jpg", "train/aug_gt/0.0_1_0/1.png", rng)
    voc = write_pair(tmp_path, "PASCAL/aug_data/0.0_1/2.jpg", "PASCAL/aug_gt/0.0_1/2.png", rng)
    (tmp_path / "train_pair.lst").write_text(
        "train/aug_data/0.0_1_0/1.jpg train/aug_gt/0.0_1_0/1.png\n\n"
        "PASCAL/aug_data/0.0_1/2.jpg PASCAL/aug_gt/0.0_1/2.png\n"
    )
    assert list_pairs(tmp_path, Source("list", file="train_pair.lst")) == [hed, voc]

    (tmp_path / "image-train_da.lst").write_text("train/aug_data/0.0_1_0/1.jpg train/aug_gt/0.0_1_0/1.png 0.5\n")
    assert list_pairs(tmp_path, Source("list", file="image-train_da.lst")) == [Pair(hed.image, hed.label, 0.5)]

    (tmp_path / "PASCAL/voc_pair.lst").write_text("aug_data/0.0_1/2.jpg aug_gt/0.0_1/2.png")
    assert list_pairs(tmp_path, Source("list", file="PASCAL/voc_pair.lst")) == [voc]

    above = tmp_path / "multicue"
    above.mkdir()
    (above / "train_pair_edge_set_1.lst").write_text("../PASCAL/aug_data/0.0_1/2.jpg ../PASCAL/aug_gt/0.0_1/2.png")
    assert [p.image.resolve() for p in list_pairs(above, Source("list", file="train_pair_edge_set_1.lst"))] == [
        voc.image
    ]

    (tmp_path / "train_rgb.json").write_text(json.dumps([["PASCAL/aug_data/0.0_1/2.jpg", "PASCAL/aug_gt/0.0_1/2.png"]]))
    assert list_pairs(tmp_path, Source("list", file="train_rgb.json")) == [voc]

    mine = write_pair(tmp_path, "photos/a.jpeg", "edges/a.png", rng)
    assert list_pairs(tmp_path, Source("folders", images="photos", labels="edges")) == [mine]

    write_pair(tmp_path, "images/val/3.jpg", "unused/3.png", rng)
    write_mat(tmp_path / "groundTruth/val/3.mat", [np.eye(21, 33), np.ones((21, 33)), np.zeros((21, 33))])
    (raw,) = list_pairs(tmp_path, Source("bsds500", split="val"))
    expected = np.rint(255 / 3 * (1 + np.eye(21, 33))).astype(np.uint8)
    assert np.array_equal(read_fractions(raw.label), expected)

    spaced = write_pair(tmp_path, "my photos/b c.jpg", "my edges/b c.png", rng)
    (tmp_path / "tabs.lst").write_text("my photos/b c.jpg\tmy edges/b c.png\n")
    assert list_pairs(tmp_path, Source("list", file="tabs.lst")) == [spaced]


def test_relative_roots(tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = write_pair(tmp_path, "here/photos/a.jpg", "here/edges/a.png", rng)
    write_pair(tmp_path, "here/images/val/3.jpg", "unused/3.png", rng)
    write_mat(tmp_path / "here/groundTruth/val/3.mat", [np.eye(21, 33)])
    monkeypatch.chdir(tmp_path)
    assert list_pairs(
        find_root("here", READERS["bsds500"].origin), Source("folders", images="photos", labels="edges")
    ) == [mine]
    monkeypatch.chdir(tmp_path / "here/photos")
    monkeypatch.setenv("PIXELDIFF_DATA", "../..")
    (raw,) = list_pairs(find_root("here", READERS["bsds500"].origin), Source("bsds500", split="val"))
    assert raw.label.samefile(tmp_path / "here/groundTruth/val/3.mat")


def test_labels_of_other_kinds(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    Image.fromarray(values).save(tmp_path / "rgb.png")
    assert np.array_equal(read_fractions(tmp_path / "rgb.png"), values[..., 0])
    mask = rng.random((5, 6)) > 0.5
    Image.fromarray(mask.astype(np.uint8)).save(tmp_path / "mask.png")
    Image.fromarray(mask).save(tmp_path / "bit.png")
    Image.fromarray(np.where(mask, 255, 0).astype(np.uint8)).convert("LA").save(tmp_path / "gray-alpha.png")
    see_through = np.full((5, 6, 4), 255, np.uint8) * mask[..., None]  # white lines on nothing
    Image.fromarray(see_through.astype(np.uint8)).save(tmp_path / "see-through.png")
    Image.fromarray(np.where(mask, 65535, 0).astype(np.uint16)).save(tmp_path / "deep.png")
    for name in ("mask.png", "bit.png", "gray-alpha.png", "see-through.png", "deep.png"):
        assert np.array_equal(read_fractions(tmp_path / name), mask * 255), name


def test_real_bsds500(data: Path) -> None:
    pairs = [
        pair for split in ("train", "val") for pair in list_pairs(data / "BSDS500", Source("bsds500", split=split))
    ]
    assert len(pairs) == 300
    image, label = read_pair(pairs[0])
    assert image.shape[:2] == label.shape
    assert 0 < (label >= 0.3 * 255).mean() < 0.2


@pytest.mark.parametrize("size", [(481, 321), (321, 481), (100, 100), (300, 20)])
@pytest.mark.parametrize("turn", range(16))
def test_inscribed_rectangle(size: tuple[int, int], turn: int) -> None:
    """Its corners lie in the rotated image, and one a hundredth larger sticks out."""
    angle = math.pi * turn / 8
    width, height = inscribed(*size, angle)

    def inside(scale: float) -> bool:
        corners = [(sx * scale * width / 2, sy * scale * height / 2) for sx in (-1, 1) for sy in (-1, 1)]
        turned = [
            (math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y) for x, y in corners
        ]
        return all(abs(x) <= size[0] / 2 + 1e-6 and abs(y) <= size[1] / 2 + 1e-6 for x, y in turned)

    assert inside(1.0)
    assert not inside(1.01)


def test_right_angles_and_flips_are_exact(tmp_path: Path, rng: np.random.Generator) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    image, label = read_pair(pair)
    entries = EdgePairs([pair], 0, Augment(rotations=4, hflip=True))
    assert len(entries) == 8
    for index in range(8):
        _, angle, flip, _ = entries.entry(index)
        turns = round(angle / (math.pi / 2))
        found_image, found_label, _ = entries[(0, index)]
        step = -1 if flip else 1
        assert np.array_equal(found_image.permute(1, 2, 0), np.rot90(image, turns)[:, ::step])
        assert np.array_equal(found_label[0], np.rot90(label, turns)[:, ::step])


@pytest.mark.parametrize("pad", ["none", "reflect"])
def test_crops_are_parts_of_the_image(tmp_path: Path, rng: np.random.Generator, pad: str) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    image, label = read_pair(pair)
    entries = EdgePairs([pair], 5, Augment(crop=16, pad=pad))
    places = set()
    for epoch in range(20):
        crop, truth, _ = entries[(epoch, 0)]
        assert crop.shape == (3, 16, 16)
        matches = [
            (y, x)
            for y in range(21 - 15)
            for x in range(33 - 15)
            if np.array_equal(crop.permute(1, 2, 0), image[y : y + 16, x : x + 16])
        ]
        assert len(matches) == 1
        ((y, x),) = matches
        assert np.array_equal(truth[0], label[y : y + 16, x : x + 16])
        places.add((y, x))
    assert len(places) > 10


def test_padding_is_ignored(tmp_path: Path, rng: np.random.Generator) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    _, label, _ = EdgePairs([pair], 0, Augment(crop=64, pad="reflect"))[(0, 0)]
    assert (label != IGNORED).sum() == 21 * 33


def test_inscribed_crops_ignore_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng, (40, 60))
    entries = EdgePairs([pair], 0, Augment(rotations=16, hflip=True, scale=(1.0, 0.5, 1.5)))
    assert len(entries) == 96
    for index in range(96):
        image, label, _ = entries[(0, index)]
        assert image.shape[1:] == label.shape[1:]
        assert set(label.unique().tolist()) <= {0, 100, 255}


def test_scaling_keeps_shares(rng: np.random.Generator) -> None:
    """A thin line of one annotator in three stays a line of one in three at every scale."""
    label = np.zeros((40, 60), np.uint8)
    label[20] = 85
    image = rng.integers(0, 256, (40, 60, 3), dtype=np.uint8)
    for scale in (0.5, 0.7, 1.0, 1.5):
        size = (round(40 * scale), round(60 * scale))
        _, found = warp(image, label, 0.0, False, scale, size, (0.0, 0.0))
        assert set(found.unique().tolist()) == {0, 85}
        assert (found[0] == 85).any(0).all()


@pytest.mark.parametrize("scale", [0.5, 0.6, 0.75, 0.8, 0.95])
def test_shrinking_keeps_lines_thin(rng: np.random.Generator, scale: float) -> None:
    """Every labeled pixel falls on one pixel of the smaller label: a line stays one pixel wide and unbroken."""
    label = np.zeros((41, 60), np.uint8)
    label[20], label[:, 33] = 255, 85
    size = (round(41 * scale), round(60 * scale))
    image = rng.integers(0, 256, (41, 60, 3), dtype=np.uint8)
    _, found = warp(image, label, 0.0, False, scale, size, (0.0, 0.0))
    expected = np.zeros(size, np.uint8)
    for y, x in zip(*np.nonzero(label), strict=True):
        place = int((y + 0.5) * size[0] / 41), int((x + 0.5) * size[1] / 60)
        expected[place] = max(expected[place], label[y, x])
    assert np.array_equal(found[0], expected)
    assert (expected > 0).sum() == sum(size) - 1


def test_recolor_is_its_definition(rng: np.random.Generator) -> None:
    image = torch.from_numpy(rng.integers(0, 256, (3, 5, 7), dtype=np.uint8))
    saturation, contrast, gains = 0.3, 1.4, torch.tensor([0.8, 1.0, 1.3])
    gray = 0.299 * image[0].double() + 0.587 * image[1].double() + 0.114 * image[2].double()
    found = recolor(image, saturation, contrast, gains)
    for c in range(3):
        for y in range(5):
            for x in range(7):
                value = gray[y, x] + saturation * (float(image[c, y, x]) - gray[y, x])
                value = float(gains[c]) * (gray.mean() + contrast * (value - gray.mean()))
                assert abs(int(found[c, y, x]) - min(255, max(0, float(value)))) <= 0.501
    assert torch.equal(recolor(image, 1.0, 1.0, torch.ones(3)), image)


def test_colors_vary_and_labels_do_not(tmp_path: Path, rng: np.random.Generator) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    jitter = Augment(crop=16, color_jitter=0.4)
    plain, colored = EdgePairs([pair], 5, Augment(crop=16)), EdgePairs([pair], 5, jitter)
    for epoch in range(3):
        (image, label, _), (other, same, _) = plain[(epoch, 0)], colored[(epoch, 0)]
        assert torch.equal(label, same)
        assert not torch.equal(image, other)
        assert torch.equal(other, EdgePairs([pair], 5, jitter)[(epoch, 0)][0])


def test_entries_are_pure(tmp_path: Path, rng: np.random.Generator) -> None:
    """The same epoch and index give the same sample in a fresh object; another epoch another crop."""
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    augment = Augment(rotations=16, hflip=True, scale=(1.0, 1.5), crop=9)
    first, second = EdgePairs([pair], 1, augment), EdgePairs([pair], 1, augment)
    first[(0, 3)]
    for key in ((0, 0), (2, 17), (5, 63)):
        assert all(torch.equal(a, b) for a, b in zip(first[key][:2], second[key][:2], strict=True))
    assert not torch.equal(first[(0, 0)][0], first[(1, 0)][0])


def test_normalize() -> None:
    x = torch.tensor([0, 128, 255], dtype=torch.uint8).view(1, 3, 1, 1)
    expected = [(0 - 0.485) / 0.229, (128 / 255 - 0.456) / 0.224, (1 - 0.406) / 0.225]
    assert normalize(x).flatten().tolist() == pytest.approx(expected, rel=1e-5)


def test_missing_root_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIXELDIFF_DATA", raising=False)
    with pytest.raises(UserError, match=r"no data folder 'nowhere'.*PIXELDIFF_DATA.*bsds"):
        find_root("nowhere", READERS["bsds500"].origin)


def test_broken_data_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    write_pair(tmp_path, "photos/a.jpg", "edges/a.png", rng)
    cases = {
        "none.lst": (None, "no list"),
        "gone.lst": ("photos/a.jpg edges/zzz.png", "no file .*zzz.png"),
        "one.lst": ("photos/a.jpg", r"one.lst, line 1 is not .image label."),
        "scale.lst": ("photos/a.jpg edges/a.png x", "line 1"),
        "huge.lst": ("photos/a.jpg edges/a.png inf", "line 1"),
        "spaces.lst": ("my photos/a.jpg edges/a.png", "put tabs between"),
        "bad.json": ("{", "not a JSON array"),
        "flat.json": ('["photos/a.jpg"]', "not a JSON array"),
        "empty.lst": ("", "no images"),
    }
    for name, (text, message) in cases.items():
        if text is not None:
            (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message):
            list_pairs(tmp_path, Source("list", file=name))
    with pytest.raises(UserError, match="no folder"):
        list_pairs(tmp_path, Source("folders", images="photos", labels="nothing"))
    with pytest.raises(InputError, match="no split 'train'"):
        list_pairs(tmp_path, Source("bsds500", split="train"))
    (tmp_path / "bytes.lst").write_bytes(bytes(range(128, 255)))
    with pytest.raises(UserError, match="lists are text"):
        list_pairs(tmp_path, Source("list", file="bytes.lst"))
    write_pair(tmp_path, "photos/b.jpg", "elsewhere/b.png", rng)
    with pytest.raises(UserError, match=r"b.jpg has no label; put b.png into"):
        list_pairs(tmp_path, Source("folders", images="photos", labels="edges"))


def test_jpeg_labels_are_refused(tmp_path: Path, rng: np.random.Generator) -> None:
    """Their noise lies between "nobody" and eta, where the loss looks away."""
    for folder, name in (("photos", "a.jpg"), ("edges", "a.jpg")):
        (tmp_path / folder).mkdir()
        Image.fromarray(rng.integers(256, size=(16, 16), dtype=np.uint8)).save(tmp_path / folder / name)
    with pytest.raises(UserError, match=r"edges/a\.jpg is a JPEG.*save labels as PNG"):
        list_pairs(tmp_path, Source("folders", images="photos", labels="edges"))


def test_label_of_another_size_is_named(tmp_path: Path, rng: np.random.Generator) -> None:
    pair = write_pair(tmp_path, "a.png", "b.png", rng)
    write_pair(tmp_path, "c.png", "b.png", rng, (20, 33))
    with pytest.raises(UserError, match=r"a.png is 33x21 but its label .*b.png is 33x20"):
        read_pair(pair)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    for name in ("a.png", "a.mat"):
        (tmp_path / name).write_bytes(b"nonsense")
        with pytest.raises(UserError, match=name):
            read_fractions(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.lst", "x" * 5000 + " b.png", "no file"),
        ("a.lst", "x" * 20_000, "invalid line of a list"),
        ("a.lst", "a.jpg\0 b.png", "lists are text"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", '[["a.jpg", {}]]', "pairs of names"),
    ],
)
def test_lists_beyond_reason(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=says) as refused:
        list_pairs(tmp_path, Source("list", file=name))
    assert len(str(refused.value)) < 700
