"""Images with boxes: the three layouts give the same objects, and every fault is one sentence that names its file."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pixeldiff.data.voc import CLASSES, check_same_names, joined, list_objects
from pixeldiff.errors import InputError

NAMES = ("cat", "dog")
# left, top, right, bottom, class, ignored; of an image of 64 x 48. The third shows nothing.
SCENES = (((8, 4, 40, 44, "cat", False), (0, 0, 16, 12, "dog", True)), ((20, 10, 64, 48, "dog", False),), ())
XML = (
    "<annotation><filename>{name}.png</filename><size><width>64</width><height>48</height></size>{objects}</annotation>"
)
OBJECT = (
    "<object><name>{4}</name><difficult>{5:d}</difficult><bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax>"
    "<ymax>{3}</ymax></bndbox></object>"
)


def write_images(folder: Path, count: int = len(SCENES)) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"p{k}" for k in range(count)]
    for k, name in enumerate(names):
        image = np.full((48, 64, 3), 90, np.uint8)
        for left, top, right, bottom, label, _ in SCENES[k % len(SCENES)]:
            image[top:bottom, left:right] = (220, 40, 40) if label == "cat" else (40, 40, 220)
        Image.fromarray(image).save(folder / f"{name}.png")
    return names


def write_voc(root: Path, split: str = "train", count: int = len(SCENES), year: str = "VOC2012") -> Path:
    folder = root / year
    names = write_images(folder / "JPEGImages", count)
    for place in ("Annotations", "ImageSets/Main"):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for k, name in enumerate(names):
        objects = "".join(OBJECT.format(o[0] + 1, o[1] + 1, *o[2:]) for o in SCENES[k % len(SCENES)])
        (folder / "Annotations" / f"{name}.xml").write_text(XML.format(name=name, objects=objects))
    (folder / "ImageSets/Main" / f"{split}.txt").write_text("\n".join(names) + "\n")
    return root


def write_coco(root: Path, split: str = "train") -> Path:
    names = write_images(root / split)
    images = [{"id": 7 * k, "file_name": f"{name}.png", "width": 64, "height": 48} for k, name in enumerate(names)]
    annotations = []
    for k, scene in enumerate(SCENES):
        for left, top, right, bottom, label, ignored in scene:
            own = {"id": len(annotations), "image_id": 7 * k, "category_id": 3 + 10 * NAMES.index(label)}
            own |= {"bbox": [left, top, right - left, bottom - top], "iscrowd": int(ignored)}
            annotations.append(own)
    categories = [{"id": 3 + 10 * k, "name": name} for k, name in enumerate(NAMES)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations").mkdir()
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def write_yolo(root: Path, split: str = "train") -> Path:
    names = write_images(root / "images" / split)
    (root / "labels" / split).mkdir(parents=True)
    (root / "data.yaml").write_text("train: images/train\nnames:\n  0: cat\n  1: 'dog'\n")
    for name, scene in zip(names, SCENES, strict=True):
        lines = [
            f"{NAMES.index(o[4])} {(o[0] + o[2]) / 128} {(o[1] + o[3]) / 96} {(o[2] - o[0]) / 64} {(o[3] - o[1]) / 48}"
            for o in scene
        ]
        if lines:  # an image without objects may be without a file
            (root / "labels" / split / f"{name}.txt").write_text("\n".join(lines))
    return root


@pytest.mark.parametrize(("write", "crowds"), [(write_voc, True), (write_coco, True), (write_yolo, False)])
def test_every_layout_gives_the_same_objects(tmp_path, write, crowds):
    found = list_objects(write(tmp_path), "train", NAMES)
    assert found.names == NAMES
    assert [one.image.stem for one in found.images] == ["p0", "p1", "p2"]
    for one, scene in zip(found.images, SCENES, strict=True):
        np.testing.assert_allclose(one.boxes, np.array([o[:4] for o in scene], float).reshape(-1, 4), atol=1e-4)
        assert [NAMES[label] for label in one.labels] == [o[4] for o in scene]
        assert one.ignored.tolist() == [bool(o[5] and crowds) for o in scene]


def test_years_are_joined(tmp_path):
    write_voc(write_voc(tmp_path), year="VOC2007", count=2)
    both = list_objects(tmp_path, "train", NAMES)
    assert len(both.images) == 5
    parts = [list_objects(tmp_path, f"VOC{year}/train", NAMES) for year in (2007, 2012)]
    assert [one.image for one in joined(parts).images] == [one.image for one in both.images]
    assert len(list_objects(tmp_path / "VOC2007", "train", NAMES).images) == 2
    with pytest.raises(InputError, match="different classes: cat, dog; and aeroplane"):
        joined([both, replace(both, names=CLASSES)])


def test_a_network_has_its_own_order_of_classes(tmp_path):
    found = list_objects(write_coco(tmp_path), "train")
    assert check_same_names(found, ("dog", "cow", "cat")).images[0].labels.tolist() == [2, 0]
    with pytest.raises(InputError, match=r"cat.*dog, cow"):
        check_same_names(found, ("dog", "cow"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("<size><width>64</width><height>48</height></size>", "", "p0.xml has no <size>"),
        ("<width>64<", "<width>-3<", "p0.xml.*-3x48 pixels"),
        ("<width>64<", "<width>wide<", "p0.xml has no number in <size><width>"),
        ("<name>cat<", "<name>lynx<", "p0.xml has an object of the unknown class 'lynx'; the classes are cat, dog"),
        ("<xmax>40<", "<xmax>80<", r"p0.xml, cat, has a box outside its image of 64x48 \(8, 4, 80, 44\)"),
        ("<xmax>40<", "<xmax>8<", "p0.xml, cat, has a box of no area"),
        ("<xmax>40<", "<xmax>nan<", "p0.xml, cat, has a box of no area"),
        ("<xmax>40<", "<xmax><", "p0.xml has no number in <bndbox><xmax>"),
        ("</annotation>", "", "p0.xml is not readable XML"),
        ("<annotation>", "<!DOCTYPE a [<!ENTITY b 'c'>]><annotation>", "p0.xml defines entities"),
        ("p0.png", "p9.png", "train.txt names 1 files that do not exist: .*p9.png"),
    ],
)
def test_faults_of_an_annotation(tmp_path, old, new, says):
    path = write_voc(tmp_path) / "VOC2012/Annotations/p0.xml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=says):
        list_objects(tmp_path, "train", NAMES)


def test_a_box_may_reach_a_pixel_beyond_the_border(tmp_path):
    path = write_voc(tmp_path) / "VOC2012/Annotations/p1.xml"
    path.write_text(path.read_text().replace("<xmax>64<", "<xmax>64.6<"))
    assert list_objects(tmp_path, "train", NAMES).images[1].boxes[0].tolist() == [20, 10, 64, 48]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda c: c["annotations"][0].update(category_id=99), "annotation 0 has the unknown class 99"),
        (lambda c: c["annotations"][0].update(image_id=99), "annotation 0 is of image 99, which is not listed"),
        (lambda c: c["annotations"][0].update(bbox=[5, 5, 0, 9]), "annotation 0 has a box of no area"),
        (lambda c: c["annotations"][0].update(bbox=[70, 5, 9, 9]), "annotation 0 has a box outside its image"),
        (lambda c: c["annotations"][0].update(bbox="here"), "is not of COCO's format"),
        (lambda c: c["images"][0].update(width=10**400), "is not of COCO's format"),
        (lambda c: c["images"][1].update(file_name="gone.png"), "names 1 files that do not exist: .*gone.png"),
        (lambda c: c.pop("categories"), "is not of COCO's format, with images, annotations and categories"),
        (lambda c: c["images"].clear() or c["annotations"].clear(), "names no images"),
    ],
)
def test_faults_of_a_coco_file(tmp_path, change, says):
    path = write_coco(tmp_path) / "annotations/instances_train.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=says):
        list_objects(tmp_path, "train")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("5 .5 .5 .2 .2", "p0.txt, line 1, has the unknown class 5; there are 2, cat is 0"),
        ("0 .5 .5 .2", "line 1, is not `class x y width height`"),
        ("0 .5 .5 0 .2", "has a box of no area"),
        ("0 1.5 .5 .2 .2", "has a box outside its image"),
    ],
)
def test_faults_of_yolos_text(tmp_path, line, says):
    (write_yolo(tmp_path) / "labels/train/p0.txt").write_text(line)
    with pytest.raises(InputError, match=says):
        list_objects(tmp_path, "train")


@pytest.mark.parametrize(
    "text", ["names: [cat, 'dog']\n", "names:\n  - cat\n  - dog\n", "nc: 2\nnames: {0: cat, 1: dog}"]
)
def test_yolos_classes(tmp_path, text):
    (write_yolo(tmp_path) / "data.yaml").write_text(text)
    assert list_objects(tmp_path, "train").names == NAMES
    (tmp_path / "data.yaml").unlink()
    with pytest.raises(InputError, match=r"classes\.txt"):
        list_objects(tmp_path, "train")
    assert list_objects(tmp_path, "train", NAMES).names == NAMES


def test_nothing_there(tmp_path):
    with pytest.raises(InputError, match=r"has no 'train': neither VOC's .* nor a COCO file train.json, nor YOLO's"):
        list_objects(tmp_path, "train")


def test_the_real_set(data):
    found = list_objects(data / "voc2012", "VOC2012/val")
    assert found.names == CLASSES
    assert (len(found.images), sum(len(one.labels) for one in found.images)) == (1000, 2580)
