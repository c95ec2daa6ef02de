"""Labels that are not annotations: maps of a network, outlines of objects, and their fraction of an epoch."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.edges import READERS, EdgeDataset, EdgeLabels
from pixeldiff.errors import InputError, UserError
from pixeldiff.training.tasks.edge_pairs import Augment, EdgePairs
from pixeldiff.training.tasks.edge_sources import (
    BALANCE,
    IGNORED,
    MAX_RING,
    NEGATIVES,
    RING,
    Pair,
    Source,
    blended,
    list_pairs,
    outlines,
    read_pair,
)


def save(path: Path, array: np.ndarray, palette: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(array)
    if palette:  # as VOC's masks come
        image.putpalette([k * 7 % 256 for k in range(768)])
    image.save(path)
    return path


def test_soft_labels_are_those_that_are_there(tmp_path: Path, rng: np.random.Generator) -> None:
    photo = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    for name in ("a.jpg", "b/c.webp", "b/not-yet.png", "twice.jpg", "twice.png"):
        save(tmp_path / "photos" / name, photo)
    for name in ("a.png", "b/c.png", "twice.jpg.png", "twice.png.png"):
        save(tmp_path / "maps" / name, np.full((20, 30), 90, np.uint8))
    pairs = list_pairs(tmp_path, Source("pseudo-labels", images="photos", maps="maps"))
    assert [(p.image.name, p.label.name, p.kind) for p in pairs] == [
        ("a.jpg", "a.png", "pseudo"),
        ("c.webp", "c.png", "pseudo"),
        ("twice.jpg", "twice.jpg.png", "pseudo"),
        ("twice.png", "twice.png.png", "pseudo"),
    ]
    for images, maps, says in (("maps", "photos", "label of no image"), ("photos", "nowhere", "no folder")):
        with pytest.raises(InputError, match=says):
            list_pairs(tmp_path, Source("pseudo-labels", images=images, maps=maps))


@pytest.mark.usefixtures("closed_folders")
def test_folders_that_cannot_be_read_are_not_passed_over(tmp_path: Path) -> None:
    for name in ("photos/a.png", "maps/a.png"):
        save(tmp_path / name, np.zeros((20, 30), np.uint8))
    assert len(list_pairs(tmp_path, Source("pseudo-labels", images="photos", maps="maps"))) == 1
    (tmp_path / "photos/closed").mkdir()
    with pytest.raises(InputError, match="photos/closed"):
        list_pairs(tmp_path, Source("pseudo-labels", images="photos", maps="maps"))


def test_soft_levels_stay_and_large_images_are_reduced_to_their_label(tmp_path: Path, rng: np.random.Generator) -> None:
    levels = rng.integers(IGNORED + 1, 256, (20, 30), dtype=np.uint8)
    levels[0, :3] = 0, IGNORED, 2
    save(tmp_path / "maps/a.png", levels)
    save(tmp_path / "photos/a.png", np.repeat(np.repeat(np.dstack([levels] * 3), 2, 0), 2, 1))
    (pair,) = list_pairs(tmp_path, Source("pseudo-labels", images="photos", maps="maps"))
    image, label = read_pair(pair)
    assert image.shape == (20, 30, 3)
    assert label[0, :3].tolist() == [0, 0, 2]
    assert np.array_equal(np.delete(label, (0, 1, 2)), np.delete(levels, (0, 1, 2)))
    save(tmp_path / "photos/a.png", np.zeros((20, 41, 3), np.uint8))
    with pytest.raises(UserError, match=r"a.png is 41x20 but its label .*30x20"):
        read_pair(pair)
    save(tmp_path / "maps/a.png", np.zeros((20, 41, 3), np.uint8))
    with pytest.raises(UserError, match="not a pseudo-label"):
        read_pair(pair)


def test_a_blended_label_is_where_the_loss_of_people_and_teacher_is_least() -> None:
    p = np.linspace(0, 1, 51001)[1:-1]  # two hundred between two levels
    if_edge, if_none = -NEGATIVES * np.log(p), -BALANCE * (1 - NEGATIVES) * np.log(1 - p)

    def best(chance: float, more: np.ndarray | float = 0.0) -> float:
        """The answer with the least loss, where the chance of an edge is this."""
        return p[(chance * if_edge + (1 - chance) * if_none + more).argmin()]

    for strength in (6, 40, 128, 200, 250):
        low, high = 0.0, 1.0  # the chance for which the teacher's answer is the best one
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if best(middle) < strength / 255 else (low, middle)
        for share, more in ((0, if_none), (50, 0.0), (90, if_edge), (255, if_edge)):
            (level,) = blended(np.array([share], np.uint8), np.array([strength], np.uint8))
            assert abs(level - best(low, more) * 255) < 0.6


def test_people_and_maps_are_blended_by_name(tmp_path: Path, rng: np.random.Generator) -> None:
    for name in ("a", "b"):
        save(tmp_path / f"photos/{name}.jpg", rng.integers(0, 256, (20, 30, 3), dtype=np.uint8))
        save(tmp_path / f"edges/{name}.png", np.eye(20, 30, dtype=np.uint8) * 255)
    save(tmp_path / "maps/a.png", np.full((20, 30), 90, np.uint8))
    with pytest.raises(UserError, match=r"b.jpg has no map in .*maps; run the same pseudo-label command again"):
        list_pairs(tmp_path, Source("folders", images="photos", labels="edges", maps="maps"))
    save(tmp_path / "maps/b.png", np.full((21, 30), 90, np.uint8))
    pairs = list_pairs(tmp_path, Source("folders", images="photos", labels="edges", maps="maps"))
    assert [(p.label.name, p.teacher.name, p.is_soft) for p in pairs] == [
        ("a.png", "a.png", True),
        ("b.png", "b.png", True),
    ]
    _, label = read_pair(pairs[0])
    assert label[3, 3] >= 250
    assert 0 < label[3, 4] < 90
    with pytest.raises(UserError, match="differ in size"):
        read_pair(pairs[1])
    (tmp_path / "twice.lst").write_text("photos/a.jpg edges/a.png\nedges/a.png edges/a.png\n")
    with pytest.raises(InputError, match=r"no folder .*nowhere; write it first"):
        list_pairs(tmp_path, Source("folders", images="photos", labels="edges", maps="nowhere"))
    with pytest.raises(InputError, match=r"a.jpg is not the only image of its name"):
        list_pairs(tmp_path, Source("list", file="twice.lst", maps="maps"))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"type": "bsds"}, "unknown type 'bsds'.*bsds500"),
        ({"type": "bsds500"}, "missing key split"),
        ({"type": "folders", "images": "a"}, "missing key labels"),
        ({"type": "pseudo-labels", "images": "a"}, "missing key maps"),
        ({"type": "outlines", "images": "a", "maps": "b"}, "missing key labels"),
        ({"type": "list", "file": "a.lst", "images": "b"}, "type list takes file, not images"),
        ({"type": "list", "file": "a.lst", "fraction": 1.5}, "fraction"),
    ],
)
def test_wrong_sources_name_the_key(table: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Source(**table)


def drawn_mask(width: int) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """A disc as a mask with a ring of this width, and how far its pixels are from the circle in the ring's middle."""
    y, x = np.mgrid[:61, :73]
    off = np.hypot(y - 30, x - 36) - 20
    return np.where(np.abs(off) <= width / 2, RING, off < 0).astype(np.uint8), off


