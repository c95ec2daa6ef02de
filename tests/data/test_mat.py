"""MATLAB files: what is read equals SciPy's reading, what is written comes back, damage is one sentence."""

import contextlib
import io
import struct
import zlib

import numpy as np
import pytest

from pixeldiff.data import mat
from pixeldiff.data.edges import read_bsds
from pixeldiff.data.mat import read_mat, write_mat
from pixeldiff.errors import InputError, OutputError
from tests.extras import optional

loadmat = optional("scipy.io").loadmat
savemat = optional("scipy.io").savemat
eye = optional("scipy.sparse").eye


DTYPES = ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?"]


def check_difference(ours, theirs):
    """Ours equals SciPy's, with MATLAB's classes as types."""
    if isinstance(ours, str):
        assert ours.split("\n") == [str(row) for row in theirs]
    elif ours.dtype.names == ():  # structs without fields are None there
        assert ours.shape == theirs.shape
    elif theirs.dtype == object or theirs.dtype.names:
        assert (ours.shape, ours.dtype.names) == (theirs.shape, theirs.dtype.names)
        for one, other in zip(ours.ravel(), theirs.ravel(), strict=True):
            pairs = [(one[n], other[n]) for n in ours.dtype.names] if ours.dtype.names else [(one, other)]
            for pair in pairs:
                check_difference(*pair)
    else:
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(ours, theirs)


def check_different_files(content, classes=True):
    ours = read_mat(content)
    theirs = {n: v for n, v in loadmat(io.BytesIO(content), mat_dtype=classes).items() if not n.startswith("__")}
    assert list(ours) == list(theirs)
    for name in ours:
        check_difference(ours[name], theirs[name])


def saved(variables, compressed=False):
    buffer = io.BytesIO()
    savemat(buffer, variables, do_compression=compressed)
    return buffer.getvalue()


def nested(rng):
    cells = np.empty((2, 3), object)
    for k, place in enumerate(np.ndindex(2, 3)):
        cells[place] = {"Boundaries": rng.random((4 + k, 3)) < 0.3, "by": f"number {k}", "deep": {"x": np.arange(k)}}
    return {"cells": cells, "one": {"a": 1.5, "b": np.zeros((0, 4))}, "text": np.array(["two", "row"]), "void": {}}


@pytest.mark.parametrize("compressed", [False, True])
def test_every_type_as_scipy_reads_it(rng, compressed):
    shapes = [(1, 1), (5, 7), (0, 3), (3, 0, 2), (2, 3, 4)]
    arrays = {
        f"x{k}_{t}".replace("?", "b"): (rng.random(s) * 99).astype(t) for k, s in enumerate(shapes) for t in DTYPES
    }
    check_different_files(saved(arrays, compressed))
    check_different_files(saved(nested(rng), compressed))
    waves = {t: (rng.random((3, 5)) - 1j * rng.random((3, 5))).astype(t) for t in ("c8", "c16")}
    check_different_files(saved(waves, compressed), classes=False)  # as classes, SciPy drops the imaginary parts
    assert read_mat(saved({}, compressed)) == {}


def test_real_files_as_scipy_reads_them(data):
    files = sorted((data / "BSDS500" / "groundTruth" / "test").glob("*.mat"))[::20]
    for path in [*files, *sorted((data / "bsds-bench" / "groundTruth").glob("*.mat"))]:
        check_different_files(path.read_bytes())


def element(order, kind, data, small=False):
    if small:
        return struct.pack(f"{order}I", len(data) << 16 | kind) + data.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def by_hand(order, kind, shape, *parts, flags=0, name=b"x"):
    """A file with one variable of class `kind`; its parts are (type, bytes)."""
    matrix = element(order, 6, struct.pack(f"{order}II", kind | flags, 0))
    matrix += element(order, 5, struct.pack(f"{order}{len(shape)}i", *shape)) + element(order, 1, name, len(name) <= 4)
    matrix += b"".join(element(order, code, data, len(data) <= 4) for code, data in parts)
    header = b"MATLAB 5.0".ljust(124) + struct.pack(f"{order}H", 0x100) + (b"IM" if order == "<" else b"MI")
    return header + element(order, 14, matrix)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("code", "stored"), mat._TYPES.items())
