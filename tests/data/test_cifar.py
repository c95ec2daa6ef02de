"""The CIFAR-100 reader: the official layout, and files that are not it."""

import pickle
import tracemalloc

import numpy as np
import pytest

from pixeldiff.data.cifar import read_cifar100
from pixeldiff.errors import InputError


def write_cifar(folder, count=120, seed=0, **changes):
    """A small cifar-100-python folder as Python 2 would have pickled it (byte keys)."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        data = rng.integers(256, size=(count, 3072), dtype=np.uint8)
        table = {b"data": data, b"fine_labels": [i % 100 for i in range(count)], b"batch_label": split.encode()}
        table |= {k.encode(): v for k, v in changes.items()}
        (folder / split).write_bytes(pickle.dumps(table, protocol=2))
    meta = {b"fine_label_names": [f"class {i}".encode() for i in range(100)]}
    (folder / "meta").write_bytes(pickle.dumps(meta, protocol=2))
    return folder


def test_pixels_labels_and_names(tmp_path):
    folder = write_cifar(tmp_path / "cifar-100-python")
    for root in (tmp_path, folder):
        got = read_cifar100(root, "test")
        assert got.images.shape == (120, 32, 32, 3)
        assert got.labels[101] == 1
        assert got.names[7] == "class 7"
    data = pickle.loads((folder / "test").read_bytes())[b"data"]
    # Row of 3072: 1024 red, 1024 green, 1024 blue, each row by row.
    assert got.images[5, 3, 9].tolist() == [data[5, c * 1024 + 3 * 32 + 9] for c in range(3)]


class Harmful:
    def __reduce__(self):
        return print, ("this must not run",)


def test_a_pickle_cannot_run_code(tmp_path, capsys):
    folder = write_cifar(tmp_path, fine_labels=Harmful())
    with pytest.raises(InputError, match="would run"):
        read_cifar100(folder, "train")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fine_labels": [100] * 120}, "labels outside 0..99"),
        ({"fine_labels": [-1] * 120}, "labels outside 0..99"),
        ({"fine_labels": [0.5] * 120}, "labels outside 0..99"),
        ({"fine_labels": [1] * 119}, "N labels"),
        ({"data": np.zeros((120, 3000), np.uint8)}, "N x 3072"),
        ({"data": np.zeros((120, 3072))}, "N x 3072"),
        ({"data": None}, "N x 3072"),
    ],
)
def test_wrong_contents(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_cifar100(write_cifar(tmp_path, **changes), "train")


def test_wrong_folder_split_and_damage(tmp_path):
    with pytest.raises(InputError, match="is not CIFAR-100"):
        read_cifar100(tmp_path, "train")
    folder = write_cifar(tmp_path)
    with pytest.raises(InputError, match="train and test"):
        read_cifar100(folder, "val")
    (folder / "train").write_bytes((folder / "train").read_bytes()[:1000])
    with pytest.raises(InputError, match="not a readable"):
        read_cifar100(folder, "train")
    (folder / "test").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(InputError, match="holds a list"):
        read_cifar100(folder, "test")


def test_a_damaged_number_of_an_entry_costs_no_memory(tmp_path):
    folder = write_cifar(tmp_path)
    for damaged in (b"\x80\x02}r\xff\xff\xff\x7f.", b"\x80\x04\x8e" + b"\xff" * 7 + b"\x0f"):  # memo, length of bytes
        (folder / "train").write_bytes(damaged)
        tracemalloc.start()
        with pytest.raises(InputError):
            read_cifar100(folder, "train")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10**6
