"""The edge task: the loss against the paper's formula, pixel by pixel, and the score on held-out images."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from pixeldiff.errors import UserError
from pixeldiff.models import create_model
from pixeldiff.training.recipe import parse_recipe
from pixeldiff.training.tasks import edges
from pixeldiff.training.tasks.edge_pairs import collate
from pixeldiff.training.tasks.edge_sources import IGNORED, NEGATIVES
from pixeldiff.training.tasks.edges import Task, as_edges, logits_of, robust_loss


def loss_by_definition(logits: list[np.ndarray], label: np.ndarray, eta: float, balance: float) -> float:
    """Section 6.1 of the paper, one image."""
    negatives, positives = int((label == 0).sum()), int((label >= eta).sum())
    beta = negatives / max(1, negatives + positives)
    alpha = balance * (1 - beta)
    total = 0.0
    for logit in logits:
        for z, y in zip(logit.ravel(), label.ravel(), strict=True):
            p = 1 / (1 + math.exp(-z))
            if y == 0:
                total -= alpha * math.log(1 - p)
            elif y >= eta:
                total -= beta * math.log(p)
    return total


@pytest.mark.parametrize(("eta", "balance"), [(0.3, 1.1), (0.5, 1.3)])
def test_loss_is_the_papers(rng: np.random.Generator, eta: float, balance: float) -> None:
    labels = rng.choice([0, 0, 0, 0.1, 0.2, 0.3, 0.5, 1.0], (3, 1, 7, 9))
    logits = [rng.normal(0, 3, labels.shape) for _ in range(5)]
    found = robust_loss([torch.from_numpy(z) for z in logits], torch.from_numpy(labels), eta, balance)
    for k in range(3):
        expected = loss_by_definition([z[k] for z in logits], labels[k], eta, balance)
        assert found[k].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_loss_of_one_kind_of_pixel(value: float) -> None:
    """All negative, all ignored, all positive: beta leaves nothing to learn, and nothing is divided by zero."""
    logits = torch.zeros(1, 1, 3, 3, requires_grad=True)
    loss = robust_loss([logits], torch.full((1, 1, 3, 3), value))
    loss.sum().backward()
    assert loss.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_loss_of_large_logits_is_finite() -> None:
    label = torch.tensor([[[[0.0, 1.0]]]])
    assert torch.isfinite(robust_loss([torch.tensor([[[[200.0, -200.0]]]])], label)).all()


def soft_loss_by_definition(logits: list[np.ndarray], label: np.ndarray, balance: float) -> float:
    """One image, its label a teacher's map: the paper's loss, expected over what people would mark."""
    beta, alpha = NEGATIVES, balance * (1 - NEGATIVES)
    known = label != IGNORED / 255
    total = 0.0
    for logit in logits:
        for z, q in zip(logit[known], label[known], strict=True):
            p = 1 / (1 + math.exp(-z))
            marked = q * alpha / (q * alpha + (1 - q) * beta)
            total -= marked * beta * math.log(p) + (1 - marked) * alpha * math.log(1 - p)
    return total


def test_loss_of_soft_labels_beside_hard_ones(rng: np.random.Generator) -> None:
    labels = rng.choice([0, IGNORED, 40, 90, 255], (4, 1, 7, 9)) / 255
    logits = [rng.normal(0, 3, labels.shape) for _ in range(5)]
    soft = torch.tensor([True, False, True, False])
    found = robust_loss([torch.from_numpy(z) for z in logits], torch.from_numpy(labels), 0.3, 1.1, soft)
    for k in range(4):
        own = [z[k] for z in logits], labels[k]
        expected = soft_loss_by_definition(*own, 1.1) if soft[k] else loss_by_definition(*own, 0.3, 1.1)
        assert found[k].item() == pytest.approx(expected, rel=1e-5)


def test_soft_loss_is_least_at_the_teachers_map_and_the_papers_for_hard_labels(rng: np.random.Generator) -> None:
    soft, teacher = torch.tensor([True]), torch.from_numpy(rng.uniform(0.02, 0.98, (1, 1, 5, 6)))
    logits = torch.logit(teacher).requires_grad_()
    robust_loss([logits], teacher, soft=soft).sum().backward()
    assert logits.grad.abs().max() < 1e-6
    hard, other = torch.zeros(1, 1, 5, 10), torch.from_numpy(rng.normal(0, 1, (1, 1, 5, 10))).float()
    hard[0, 0, 2, 3] = 1  # one of 50: as many as NEGATIVES leaves
    torch.testing.assert_close(robust_loss([other], hard, soft=soft), robust_loss([other], hard))


def test_mixed_sizes_lose_as_alone(rng: np.random.Generator) -> None:
    """Padding counts neither as edge nor as background, nor in the balance."""
    sizes = [(5, 9), (8, 4), (8, 9)]
    samples = []
    for height, width in sizes:
        image = torch.from_numpy(rng.integers(0, 256, (3, height, width), dtype=np.uint8))
        samples.append((image, torch.from_numpy(rng.choice([0, 20, 200], (1, height, width)).astype(np.uint8)), False))
    images, labels, soft = collate(samples)
    assert not soft.any()
    assert images.shape == (3, 3, 8, 9)
    assert labels.shape == (3, 1, 8, 9)
    logits = torch.from_numpy(rng.normal(0, 1, labels.shape))
    together = robust_loss([logits], labels / 255)
    for k, (height, width) in enumerate(sizes):
        assert torch.equal(images[k, :, :height, :width], samples[k][0])
        assert (labels[k].sum() - samples[k][1].sum()).item() == (72 - height * width) * IGNORED
        alone = robust_loss([logits[k : k + 1, :, :height, :width]], samples[k][1][None] / 255)
        assert together[k].item() == pytest.approx(alone.item(), rel=1e-6)


@pytest.fixture
def table(tmp_path, rng: np.random.Generator) -> dict:
    """Two images to train on and to score, one of them smaller than what the network needs."""
    for folder in ("photos", "edges"):
        (tmp_path / folder).mkdir()
        for name, size in (("a", (5, 6)), ("b", (30, 41))):
            pixels = rng.integers(256, size=(*size, 3), dtype=np.uint8)
            Image.fromarray(pixels if folder == "photos" else (pixels[..., 0] > 200)).save(
                tmp_path / folder / f"{name}.png"
            )
    data = {"root": str(tmp_path), "sources": [{"type": "folders", "images": "photos", "labels": "edges"}]}
    return {
        "task": "edges",
        "model": {"name": "tiny"},
        "data": data,
        "augment": {"crop": 16, "pad": "reflect"},
        "schedule": {"samples": 8},
        "evaluate": {**data, "thresholds": 3},
    }


def test_images_of_every_size_are_scored_and_drawn(table: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(parse_recipe(table))
    model = create_model("tiny", width=4, side_channels=2).eval()
    assert task.evaluate(model).keys() == {"ods", "ois", "ap", "held_out_loss"}
    assert task.preview(model).shape == (60, 47, 3)
    monkeypatch.setattr(edges, "PREVIEW_PIXELS", 400)
    assert task.preview(model).shape == (2 * 15, 6 + 21, 3)


def test_pseudo_labels_are_learned_and_not_scored(table: dict, tmp_path, rng) -> None:
    for name, size in (("a", (5, 6)), ("b", (30, 41))):
        (tmp_path / "maps").mkdir(exist_ok=True)
        Image.fromarray(rng.integers(256, size=size, dtype=np.uint8)).save(tmp_path / f"maps/{name}.png")
    maps = {"type": "pseudo-labels", "images": "photos", "maps": "maps"}
    table["data"]["sources"] = [*table["data"]["sources"], {**maps, "fraction": 0.25}]
    task = Task(parse_recipe(table))
    assert len(task.train_data) == 8  # six of people, two soft
    images, labels, soft = task.train_data.collate([task.train_data[0, index] for index in range(8)])
    assert soft.tolist() == [False] * 6 + [True] * 2
    assert torch.isfinite(task.loss(create_model("tiny", width=4, side_channels=2), (images, labels, soft)))
    table["evaluate"]["sources"] = [maps]
    with pytest.raises(UserError, match="score human annotations"):
        Task(parse_recipe(table))


def test_scales_of_held_out_images_are_refused(table: dict, tmp_path) -> None:
    (tmp_path / "list.lst").write_text("photos/b.png edges/b.png 1.0\nphotos/b.png edges/b.png 0.5\n")
    table["evaluate"]["sources"] = [{"type": "list", "file": "list.lst"}]
    with pytest.raises(UserError, match=r"b.png at scale 0.5, but images are scored at scale 1"):
        Task(parse_recipe(table))


@pytest.mark.parametrize(("level", "says"), [(0, "none of 2 labels marks an edge"), (255, "looks inverted")])
def test_wrong_labels_are_refused_before_training(table: dict, tmp_path, level: int, says: str) -> None:
    for name, size in (("a", (6, 5)), ("b", (41, 30))):
        Image.new("L", size, level).save(tmp_path / f"edges/{name}.png")
    with pytest.raises(UserError, match=says):
        Task(parse_recipe(table))


def test_small_images_are_continued(rng: np.random.Generator) -> None:
    model = create_model("tiny", width=4, side_channels=2).eval()
    image = rng.integers(256, size=(5, 12, 3), dtype=np.uint8)
    continued = np.concatenate([image, np.repeat(image[-1:], 3, axis=0)])
    for small, large in zip(logits_of(model, image), logits_of(model, continued), strict=True):
        assert torch.equal(small, large[:, :, :5])  # not of their sigmoid, whose last bit depends on a map's length
    assert as_edges(logits_of(model, image)).shape == (5, 12)