def test_numbers_in_smaller_types_and_both_byte_orders(order, code, stored):
    values = np.arange(6).reshape(2, 3)
    data = values.astype(order + stored).tobytes(order="F")
    for kind, dtype in mat._CLASSES.items():
        content = by_hand(order, kind, (2, 3), (code, data))
        if stored[0] == "f" and dtype[0] != "f":
            with pytest.raises(InputError, match=f"type {code}"):
                read_mat(content)
            continue
        found = read_mat(content)["x"]
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, values)
    logical = read_mat(by_hand(order, 9, (2, 3), (2, bytes(range(6))), flags=0x200))["x"]
    assert (logical.dtype, logical.tolist()) == (bool, [[False, True, True], [True, True, True]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_written_comes_back(rng, dtype):
    arrays = {"edges": (rng.random((33, 7)) * 9).astype(dtype), "b": (rng.random((1, 1, 4)) * 9).astype(dtype)}
    content = write_mat(arrays)
    assert content == write_mat({name: np.asfortranarray(array) for name, array in arrays.items()})
    check_different_files(content)
    for name, array in arrays.items():
        assert read_mat(content)[name].dtype == array.dtype
        np.testing.assert_array_equal(read_mat(content)[name], array)
    for wrong in (np.zeros(3), np.zeros((2, 2), complex), np.array([["a"]])):
        with pytest.raises(OutputError, match="two or more axes"):
            write_mat({"x": wrong})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (lambda: saved({"x": eye(3)}), r"a sparse array; save full\(x\), with -v7"),
        (by_hand("<", 3, (1, 1)), "holds an object"),
        (by_hand("<", 16, (1, 1)), "holds a function handle; leave it out"),
        (by_hand("<", 17, (1, 1)), "holds an object"),
        (
            b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF\r\n\x1a\n",
            "v7.3 file; save it again with -v7",
        ),
        (b"\x89HDF\r\n\x1a\n" + bytes(600), "v7.3"),
        (b"MATLAB".ljust(124) + b"\0\2IM", "version 0x200; save it again with -v7"),
        (struct.pack("<5i", 0, 2, 2, 0, 2) + b"x\0" + bytes(200), "version 4; save it again with -v7"),
        (b"no such thing", "header"),
        (b"", "header"),
        (by_hand("<", 99, (1, 1), (9, bytes(8))), "class 99"),
        (by_hand("<", 6, (2, 2), (9, bytes(24))), "24 bytes for 2x2 numbers of 8"),
        (by_hand("<", 6, (-1, -1), (9, bytes(8))), "an array of -1x-1"),
        (by_hand("<", 6, (2**31 - 1, 2**31 - 1), (9, bytes(8))), "an array of 2147483647x2147483647"),
        (by_hand("<", 6, (0, 2**31 - 1, 2**31 - 1), (9, b"")), "an array of 0x"),
        (by_hand("<", 6, (1,), (9, bytes(8))), "4 bytes of dimensions"),
        (by_hand("<", 1, (10**4, 10**4)), "0 bytes for 100000000 cells"),
        (by_hand("<", 2, (10**4, 10**4), (5, bytes([8, 0, 0, 0])), (1, b"")), "structs of 0 fields"),
        (by_hand("<", 2, (1, 1), (5, bytes(4)), (1, b"a")), "bytes of field names"),
        (by_hand("<", 2, (1, 1), (5, bytes([8, 0, 0, 0])), (1, bytes(8))), "field names that are empty"),
        (by_hand("<", 4, (1, 1), (9, bytes(8))), "text in an element of type 9"),
        (by_hand("<", 6, (1, 1), (9, bytes(8)))[:-4], "an element of"),
        (by_hand("<", 6, (1, 1), (9, bytes(8))) + b"abc", "cut short"),
    ],
)
def test_what_is_no_level_5_file_is_one_sentence(content, says):
    with pytest.raises(InputError, match=says) as refused:
        read_mat(content() if callable(content) else content)
    assert "\n" not in str(refused.value)


