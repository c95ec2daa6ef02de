"""The loop over samples and models, with a made-up benchmark; the cache."""

import json
import threading

import numpy as np
import pytest

from pixeldiff.errors import UserError
from pixeldiff.evaluation.benchmark import CLEAN, Benchmark, Model, damage, evaluate
from pixeldiff.evaluation.cache import Cache


class Sums(Benchmark):
    """Samples are numbers, models are functions of a batch of them, scores are sums."""

    task = "sums"
    source = "numbers"

    def __init__(self, size=7, batch_size=2):
        self.size, self.batch_size = size, batch_size
        self.loaded = []
        self.lock = threading.Lock()

    def __len__(self):
        return self.size

    def load(self, index, condition, seed):
        with self.lock:
            self.loaded.append((index, condition, seed))
        return index if condition == CLEAN else index + 100 * condition[1] + seed

    def predict(self, model, batch):
        return [model(sample) for sample in batch]

    def score(self, prediction, sample):
        return prediction - sample

    def summarize(self, counts):
        return {"sum": sum(counts)}

    def key(self, index, model):
        return f"{index} {model.sha256}"

    def pack(self, counts):
        return {"counts": counts}

    def unpack(self, entry):
        return entry.get("counts")


MODELS = [Model("double", lambda x: 2 * x, "a"), Model("square", lambda x: x * x, "b")]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 2, 7, 9])
def test_counts_are_in_the_order_of_the_samples(threads, batch_size):
    benchmark, steps = Sums(batch_size=batch_size), []
    counts = evaluate(benchmark, MODELS, threads=threads, advance=steps.append)
    assert counts == {"double": list(range(7)), "square": [k * k - k for k in range(7)]}
    assert sum(steps) == 7
    assert benchmark.summarize(counts["double"]) == {"sum": 21}


def test_a_sample_is_loaded_once_for_all_models_and_seeded_by_its_index():
    benchmark = Sums()
    evaluate(benchmark, MODELS, ("fog", 3), seed=10)
    assert sorted(benchmark.loaded) == [(k, ("fog", 3), 10 + k) for k in range(7)]


def test_a_benchmark_that_needs_all_cores_runs_one_batch_at_a_time():
    benchmark, seen = Sums(), set()
    benchmark.parallel = False
    evaluate(benchmark, [Model("thread", lambda x: seen.add(threading.get_ident()) or x)], threads=2)
    assert len(seen) == 1


def test_the_cache_leaves_only_what_is_new(tmp_path):
    path = tmp_path / "cache"
    first = evaluate(Sums(5), MODELS[:1], cache=Cache(path))
    with path.open("ab") as file:
        file.write(b'\xff\n{"key": "cut sho')  # what a bad disk and a killed run may leave
    benchmark = Sums(7)
    again = evaluate(benchmark, MODELS[:1], cache=Cache(path))
    assert [index for index, _, _ in benchmark.loaded] == [5, 6]
    assert again["double"][:5] == first["double"]
    both = Sums(7)
    assert evaluate(both, MODELS, cache=Cache(path)) == evaluate(Sums(7), MODELS)
    corrupted = Sums(7)
    evaluate(corrupted, MODELS, ("fog", 1), cache=Cache(path))
    assert len(corrupted.loaded) == 7, "counts of clean images are not those of corrupted ones"
    reseeded = Sums(7)
    evaluate(reseeded, MODELS, ("fog", 1), seed=1, cache=Cache(path))
    assert [index for index, _, _ in reseeded.loaded] == list(range(7))


def test_a_stopped_run_keeps_what_is_done(tmp_path):
    def stop(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(Sums(batch_size=1), MODELS[:1], cache=Cache(tmp_path / "cache"), advance=stop)
    lines = (tmp_path / "cache").read_text().splitlines()
    assert 1 <= len(lines) <= 7
    assert all("counts" in json.loads(line) for line in lines)


def test_an_error_of_one_sample_ends_the_run():
    def fail(sample):
        raise UserError("sample 3 is damaged")

    with pytest.raises(UserError, match="sample 3"):
        evaluate(Sums(), [Model("fails", fail)], threads=2)
    with pytest.raises(UserError, match="at least one model"):
        evaluate(Sums(), [])


def test_damage_is_the_corruption_of_the_seed(rng):
    pytest.importorskip("scipy")
    from pixeldiff.evaluation.corruptions import corrupt

    image = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
    assert damage(image, CLEAN, 3) is image
    np.testing.assert_array_equal(damage(image, ("fog", 2), 3), corrupt(image, 2, "fog", seed=3))
