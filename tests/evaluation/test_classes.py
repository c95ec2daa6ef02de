"""Accuracy of classifiers, clean and corrupted, against scores counted by hand; CIFAR-100-C as published."""

from types import SimpleNamespace

import numpy as np
import pytest

from pixeldiff.errors import InputError, UserError
from pixeldiff.evaluation.benchmark import CLEAN, Model, evaluate
from pixeldiff.evaluation.classes import ArrayImages, ClassBenchmark, PublishedCifarC


def classifier(logits):
    return Model("m", SimpleNamespace(logits=logits))


def test_a_network_for_other_classes_is_an_error(rng):
    images = ArrayImages(np.zeros((4, 2, 2, 3), np.uint8), np.array([0, 1, 11, 2]))
    with pytest.raises(UserError, match="7 classes"):
        evaluate(ClassBenchmark(images), [classifier(lambda batch: rng.normal(size=(len(batch), 7)))])


def test_batches_do_not_change_the_score(rng):
    logits, labels = rng.normal(size=(7, 12)), rng.integers(12, size=7)
    images = ArrayImages(np.arange(7, dtype=np.uint8).reshape(7, 1, 1, 1), labels)
    scores = []
    for batch_size in (2, 7):
        benchmark = ClassBenchmark(images, batch_size=batch_size)
        counts = evaluate(benchmark, [classifier(lambda batch: logits[batch[:, 0, 0, 0]])])["m"]
        scores.append(benchmark.summarize(counts))
    assert scores[0] == scores[1]
    right = logits[np.arange(7), labels]
    assert scores[0]["top1"] == pytest.approx(100 * np.mean(right == logits.max(1)))
    assert len(ClassBenchmark(images, limit=3)) == 3


def brightness_classifier(images: np.ndarray) -> np.ndarray:
    bright = images.mean((1, 2, 3)) > 128
    return np.stack([~bright, bright], 1).astype(np.float32)


def test_accuracy_of_corrupted_images(rng):
    pytest.importorskip("scipy")
    from pixeldiff.evaluation.corruptions import corrupt

    images = rng.integers(90, 120, (5, 32, 32, 3), dtype=np.uint8)
    images[3:] += 100
    benchmark = ClassBenchmark(ArrayImages(images, np.array([0, 0, 0, 1, 0])), batch_size=2)
    model = classifier(brightness_classifier)
    assert benchmark.summarize(evaluate(benchmark, [model])["m"])["top1"] == 80.0
    # Severity 5 adds 0.3: all five turn bright, one of them rightly.
    corrupted = evaluate(benchmark, [model], ("brightness", 5))["m"]
    assert benchmark.summarize(corrupted)["top1"] == 20.0
    np.testing.assert_array_equal(
        benchmark.load(3, ("shot_noise", 2), 3)[0], corrupt(images[3], 2, "shot_noise", seed=3)
    )


@pytest.fixture
def cifar_c(tmp_path, rng):
    labels = rng.integers(0, 100, 4)
    np.save(tmp_path / "labels.npy", np.tile(labels, 5).astype(np.uint8))
    np.save(tmp_path / "fog.npy", np.repeat(np.arange(20, dtype=np.uint8), 32 * 32 * 3).reshape(20, 32, 32, 3))
    return tmp_path


def test_cifar_c_as_published(cifar_c):
    data = PublishedCifarC(cifar_c)
    assert (data.corruptions(), data.has_clean, len(data.labels)) == (["fog"], False, 4)
    assert [data.image(k, ("fog", 3), 0)[0, 0, 0] for k in range(4)] == [8, 9, 10, 11]
    benchmark = ClassBenchmark(data, limit=2)
    assert [benchmark.load(k, ("fog", 2))[0][0, 0, 0] for k in range(len(benchmark))] == [4, 5]


def test_a_damaged_cifar_c_folder_is_named(cifar_c):
    data = PublishedCifarC(cifar_c)
    with pytest.raises(InputError, match=r"snow\.npy"):
        data.image(0, ("snow", 1), 0)
    np.save(cifar_c / "snow.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(InputError, match=r"snow\.npy"):
        data.image(0, ("snow", 1), 0)
    for wrong in (np.zeros(7, np.uint8), np.zeros(0, np.uint8), np.zeros(20), np.zeros((20, 1), np.uint8)):
        np.save(cifar_c / "labels.npy", wrong)
        with pytest.raises(InputError, match=r"labels\.npy"):
            PublishedCifarC(cifar_c)
    (cifar_c / "labels.npy").write_bytes(b"no")
    with pytest.raises(InputError, match=r"labels\.npy"):
        PublishedCifarC(cifar_c)


def test_clean_is_the_condition_of_plain_scores():
    assert CLEAN == ("clean", 0)
