"""Faces on disk: people to train on, and lists of pairs, as they are published and as they are not."""

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.faces import ORIGINS, READERS, find_people, read_pairs
from pixeldiff.errors import InputError


def image(path, value=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (value, 0, 0)).save(path)


@pytest.fixture
def lfw(tmp_path):
    """Two folds of one pair each way, in WebP, whatever the list says."""
    for name in ("Ann_A", "Bob_B"):
        for k in (1, 2, 12):
            image(tmp_path / name / f"{name}_{k:04}.webp")
    rows = ["Ann_A\t1\t12", "Ann_A\t1\tBob_B\t2", "Bob_B\t1\t2", "Bob_B\t12\tAnn_A\t2"]
    (tmp_path / "pairs.txt").write_text("2\t1\n" + "\n".join(rows) + "\n")
    return tmp_path


def named(pairs):
    return [
        (pairs.items[left][0].stem, pairs.items[right][0].stem, bool(same), int(fold))
        for left, right, same, fold in zip(pairs.left, pairs.right, pairs.same, pairs.folds, strict=True)
    ]


def test_every_data_set_says_where_to_get_it():
    assert set(READERS) == set(ORIGINS)


def test_lfw(lfw):
    expected = [
        ("Ann_A_0001", "Ann_A_0012", True, 1),
        ("Ann_A_0001", "Bob_B_0002", False, 1),
        ("Bob_B_0001", "Bob_B_0002", True, 2),
        ("Bob_B_0012", "Ann_A_0002", False, 2),
    ]
    assert named(read_pairs("lfw", lfw)) == expected
    second = read_pairs("lfw", lfw).only([2])
    assert named(second) == expected[2:]
    assert len(second.items) == 4
    with pytest.raises(InputError, match="no fold 3"):
        read_pairs("lfw", lfw).only([3])


def test_lists_may_lie_elsewhere(lfw, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("lists")
    (lfw / "pairs.txt").rename(elsewhere / "pairs.txt")
    with pytest.raises(InputError, match=r"no pairs.txt in .*vis-www.cs.umass.edu/lfw; .*--lists"):
        read_pairs("lfw", lfw)
    assert len(read_pairs("lfw", lfw, elsewhere).same) == 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Ann_A 1", "line 2: a pair is 'name number number'"),
        ("Ann_A 1 x", "line 2: 'x'"),
        ("Ann_A 1 7", r"Ann_A_0007.jpg"),
        ("Ann_A 1 12\nAnn_A 1 12", "pairs.txt has 5 pairs"),
    ],
)
def test_bad_lines_of_lfw_are_named(lfw, line, said):
    text = (lfw / "pairs.txt").read_text()
    (lfw / "pairs.txt").write_text(text.replace("Ann_A\t1\t12", line))
    with pytest.raises(InputError, match=said):
        read_pairs("lfw", lfw)


def test_images_may_be_missing_if_that_is_fine(lfw):
    (lfw / "Ann_A" / "Ann_A_0002.webp").unlink()
    assert len(read_pairs("lfw", lfw, incomplete=True).present().same) == 3


@pytest.mark.parametrize("published", [True, False])
def test_cfp(tmp_path, published):
    images, lists = (tmp_path / "Data/Images", tmp_path / "Protocol") if published else (tmp_path, tmp_path)
    for kind, letter in (("frontal", "F"), ("profile", "P")):
        for person in ("001", "002"):
            image(images / person / kind / "01.jpg")
        lists.mkdir(exist_ok=True)
        rows = [f"{k} ../Data/Images/{p}/{kind}/01.jpg" for k, p in enumerate(("001", "002"), 1)]
        (lists / f"Pair_list_{letter}.txt").write_text("\n".join(rows))
    for kinds in ("FF", "FP"):
        folder = lists / "Split" / kinds / "09"
        folder.mkdir(parents=True)
        (folder / "same.txt").write_text("1,1\n2,2\n")
        (folder / "diff.txt").write_text("1,2\n")
    found = read_pairs("cfp-fp", tmp_path)
    first = found.items[found.left[0]][0], found.items[found.right[0]][0]
    assert [path.parent.name for path in first] == ["frontal", "profile"]
    assert (found.same.tolist(), found.folds.tolist()) == ([True, True, False], [9, 9, 9])
    (lists / "Split/FF/09/diff.txt").write_text("1,5\n")
    with pytest.raises(InputError, match=r"diff.txt, line 1: a pair is 'number,number'"):
        read_pairs("cfp-ff", tmp_path)


def test_ytf_items_are_videos(tmp_path):
    for video in ("Ann_A/0", "Bob_B/3"):
        for k in range(3):
            image(tmp_path / "aligned_images_DB" / video / f"{k}.jpg")
    rows = ["split number, first name, second name, svm label, is same", "1, Ann_A/0, Ann_A/0, 1, 1"]
    (tmp_path / "splits.txt").write_text("\n".join([*rows, "2, Ann_A/0, Bob_B/3, -1, 0"]))
    found = read_pairs("ytf", tmp_path)
    assert [len(item) for item in found.items] == [3, 3]
    assert (found.same.tolist(), found.folds.tolist()) == ([True, False], [1, 2])


def test_calfw_has_two_lines_a_pair(tmp_path):
    lines = []
    for k in range(40):
        image(tmp_path / "aligned images" / f"p{k}.jpg")
        lines.append(f"p{k}.jpg {int(k < 20)}")
    (tmp_path / "pairs_CALFW.txt").write_text("\n".join(lines))
    found = read_pairs("calfw", tmp_path)
    assert found.folds.tolist() == [*range(1, 11)] * 2, "as many of both kinds in each"
    (tmp_path / "pairs_CALFW.txt").write_text("\n".join(lines[:-1]))
    with pytest.raises(InputError, match="two lines 'image label'"):
        read_pairs("calfw", tmp_path)


def test_own_pairs(lfw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for name in "abc":
        image(folder / f"{name}.png")
    (folder / "pairs.txt").write_text("a.png b.png 1\n\na.png c.png 0\n")
    assert named(read_pairs("pairs", folder)) == [("a", "b", True, 1), ("a", "c", False, 1)]
    assert len(read_pairs("pairs", lfw).same) == 4, "LFW's manner is understood, too"
    for text, said in (
        ("a.png b.png 2\n", "ends in 1 .* or 0"),
        ("a.png b.png\n", "line 1: a pair is 'image image 1'"),
        ("a.png b.png 1\n", "pairs of one person only"),
        ("", "lists no pairs"),
    ):
        (folder / "pairs.txt").write_text(text)
        with pytest.raises(InputError, match=said):
            read_pairs("pairs", folder)


def test_people_are_folders(tmp_path):
    image(tmp_path / "one/ann/1.png")
    image(tmp_path / "one/bob/frontal/1.png")
    image(tmp_path / "one/bob/profile/1.png")
    image(tmp_path / "two/401/1.png")
    image(tmp_path / "two/cid/1.png")
    (tmp_path / "two/empty").mkdir()
    (tmp_path / "names.txt").write_text("cid\n")
    roots = [tmp_path / "one", tmp_path / "two"]
    found = find_people(roots)
    assert found.names == ("one/ann", "one/bob", "two/401", "two/cid")
    np.testing.assert_array_equal(found.labels, [0, 1, 1, 2, 3])
    assert find_people(roots, ["4??", str(tmp_path / "names.txt")]).names == ("one/ann", "one/bob")
    with pytest.raises(InputError, match="images of 1 people"):
        find_people(roots[:1], ["ann"])
    with pytest.raises(InputError, match="pixeldiff faces align"):
        find_people([tmp_path / "three"])
