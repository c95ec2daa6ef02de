"""Boxes: augmentation tested by drawing, the assignment, the loss, both stages in the loop, recipes."""

import numpy as np
import pytest
import torch

from pixeldiff.data.voc import LabeledImage, list_objects
from pixeldiff.errors import UserError
from pixeldiff.models import create_model
from pixeldiff.training.loop import train
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.recipe_file import names, read_file
from pixeldiff.training.tasks.object_images import Augment, ObjectImages, collate, place
from pixeldiff.training.tasks.objects import Task, assign, box_overlaps, detection_loss
from tests.data.test_voc import NAMES, write_voc
from tests.references.objects import iou

SOURCE = {"type": "voc", "split": "train"}


def recipe(root, name="ghostnet_objects", **changes):
    size = {"channels": 16} if name == "ghostnet_objects" else {}
    table = {
        "task": "objects",
        "model": {"name": name, "width": 0.25, "classes": 2, **size, **changes.pop("model", {})},
        "data": {
            "root": str(root),
            "sources": [SOURCE],
            "classes": list(NAMES),
            "size": 64,
            **changes.pop("data", {}),
        },
        "evaluate": {"sources": [SOURCE]},
        "optimizer": {"lr": 0.002, "betas": [0.9, 0.999], "weight_decay": 0.0},
        "schedule": {"samples": 12, "milestones": []},
        "train": {"batch_size": 4, "workers": 0, "log_every": 1, "preview_every": 1},
    }
    return parse_recipe(table | changes)


def bounds(canvas, color):
    """The rectangle of a color's pixels."""
    rows, columns = np.nonzero(np.abs(canvas.astype(int) - color).max(-1) < 60)
    return np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize(
    "window", [(0, 0, 64, 48), (-10, -20, 90, 70), (5.3, 2.1, 47.9, 40.6), (-3, 10, 70, 31)], ids=str
)
def test_boxes_stay_on_their_objects(window, mirrored):
    """Drawn: a white rectangle on gray, and where it is afterwards."""
    image = np.full((48, 64, 3), 40, np.uint8)
    image[12:30, 20:44] = 255
    canvas, (box,), (seen,) = place(image, np.array([[20, 12, 44, 30]], np.float32), window, (160, 192), mirrored)
    assert seen
    np.testing.assert_allclose(bounds(canvas, (255, 255, 255)), box, atol=3)  # the edge is smooth over some pixels


def test_boxes_that_are_hardly_seen_are_dropped():
    boxes = np.array([[0, 0, 20, 20], [0, 0, 64, 48], [30, 10, 31, 40]], np.float32)
    _, cut, seen = place(np.zeros((48, 64, 3), np.uint8), boxes, (18, 0, 64, 48), (48, 46))
    assert seen.tolist() == [False, True, False]  # a tenth is seen; most is; thinner than four pixels
    assert cut[1].tolist() == [0, 0, 46, 48]


@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_samples_by_drawing(tmp_path, mosaic):
    """Whatever is done to an image: the middle of a box shows its class's color."""
    found = list_objects(write_voc(tmp_path), "train", NAMES)
    images = ObjectImages(found.images, 5, 64, Augment(zoom=(0.7, 1.6), stretch=0.3, mosaic=mosaic))
    count = 0
    for epoch in range(12):
        for index in range(len(images)):
            pixels, boxes, labels = images[epoch, index]
            again = images[epoch, index]
            assert torch.equal(pixels, again[0])
            assert pixels.shape == (3, 64, 64)
            for box, label in zip(boxes, labels, strict=True):
                x, y = ((box[:2] + box[2:]) / 2).long().tolist()
                red, _, blue = pixels[:, y, x].tolist()
                assert (red > blue) == (NAMES[int(label)] == "cat")
                count += 1
    assert count > 12


