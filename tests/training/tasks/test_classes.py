"""Classification: augmentation, losses with and without a teacher, scores, and the loop over all of it."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.models import create_model
from pixeldiff.models.saving import load_model
from pixeldiff.training.loop import train
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.recipe_file import changed, names, read_file
from pixeldiff.training.tasks.class_images import CifarImages, FolderImages, _random_box
from pixeldiff.training.tasks.classes import Task, distillation_loss, predict
from pixeldiff.training.tasks.images import normalize
from tests.data.test_cifar import write_cifar


@pytest.fixture
def cifar(tmp_path):
    return write_cifar(tmp_path / "cifar-100-python")


def recipe(root, name="resnet18_bipdc_cifar", **changes):
    table = {
        "task": "classes",
        "model": {"name": name, "width": 0.125, **changes.pop("model", {})},
        "data": {"root": str(root), **changes.pop("data", {})},
        "optimizer": {"lr": 0.001, "betas": [0.9, 0.999], "weight_decay": 0.0},
        "schedule": {"samples": 24, "milestones": []},
        "train": {"batch_size": 8, "workers": 0, "log_every": 1},
    }
    return parse_recipe(table | changes)


def trained(recipe, out):
    train(recipe, out)
    return out / "last.safetensors"


def test_windows_of_padded_images(cifar):
    photos = CifarImages(cifar, "train", seed=3)
    keys = [(epoch, index) for epoch in (0, 1) for index in range(40)]
    images, labels = photos.collate(keys)
    assert images.shape == (80, 3, 32, 32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert labels.tolist() == [index % 100 for _, index in keys]
    seen = set()
    for (epoch, index), image in zip(keys, images.permute(0, 2, 3, 1).numpy(), strict=True):
        row, column, flip = photos._draw(epoch)[index]
        padded = np.zeros((40, 40, 3), np.uint8)
        padded[4:36, 4:36] = photos.cifar.images[index]
        window = padded[row : row + 32, column : column + 32]
        np.testing.assert_array_equal(image, window[:, ::-1] if flip else window)
        seen.add((row, column, flip))
    assert len(seen) > 50
    # An image's augmentation depends on seed, epoch and index, not on its batch.
    assert torch.equal(photos.collate([keys[70]])[0][0], images[70])
    assert not torch.equal(CifarImages(cifar, "train", seed=4).collate(keys)[0], images)


def test_tasks_reach_workers_that_do_not_share_memory(cifar):
    images = CifarImages(cifar, "train", seed=3)
    before = images.collate([(0, 5), (1, 6)])[0]
    assert torch.equal(pickle.loads(pickle.dumps(images)).collate([(0, 5), (1, 6)])[0], before)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "colors"
    rng = np.random.default_rng(0)
    for split, count in (("train", 3), ("val", 2)):
        for label, color in enumerate(("blue", "green", "red")):
            (root / split / color).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(100, size=(50 + i, 70, 3), dtype=np.uint8)
                pixels[:, :, 2 - label] += 150
                Image.fromarray(pixels).save(root / split / color / f"{i}.png")
    (root / "train" / "notes.txt").write_text("not a class")
    return root


def test_folder_of_classes(folder):
    photos = FolderImages(folder, "train", size=24)
    assert (len(photos), photos.names) == (9, ("blue", "green", "red"))
    keys = [(0, i) for i in range(9)]
    images, labels = photos.collate([photos[key] for key in keys])
    assert images.shape == (9, 3, 24, 24)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert (2 - images.float().mean((2, 3)).argmax(1)).tolist() == labels.tolist()
    again = photos.collate([photos[key] for key in keys])[0]
    later = photos.collate([photos[1, i] for i in range(9)])[0]
    assert torch.equal(images, again)
    assert not torch.equal(images, later)
    assert FolderImages(folder, "val", size=24).plain(np.array([1, 2]))[1].tolist() == [0, 1]


def test_random_crops(rng):
    """The ImageNet augmentation: area 8% to 100%, sides 3:4 to 4:3, inside the image, of many places."""
    boxes = np.array([_random_box((100, 60), 0.08, rng) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    area, shape = width * height / 6000, width / height
    assert boxes.min() >= 0
    assert boxes[:, 2].max() <= 100
    assert boxes[:, 3].max() <= 60
    fits = area < 1  # the full image is what remains if ten tries do not fit
    assert 0.08 <= area.min() < 0.1
    assert area[fits].max() > 0.7
    assert 0.75 <= shape[fits].min() < 0.77
    assert 1.3 < shape[fits].max() <= 4 / 3
    assert len(np.unique(boxes[fits, 0].round(3))) > 1500
    assert _random_box((1000, 1), 0.08, rng) == (0, 0, 1000, 1)


def test_half_of_the_samples_are_flipped(tmp_path):
    (tmp_path / "train" / "one").mkdir(parents=True)
    ramp = np.broadcast_to(np.arange(0, 256, 8, dtype=np.uint8)[None, :, None], (32, 32, 3))
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "train/one/a.png")
    images = FolderImages(tmp_path, "train", size=8)
    flipped = [int(pixels[0, 0, 0]) > int(pixels[0, -1, 0]) for pixels, _ in (images[e, 0] for e in range(200))]
    assert 70 < sum(flipped) < 130


def test_plain_images_keep_the_center(tmp_path):
    (tmp_path / "val" / "one").mkdir(parents=True)
    pixels = np.zeros((256, 300, 3), np.uint8)
    pixels[16:240, 38:262] = 200
    Image.fromarray(pixels).save(tmp_path / "val" / "one" / "a.png")
    image, _ = FolderImages(tmp_path, "val").plain(np.array([0]))
    assert image.shape == (1, 3, 224, 224)
    assert image.unique().tolist() == [200]


def test_distillation_by_definition(rng):
    student, teacher = (torch.from_numpy(rng.normal(size=(6, 5))) for _ in range(2))
    for t in (1.0, 3.0):
        p, q = (np.exp(z / t) / np.exp(z / t).sum(1, keepdims=True) for z in (teacher.numpy(), student.numpy()))
        expected = t * t * (p * np.log(p / q)).sum(1).mean()
        assert float(distillation_loss(student, teacher, t)) == pytest.approx(expected)


def test_loss_is_cross_entropy_without_a_teacher(cifar):
    task = Task(recipe(cifar))
    batch = task.train_data.collate([task.train_data[0, i] for i in range(5)])
    logits = torch.randn(5, 100)
    assert float(task.loss(lambda x: logits, batch)) == pytest.approx(float(F.cross_entropy(logits, batch[1])))
    assert len(task.train_data) == 120
    assert task.train_data.name(3) == "train image 3 (class 3)"


def test_two_stages_with_a_teacher(cifar, tmp_path):
    """Teacher, binary activations, then binary weights that start from them: the paper's additional training."""
    teacher = trained(recipe(cifar, "resnet18_cifar"), tmp_path / "teacher")
    loss = {"teacher": str(teacher)}
    first = trained(recipe(cifar, model={"binary_weights": False}, loss=loss), tmp_path / "first")
    second = recipe(cifar, loss=loss, init_from=str(first), schedule={"samples": 1})
    weights = load_model(trained(second, tmp_path / "second")).state_dict()
    start = load_model(first).state_dict()
    assert weights.keys() == start.keys()
    moved = (weights["stages.0.0.conv.weight"] - start["stages.0.0.conv.weight"]).abs().max()
    assert 0 < moved < 0.002  # one step of Adam at 0.001 from where the first stage ended
    scores = Task(second).evaluate(load_model(first))
    assert set(scores) == {"top1", "top5"}


