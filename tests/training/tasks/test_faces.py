"""Training on faces: samples, the loss, the score of pairs, resuming, and the way to a packed file."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.export.packed import export_packed
from pixeldiff.inference.faces import FaceEmbedder
from pixeldiff.models.saving import load_model
from pixeldiff.training.loop import train
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.recipe_file import names, read_file
from pixeldiff.training.tasks.faces import Task, embed


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """Three people with four images each, and a list of pairs of them."""
    root = tmp_path_factory.mktemp("faces") / "people"
    rng = np.random.default_rng(0)
    for person in range(3):
        base = Image.fromarray(rng.integers(0, 256, (7, 6, 3), dtype=np.uint8)).resize((96, 112), Image.BICUBIC)
        for k in range(4):
            path = root / f"p{person}" / f"{k}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = rng.normal(0, 20, (112, 96, 3))
            Image.fromarray(np.clip(np.asarray(base) + noise, 0, 255).astype(np.uint8)).save(path)
    lines = [f"p{p}/0.png p{p}/1.png 1\np{p}/2.png p{(p + 1) % 3}/3.png 0" for p in range(3)]
    (root / "pairs.txt").write_text("\n".join(lines))
    return root


def recipe(root, **changes):
    model = {"name": "sphereface20_bipdc", "width": 0.0625, "embedding": 8, "classes": 3, "ratio": 0.4}
    table = {
        "task": "faces",
        "model": model | changes.pop("model", {}),
        "data": {"roots": [str(root)]},
        "evaluate": {"root": str(root), "datasets": ["pairs"]},
        "optimizer": {"lr": 0.003, "betas": [0.9, 0.999], "weight_decay": 0.0},
        "schedule": {"samples": 12, "milestones": []},
        "train": {"batch_size": 6, "workers": 0, "log_every": 1},
    }
    return parse_recipe(table | changes)


def test_samples_are_faces_and_half_of_them_mirrored(people):
    task = Task(recipe(people))
    assert len(task.train_data) == 12
    mirrored = 0
    for key in ((epoch, index) for epoch in range(3) for index in range(12)):
        face, person = task.train_data[key]
        own = np.asarray(Image.open(task.train_data.name(key[1])))
        assert person == key[1] // 4
        turned = not np.array_equal(face, own)
        np.testing.assert_array_equal(face[:, ::-1] if turned else face, own)
        mirrored += turned
    assert 8 < mirrored < 28


def test_a_run_learns_resumes_and_packs(people, tmp_path):
    longer = recipe(people, schedule={"samples": 72, "milestones": []}, model={"embedding_norm": True})
    train(longer, tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "whole/metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    assert {"auc", "pairs auc", "pairs accuracy"} <= lines[-1].keys()
    model = load_model(tmp_path / "whole/last.safetensors")
    assert int(model.head.steps) == 12
    deviation = export_packed(tmp_path / "whole/last.safetensors", tmp_path / "face.pdn")
    assert deviation < 1e-4
    files = sorted(people.glob("*/*.png"))[::3]
    packed = FaceEmbedder(tmp_path / "face.pdn", threads=1)
    faces = np.stack([np.asarray(Image.open(file)) for file in files])
    np.testing.assert_allclose(np.stack(packed(files)), embed(model, faces, batch=3), atol=1e-5)
    assert packed.size == 16


def test_the_loss_is_a_cross_entropy_over_angles(people):
    settings = recipe(people, loss={"margin": 1}, model={"width": 0.125})
    task = Task(settings)
    torch.manual_seed(0)
    from pixeldiff.models import create_model

    model = create_model(**settings.model).eval()
    batch = task.train_data.collate([task.train_data[0, index] for index in (0, 5, 11)])
    x = model((batch[0] - 127.5) / 128)
    cosines = F.normalize(x) @ F.normalize(model.head.weight).T
    expected = F.cross_entropy(x.norm(dim=1, keepdim=True) * cosines, torch.tensor([0, 1, 2]))
    torch.testing.assert_close(task.loss(model, batch), expected)
    with pytest.raises(UserError, match="has 3 people, the images 2; set classes = 2"):
        Task(parse_recipe({**recipe_table(people), "data": {"roots": [str(people)], "exclude": ["p2"]}})).loss(
            model, batch
        )


def recipe_table(people):
    return {
        "task": "faces",
        "model": {"name": "sphereface20_binary", "classes": 3},
        "data": {"roots": [str(people)]},
        "schedule": {"samples": 12},
    }


def test_mistakes_in_recipes_are_told(people, tmp_path):
    for part, said in (
        ({"loss": {"margin": 5}}, "one of 1, 2, 3, 4, got 5"),
        ({"loss": {"last_lambda": 2000.0}}, "0 <= last_lambda <= first_lambda"),
        ({"data": {"roots": []}}, "at least one folder"),
        ({"evaluate": {"datasets": ["lwf"]}}, "unknown evaluate.datasets 'lwf'"),
    ):
        with pytest.raises(UserError, match=said):
            parse_recipe({**recipe_table(people), **part})
    Image.new("RGB", (128, 128)).save(people / "p0" / "large.png")
    try:
        task = Task(recipe(people))
        with pytest.raises(UserError, match=r"is 128 x 128, an aligned face 112 x 96; .*pixeldiff faces align"):
            task.train_data[0, 4]
    finally:
        (people / "p0" / "large.png").unlink()


def test_both_tables_have_the_rows_of_the_paper():
    rows = {"float", "vanilla", "bicpdc", "biapdc", "birpdc"}
    tables = [name for name in names() if name.startswith("faces/")]
    assert tables
    for name in tables:
        assert set(read_file(name).variants) == rows
        for variant in rows:
            recipe = parse_recipe(read_file(name).table(variant))
            assert recipe.task == "faces"
            assert recipe.model["name"].startswith("sphereface20")