def test_a_point_belongs_to_the_smallest_object_near_it():
    boxes = torch.tensor([[[10.0, 10, 50, 50], [20, 20, 40, 40], [0, 0, 0, 0]]])
    maps = [torch.zeros(1, 1, 64 // s, 64 // s) for s in (8, 16, 32)]
    which, centers = assign(maps, boxes, torch.tensor([[0, 1, -1]]))
    for place_, (x, y) in enumerate(centers.tolist()):
        stride = 8 if place_ < 64 else 16 if place_ < 80 else 32
        low, high = {8: (0, 64), 16: (32, 160), 32: (96, 1e9)}[stride]
        fitting = [
            (right - left, k)
            for k, (left, top, right, bottom) in enumerate(boxes[0, :2].tolist())
            if left < x < right and top < y < bottom and low <= right - left < high
            if max(abs(x - (left + right) / 2), abs(y - (top + bottom) / 2)) < 1.5 * stride
        ]
        assert int(which[0, place_]) == (min(fitting)[1] if fitting else -1)
    assert {0, 1} <= set(which.flatten().tolist())


def test_overlaps_and_a_loss_that_falls():
    rng = np.random.default_rng(0)
    a, b = (np.sort(rng.uniform(0, 9, (20, 2, 2)), 1).reshape(20, 4) for _ in range(2))
    plain, generalized = box_overlaps(torch.tensor(a), torch.tensor(b))
    np.testing.assert_allclose(plain, [iou(*pair) for pair in zip(a, b, strict=True)], atol=1e-9)
    assert (generalized <= plain + 1e-9).all()
    torch.manual_seed(0)
    model = create_model("ghostnet_objects", width=0.25, channels=16, classes=2)
    images, boxes = torch.randn(2, 3, 64, 64), torch.tensor([[[8.0, 8, 40, 48]], [[0, 0, 0, 0]]])
    labels = torch.tensor([[1], [-1]])  # the second image shows nothing
    optimizer = torch.optim.Adam(model.parameters(), 0.003)
    losses = []
    for _ in range(40):  # it rises first: better boxes are higher targets for the classes
        loss = detection_loss(model, model(images), boxes, labels, 2.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.4 * losses[0]
    nothing = detection_loss(model, model(images), boxes, torch.full((2, 1), -1), 2.0)
    assert nothing.isfinite()


def test_both_stages_train_and_resume(tmp_path):
    root = write_voc(tmp_path / "set", count=6)
    assert train(recipe(root, "ghostnet"), tmp_path / "body")
    second = recipe(root, init_from=str(tmp_path / "body/last.safetensors"))
    assert train(second, tmp_path / "run")
    assert train(second, tmp_path / "run")  # nothing is left to do
    text = (tmp_path / "run/metrics.jsonl").read_text()
    assert '"map50"' in text
    assert '"top1"' in (tmp_path / "body/metrics.jsonl").read_text()
    assert list((tmp_path / "run/previews").iterdir())


def test_images_are_held_out(tmp_path):
    root = write_voc(tmp_path, count=6)
    task = Task(recipe(root, data={"hold_out": 3}, evaluate={}))
    assert [one.image.stem for one in task.held_out.images] == ["p0", "p3"]
    assert [task.train_data.name(index)[-6:] for index in range(len(task.train_data))] == [
        "p1.png",
        "p2.png",
        "p4.png",
        "p5.png",
    ]


def test_batches_with_and_without_objects():
    empty = (torch.zeros(3, 8, 8, dtype=torch.uint8), torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    images, boxes, labels = collate([empty, (empty[0], torch.ones(2, 4), torch.tensor([1, 0]))])
    assert (images.shape, boxes.shape) == ((2, 3, 8, 8), (2, 2, 4))
    assert labels.tolist() == [[-1, -1], [1, 0]]
    assert collate([empty])[2].tolist() == [[-1]]


def test_faults_are_told_before_training(tmp_path):
    root = write_voc(tmp_path)
    with pytest.raises(UserError, match="network has 20 classes, the images 2; set classes = 2"):
        Task(recipe(root, model={"classes": 20}))
    for wrong, says in (
        ({"data": {"size": 100}}, "multiple of 32"),
        ({"augment": {"zoom": [2.0, 1.0]}}, r"augment\.zoom must be a range"),
        ({"augment": {"mosaic": 1.5}}, r"augment\.mosaic must be 0 to 1"),
        ({"data": {"hold_out": 1}}, r"data\.hold_out"),
        ({"data": {"sources": []}}, r"data\.sources"),
        ({"data": {"sources": [{"type": "csv", "split": "x"}]}}, "unknown type 'csv'"),
    ):
        with pytest.raises(UserError, match=says):
            recipe(root, **wrong)
    empty = LabeledImage(root, np.zeros((0, 4), np.float32), np.zeros(0, np.int64), np.zeros(0, bool))
    assert len(ObjectImages((empty,), 0, 64, Augment())) == 1


FILES = {name: read_file(name) for name in names() if name.startswith("objects/")}
TABLES = [(name, key, t) for name, file in FILES.items() for key, t in (file.variants or file.stages).items()]


@pytest.mark.parametrize(("name", "key", "table"), TABLES, ids=[f"{name}-{key}" for name, key, _ in TABLES])
def test_recipes_are_read(name, key, table):
    settings = parse_recipe(table)
    assert settings.model["classes"] == 20
    if name == "objects/ratios":
        assert settings.steps == pytest.approx(30_000, rel=0.001)


def test_the_table_is_the_papers():
    variants = FILES["objects/ratios"].variants
    ratios = {(t["model"].get("kind", "vanilla"), t["model"].get("ratio", 0.0)) for t in variants.values()}
    kinds = {(kind, k / 10) for kind in ("central", "angular") for k in range(1, 11)}
    assert ratios == kinds | {("vanilla", 0.0)}