def test_weights_of_another_kind_are_no_start(cifar, tmp_path):
    """Their shapes agree, but they mean something else."""
    angular = trained(recipe(cifar, model={"kind": "angular"}, schedule={"samples": 1}), tmp_path / "angular")
    with pytest.raises(UserError, match=r"does not fit .*kind 'angular' instead of 'central'"):
        train(recipe(cifar, init_from=str(angular)), tmp_path / "central")


def test_mixed_loss(cifar, tmp_path):
    task = Task(recipe(cifar))
    batch = task.train_data.collate([task.train_data[0, i] for i in range(4)])
    teacher = trained(recipe(cifar, "resnet18_cifar", schedule={"samples": 12}), tmp_path / "t")
    taught = Task(recipe(cifar, loss={"teacher": str(teacher), "distillation": 0.25, "temperature": 2.0}))
    logits = torch.randn(4, 100)
    with torch.no_grad():
        expected = 0.75 * F.cross_entropy(logits, batch[1])
        expected += 0.25 * distillation_loss(logits, load_model(teacher)(normalize(batch[0])), 2.0)
    assert float(taught.loss(lambda x: logits, batch)) == pytest.approx(float(expected), rel=1e-5)


def test_predict_leaves_the_mode_alone(cifar):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 100)).train()
    logits, labels = predict(model, CifarImages(cifar, "test"), count=70, batch=32)
    assert (logits.shape, labels.shape) == ((70, 100), (70,))
    assert model.training
    assert labels.tolist() == [i * 120 // 70 % 100 for i in range(70)]


def test_folders_are_read_as_everywhere_else(tmp_path):
    """16 bits per channel and transparency: what classify sees of a file is what training saw."""
    (tmp_path / "train" / "a").mkdir(parents=True)
    Image.fromarray(np.full((16, 16), 32768, np.uint16)).save(tmp_path / "train/a/0.png")
    Image.new("RGBA", (16, 16), (0, 0, 0, 0)).save(tmp_path / "train/a/1.png")
    images, _ = FolderImages(tmp_path, "train", size=8).plain(np.arange(2))
    assert images[0].unique().tolist() == [128]
    assert images[1].unique().tolist() == [255]


def test_bad_input(cifar, folder, tmp_path):
    with pytest.raises(UserError, match="is not CIFAR-100"):
        Task(recipe(folder))
    with pytest.raises(UserError, match="one folder of images per class"):
        Task(recipe(cifar, data={"dataset": "folder"}))
    with pytest.raises(UserError, match="no data folder"):
        Task(recipe(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="cifar100 or folder"):
        recipe(cifar, data={"dataset": "mnist"})
    for classes in (10, 1000):
        with pytest.raises(UserError, match=f"has {classes} classes, the images 100; set classes = 100"):
            train(recipe(cifar, model={"classes": classes}), tmp_path / f"out{classes}")
    with pytest.raises(UserError, match="0 to 1"):
        train(recipe(cifar, model={"ratio": 2.0}), tmp_path / "out2")
    with pytest.raises(UserError, match="distillation must be 0 to 1"):
        recipe(cifar, loss={"distillation": 1.5})
    (folder / "val" / "yellow").mkdir()
    with pytest.raises(UserError, match="test images have 4 classes, the training images 3"):
        Task(recipe(folder, data={"dataset": "folder"}))
    (folder / "val" / "yellow").rmdir()
    (folder / "val" / "red" / "0.png").write_bytes(b"damaged")
    for wrong in ({"batch_size": 0}, {"limit": -3}):
        with pytest.raises(UserError, match=r"evaluate\.limit must"):
            recipe(cifar, evaluate=wrong)
    with pytest.raises(UserError, match="not an image"):
        FolderImages(folder, "val").plain(np.arange(6))


FILES = {name: read_file(name) for name in names() if name.startswith("classes/")}
RUNS = [(name, table) for name, file in FILES.items() for table in (file.variants or file.stages).values()]


@pytest.mark.parametrize(("name", "table"), RUNS)
def test_recipes_build_networks_for_their_data(name: str, table: dict) -> None:
    recipe = parse_recipe(table)
    with torch.device("meta"):
        model = create_model(**(recipe.model | {"width": 0.25}))
    assert (model.config.stem, model.config.classes) == {"cifar100": ("cifar", 100), "folder": ("imagenet", 1000)}[
        recipe.data.dataset
    ]
    assert recipe.schedule.milestones == pytest.approx([45 / 60, 55 / 60], abs=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_study_is_paired(seed: int) -> None:
    study = FILES["classes/cifar100-quarter"]
    pair = [parse_recipe(changed(study.table(name), [f"seed={seed}"])) for name in ("vanilla", "bicpdc")]
    assert [r.seed for r in pair] == [seed, seed]
    assert [r.model["width"] for r in pair] == [0.25, 0.25]
    assert dataclasses.replace(pair[0], model={}, reference="") == dataclasses.replace(pair[1], model={}, reference="")