@pytest.mark.parametrize("width", [3, 5, 7])
def test_outlines_are_the_middle_of_the_ring(width: int) -> None:
    mask, off = drawn_mask(width)
    label = outlines(mask)
    edge = label == 255
    assert np.abs(off[edge]).max() <= 1.5
    assert 2 * np.pi * 20 * 0.85 < edge.sum() < 2 * np.pi * 20 * 1.15  # once round, one pixel wide
    assert set(label[(mask == RING) & ~edge]) <= {IGNORED}
    assert set(label[mask == 1]) == {0}
    assert set(label[mask == 0]) == {IGNORED}  # most things are no object of VOC's


def test_areas_are_no_ring() -> None:
    mask, _ = drawn_mask(5)
    mask[48:60, 60:72] = RING  # nobody judged what is there
    assert MAX_RING < 12
    label = outlines(mask)
    assert set(label[48:60, 60:72].ravel()) == {IGNORED}
    assert (label == 255).sum() > 100


def test_objects_are_read_from_masks_with_a_palette(tmp_path: Path) -> None:
    mask, _ = drawn_mask(4)
    save(tmp_path / "photos/a.jpg", np.zeros((*mask.shape, 3), np.uint8))
    save(tmp_path / "masks/a.png", mask, palette=True)
    seen = np.full(mask.shape, 90, np.uint8)
    save(tmp_path / "maps/a.png", seen)
    save(tmp_path / "photos/b.jpg", np.zeros((*mask.shape, 3), np.uint8))
    save(tmp_path / "masks/b.png", mask, palette=True)  # and no map
    (pair,) = list_pairs(tmp_path, Source("outlines", images="photos", labels="masks", maps="maps"))
    label = read_pair(pair)[1]
    assert np.array_equal(label, blended(outlines(mask), seen))
    assert set(label[mask == 0]) == {90}  # the network alone speaks of the background
    assert label[mask == 1].max() < 90 < label[outlines(mask) == 255].min()
    save(tmp_path / "maps/a.png", np.zeros((4, 5), np.uint8))
    with pytest.raises(UserError, match="differ in size"):
        read_pair(pair)
    save(tmp_path / "masks/a.png", np.zeros((4, 5), np.uint8))
    with pytest.raises(UserError, match="not a mask of objects"):
        read_pair(pair)