def packed(plain, claim=None):
    """A compressed variable; `claim` is the size that its tag states."""
    plain = plain if claim is None else plain[:4] + struct.pack("<I", claim) + plain[8:]
    content = zlib.compress(plain)
    header = b"MATLAB 5.0".ljust(124) + struct.pack("<H", 0x100) + b"IM"
    return header + struct.pack("<II", 15, len(content)) + content


def test_bombs_and_deep_nests_are_refused_before_they_cost_memory(monkeypatch):
    plain = by_hand("<", 9, (1, 2**20), (2, bytes(2**20)))[128:]
    assert read_mat(packed(plain))["x"].shape == (1, 2**20)
    for claim, says in ((2**32 - 9, "compressed bytes for"), (2**10, "does not have"), (len(plain), "does not have")):
        with pytest.raises(InputError, match=says):
            read_mat(packed(plain, claim))
    with pytest.raises(InputError, match="compress"):
        read_mat(packed(plain)[:-1] + b"x")
    monkeypatch.setattr(mat, "LIMIT", 2**20 + 2**10)
    assert len(read_mat(packed(plain))) == 1
    with pytest.raises(InputError, match="unpacks to more than 1 MB"):
        read_mat(packed(plain) + packed(plain)[128:])
    with pytest.raises(InputError, match="unpacks to more than 1 MB"):  # 2 MB as doubles
        read_mat(by_hand("<", 6, (1, 2**18), (2, bytes(2**18))))
    with pytest.raises(OutputError, match=r"holds at most 1 MB.*--format npy"):
        write_mat({"x": np.zeros((1024, 1025), np.uint8)})
    monkeypatch.undo()
    nest = b""
    for _ in range(40):
        nest = by_hand("<", 1, (1, 1), name=b"")[136:] + nest
        nest = element("<", 14, nest)
    with pytest.raises(InputError, match="nested 32 deep"):
        read_mat(by_hand("<", 6, (1, 1), (9, bytes(8)))[:128] + nest)
    many = by_hand("<", 1, (1, mat.MATRICES))[136:] + struct.pack("<II", 14, 0) * mat.MATRICES
    with pytest.raises(InputError, match="more than 100000 arrays"):
        read_mat(packed(element("<", 14, many)))


def test_files_that_cannot_be_opened(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere.mat"):
        with pytest.raises(InputError, match="check the name"):
            read_mat(path)


def test_a_bsds_file_of_something_else_is_refused(tmp_path, rng):
    for k, variables in enumerate(({"groundTruth": "text"}, {"groundTruth": np.eye(3)}, nested(rng))):
        (tmp_path / f"{k}.mat").write_bytes(saved(variables))
        with pytest.raises(InputError, match="is not a BSDS label"):
            read_bsds(tmp_path / f"{k}.mat")


def mutations(count, seed):
    """Files with flipped bits, cuts, and exchanged or extreme lengths; half of them inside the compressed bytes."""
    rng = np.random.default_rng(seed)
    whole = [
        saved({**nested(rng), **{f"x{t}".replace("?", "b"): np.ones((3, 2), t) for t in [*DTYPES, "c8"]}}, c)
        for c in (False, True)
    ]
    one = saved({"groundTruth": nested(rng)["cells"]})
    for k in range(count):
        content = bytearray(one[128:] if k % 2 else whole[k // 2 % 2])
        for _ in range(rng.integers(1, 4)):
            place = int(rng.integers(len(content)))
            kind = rng.integers(4)
            if kind == 0:
                content[place] ^= 1 << int(rng.integers(8))
            elif kind == 1 and rng.random() < 0.3:
                del content[place + 8 :]
            else:
                word, other = place & ~3, int(rng.integers(len(content))) & ~3
                extreme = [0, 1, 4, 7, 8, 14, 15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 8]
                new = struct.pack("<I", extreme[rng.integers(12)]) if kind == 2 else content[other : other + 4]
                content[word : word + 4] = new
        yield packed(bytes(content)) if k % 2 else bytes(content)


def test_mutated_files_are_read_or_refused():
    for content in mutations(300, seed=1):
        with contextlib.suppress(InputError):
            read_mat(content)
