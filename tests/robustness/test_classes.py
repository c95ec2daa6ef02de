"""Top-1 accuracy on corrupted images, against scores counted by hand; CIFAR-100-C as published."""

from types import SimpleNamespace

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.robustness.classes import CorruptedImages, PublishedCifarC, Scorer
from pixeldiff.robustness.corruptions import corrupt
from pixeldiff.robustness.results import CLEAN


def brightness_classifier(images: np.ndarray) -> np.ndarray:
    bright = images.mean((1, 2, 3)) > 128
    return np.stack([~bright, bright], 1).astype(np.float32)


def test_accuracy_of_images_damaged_on_the_fly(rng):
    images = rng.integers(90, 120, (5, 32, 32, 3), dtype=np.uint8)
    images[3:] += 100
    source = CorruptedImages(images, np.array([0, 0, 0, 1, 0]))
    scorer, networks = Scorer(source, batch=2), {"m": SimpleNamespace(logits=brightness_classifier)}
    assert scorer(CLEAN, networks, lambda n: None) == {"m": {"top1": 80.0}}
    # Level 5 adds 0.3: all five turn bright, one of them rightly.
    assert scorer(("brightness", 5), networks, lambda n: None) == {"m": {"top1": 20.0}}
    batches = list(source.batches(("shot_noise", 2), 2))
    np.testing.assert_array_equal(batches[1][0][1], corrupt(images[3], 2, "shot_noise", seed=3))


@pytest.fixture
def cifar_c(tmp_path, rng):
    labels = rng.integers(0, 100, 4)
    np.save(tmp_path / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    np.save(tmp_path / "fog.npy", np.repeat(np.arange(20, dtype=np.uint8), 32 * 32 * 3).reshape(20, 32, 32, 3))
    return tmp_path


def test_cifar_c_as_published(cifar_c):
    source = PublishedCifarC(cifar_c)
    assert (len(source), source.kinds(), source.has_clean) == (4, ["fog"], False)
    batches = list(source.batches(("fog", 3), 3))
    assert [images[:, 0, 0, 0].tolist() for images, _ in batches] == [[8, 9, 10], [11]]
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in batches]), source.labels)
    limited = PublishedCifarC(cifar_c, limit=2)
    assert [images[:, 0, 0, 0].tolist() for images, _ in limited.batches(("fog", 2), 10)] == [[4, 5]]


def test_a_damaged_cifar_c_folder_is_named(cifar_c):
    source = PublishedCifarC(cifar_c)
    with pytest.raises(UserError, match=r"snow\.npy"):
        next(source.batches(("snow", 1), 4))
    np.save(cifar_c / "snow.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(UserError, match="not the test set five times"):
        next(source.batches(("snow", 1), 4))
    for wrong in (np.zeros(7, np.uint8), np.zeros(0, np.uint8), np.zeros(20), np.zeros((20, 1), np.uint8)):
        np.save(cifar_c / "labels.npy", wrong)
        with pytest.raises(UserError, match="not the labels of a test set five times"):
            PublishedCifarC(cifar_c)
    (cifar_c / "labels.npy").write_bytes(b"no")
    with pytest.raises(UserError, match=r"labels\.npy"):
        PublishedCifarC(cifar_c)
