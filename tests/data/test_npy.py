"""Arrays from .npy files: what numpy.save wrote comes back, damage is one sentence and costs no memory."""

import contextlib
import io
import struct

import numpy as np
import pytest

from pixeldiff.data.npy import read_npy
from pixeldiff.errors import InputError


def saved(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def with_header(text, numbers=b"", version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode("latin-1") + numbers


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<f2", "?", "|u1", ">u2", "<i8", "<c8", "<U3"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 7), (2, 3, 4)])
def test_what_numpy_saves(tmp_path, rng, shape, dtype, mapped):
    array = (rng.random(shape) * 9).astype(dtype)
    for k, order in enumerate("CF"):
        path = tmp_path / f"{k}.npy"
        path.write_bytes(saved(np.asarray(array, order=order)))
        found = read_npy(path, mapped)
        assert (found.dtype, found.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found, array)


def test_headers_of_other_writers(tmp_path):
    path = tmp_path / "a.npy"
    text = "{'shape':(2,3,),\"fortran_order\":False,'descr':'|u1'}\n"
    for version in (1, 2, 3):
        path.write_bytes(with_header(text, bytes(range(6)), version))
        assert read_npy(path).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "content",
    [
        saved(np.array([{}, 1], object)),
        saved(np.zeros(3, [("a", "f4")])),
        saved(np.zeros((3, 4)))[:-1],
        saved(np.zeros((3, 4))) + b"x",
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"),
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 999999999999999999), }"),
        with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 99 + "), }", bytes(8)),
        with_header("{'descr': '<f9', 'fortran_order': False, 'shape': (), }", bytes(9)),
        with_header("{'descr': '|S0', 'fortran_order': False, 'shape': (9,), }"),
        with_header("(" * 5000),
        with_header("-" * 9000),
        with_header("{'descr': '<f8'"),
        saved(np.zeros(3))[:20],
        b"\x93NUMPY\x09\0",
        b"",
    ],
)
def test_damage_is_one_sentence(tmp_path, content):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.npy") as refused:
        read_npy(path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_files_that_cannot_be_opened(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.npy"):
        with pytest.raises(InputError, match="check the name"):
            read_npy(path)


def test_mutated_files_are_read_or_refused(tmp_path, rng):
    whole = saved(rng.random((5, 4)).astype(np.float32))
    for _ in range(300):
        content = bytearray(whole)
        for place in rng.integers(0, 100, rng.integers(1, 4)):
            content[place] = rng.choice(np.frombuffer(b"0123456789<>|fiuOSUV(){},' \0\xff", np.uint8))
        (tmp_path / "a.npy").write_bytes(content)
        with contextlib.suppress(InputError):
            read_npy(tmp_path / "a.npy")