@pytest.mark.parametrize(
    ("annotated", "new", "fraction"), [(3, 10, 0.5), (3, 10, 0.2), (10, 3, 0.5), (4, 4, 0.75), (7, 5, 0.4), (0, 5, 0.4)]
)
def test_a_fraction_repeats_the_scarcer_source_evenly(annotated: int, new: int, fraction: float) -> None:
    people = [Pair(Path(f"p{k}"), Path("x")) for k in range(annotated)]
    pseudo = [Pair(Path(f"n{k}"), Path("x"), kind="pseudo") for k in range(new)]
    entries = EdgePairs(people, 0, Augment(hflip=True), [(pseudo, fraction)])
    used = [entries.entry(index)[0] for index in range(len(entries))]
    for part in (people, pseudo):
        counts = [used.count(pair) for pair in part] or [2]
        assert min(counts) >= 2
        assert max(counts) - min(counts) <= 2
    if annotated:
        assert sum(pair.kind == "pseudo" for pair in used) == pytest.approx(fraction * len(used), abs=1)


def test_several_fractions() -> None:
    parts = [[Pair(Path(f"{name}{k}"), Path("x")) for k in range(7)] for name in "abc"]
    entries = EdgePairs(parts[0], 0, None, [(parts[1], 0.5), (parts[2], 0.25)])
    used = [entries.entry(index)[0] for index in range(len(entries))]
    assert [sum(pair in part for pair in used) for part in parts] == [7, 14, 7]


def test_a_new_data_set_is_one_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(folder: Path, split: str) -> list[EdgeLabels]:
        return [EdgeLabels((folder / f"edges/{k}.png",), folder / f"photos/{k}.png") for k in range(int(split))]

    monkeypatch.setitem(READERS, "mine", EdgeDataset(read, "mine", "nowhere"))
    pairs = list_pairs(root, Source("mine", split="3"))
    assert [read_pair(pair)[1].shape for pair in pairs] == [(24, 28)] * 3
