"""MATLAB level-5 files (-v6 and -v7), read strictly and written: numbers, logicals, text, cells and structs.

    file      116 bytes of text, 8 of an offset, version 0x0100, "IM" (little endian) or "MI"; then elements
    element   type and length (4 bytes each), the data, zeros up to a multiple of 8; or, for at most 4 bytes,
              type and length (2 bytes each) and the data in the other 4
    matrix    an element of elements: class and flags, dimensions, name, then what the class asks for:
              numbers (column by column, in any type that holds them; imaginary parts after the real ones);
              a matrix per cell; or the length of field names, the names, and a matrix per field of each struct
    compressed  an element that holds another one, deflated

Every length is compared with the bytes that are there before anything is allocated, and what a file unpacks to is
limited. Reference: MathWorks, MAT-File Format, R2021a, chapter 1.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError, OutputError

LIMIT = 2**29  # bytes: of a file, and of what is unpacked and converted from it
MATRICES = 10**5  # in one file; each costs memory beyond its bytes
DEPTH = 32  # of cells and structs in each other

_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_CELL, _STRUCT, _CHAR = 1, 2, 4
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
_FOREIGN = {
    3: "an object; save its values as a struct or array",
    5: "a sparse array; save full(x)",
    16: "a function handle; leave it out",
    17: "an object (a string, table or class of its own); save its values as a struct or array",
}
_COMPLEX, _LOGICAL = 0x800, 0x200


class _DamageError(ValueError):
    pass


def read_mat(source: Path | bytes) -> dict[str, Any]:
    """Read the variables of a .mat file: arrays; object arrays for cells, with fields for structs; str for text."""
    if isinstance(source, bytes):
        name, content = "the file", source
    else:
        name, content = str(source), _content(source)
    if content[:4] == b"\x89HDF" or content[512:516] == b"\x89HDF" or content.startswith(b"MATLAB 7.3"):
        raise InputError(f"{name} is a MATLAB v7.3 file; save it again with -v7")
    try:
        return _Reader(content).variables()
    except _DamageError as error:
        raise InputError(f"{name} is not a readable .mat file ({error}); copy or save it again") from error
    except InputError as error:
        raise InputError(f"{name} {error}") from error


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > LIMIT:
            raise InputError(f"{path} is larger than {LIMIT >> 20} MB; save only the variables that matter")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} is not a readable .mat file ({error.strerror}); check the name") from error


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.room, self.matrices = memoryview(content), LIMIT, 0
        mark = content[126:128]
        if mark not in (b"IM", b"MI"):
            if len(content) >= 4 and 0 in content[:4]:  # where level 5 has text
                raise InputError("is not a MATLAB level-5 file, perhaps of version 4; save it again with -v7")
            raise _DamageError("its header is not that of MATLAB files")
        self.order = "<" if mark == b"IM" else ">"
        if (version := struct.unpack(f"{self.order}H", content[124:126])[0]) != 0x100:
            raise InputError(f"is a MATLAB file of version {version:#x}; save it again with -v7")
        self.pair = struct.Struct(f"{self.order}II")
        self.dtypes = {code: np.dtype(self.order + kind) for code, kind in _TYPES.items()}

    def variables(self) -> dict[str, Any]:
        variables = {}
        place = 128
        while place < len(self.content):
            kind, data, place = self.element(self.content, place)
            if kind == _COMPRESSED:
                kind, data, _ = self.element(self.inflated(data), 0)
            if kind != _MATRIX:
                raise _DamageError(f"an element of type {kind} where a variable should be")
            name, value = self.matrix(data, 0)
            if name:  # those without are MATLAB's own
                variables[name] = value
        return variables

    def element(self, data: memoryview, place: int) -> tuple[int, memoryview, int]:
        """Return type and data of the element at `place`, and the place after it."""
        if len(data) - place < 8:
            raise _DamageError("it is cut short")
        kind, size = self.pair.unpack_from(data, place)
        if kind >> 16:  # a small one
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            if size > 4:
                raise _DamageError(f"a small element of {size} bytes")
            return kind, data[start : start + size], place + 8
        start = place + 8
        if size > len(data) - start:
            raise _DamageError(f"an element of {size} bytes where {len(data) - start} are left")
        end = start + size
        return kind, data[start:end], end if kind == _COMPRESSED else end + (-size & 7)

    def inflated(self, data: memoryview) -> memoryview:
        """Decompress the one element in compressed bytes."""
        try:
            size = 8 + self.pair.unpack(zlib.decompressobj().decompress(data[:4096], 8))[1]
            if size > 1032 * len(data) + 8:  # the most that deflate can do
                raise _DamageError(f"{len(data)} compressed bytes for {size}")
            self.spend(size)
            stream = zlib.decompressobj()
            whole = stream.decompress(data, size + 1)
        except (zlib.error, struct.error) as error:
            raise _DamageError(f"damaged compression: {error}") from error
        if len(whole) != size or not stream.eof:
            raise _DamageError(f"a compressed element that does not have {size} bytes, as its header says")
        return memoryview(whole)

    def spend(self, size: int) -> None:
        self.room -= size
        if self.room < 0:
            raise InputError(f"unpacks to more than {LIMIT >> 20} MB; save only the variables that matter")

    def matrix(self, data: memoryview, depth: int) -> tuple[str, Any]:
        """Return name and value of a matrix element."""
        self.matrices += 1
        if self.matrices > MATRICES or depth > DEPTH:
            raise InputError(
                f"holds more than {MATRICES} arrays, or cells nested {DEPTH} deep; save only the variables that matter"
            )
        if not data:
            return "", np.zeros((0, 0))  # how an empty cell may be written
        flags, place = self.expected(data, 0, _UINT32)
        if len(flags) != 8:
            raise _DamageError(f"{len(flags)} bytes of array flags")
        flag = self.pair.unpack(flags)[0]
        kind = flag & 0xFF
        if kind in _FOREIGN:
            raise InputError(f"holds {_FOREIGN[kind]}, with -v7")
        sizes, place = self.expected(data, place, _INT32)
        if len(sizes) % 4 or not 8 <= len(sizes) <= 4 * 32:
            raise _DamageError(f"{len(sizes)} bytes of dimensions")
        shape = struct.unpack(f"{self.order}{len(sizes) // 4}i", sizes)
        if min(shape) < 0 or math.prod(filter(None, shape)) > LIMIT:
            raise _DamageError(f"an array of {'x'.join(map(str, shape))}")
        name, place = self.expected(data, place, _INT8)
        rest = data[place:]
        if kind == _CELL:
            return _text(name), self.cells(rest, shape, depth)
        if kind == _STRUCT:
            return _text(name), self.structs(rest, shape, depth)
        if kind == _CHAR:
            return _text(name), self.text(rest, shape)
        if kind not in _CLASSES:
            raise _DamageError(f"an array of class {kind}")
        return _text(name), self.numbers(rest, shape, np.dtype(_CLASSES[kind]), flag)

    def expected(self, data: memoryview, place: int, code: int) -> tuple[memoryview, int]:
        kind, content, place = self.element(data, place)
        if kind != code:
            raise _DamageError(f"an element of type {kind} instead of {code}")
        return content, place

    def numbers(self, data: memoryview, shape: tuple[int, ...], dtype: np.dtype[Any], flag: int) -> NDArray[Any]:
        real, place = self.part(data, 0, shape, dtype)
        if flag & _COMPLEX:
            imaginary, _ = self.part(data, place, shape, dtype)
            self.spend(16 * real.size)
            whole = real.astype(np.complex64 if dtype == np.float32 else np.complex128)
            whole.imag = imaginary
            return whole
        if flag & _LOGICAL:
            return real.view(bool) if dtype == np.uint8 and real.max(initial=0) <= 1 else real.astype(bool)
        return real

    def part(
        self, data: memoryview, place: int, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> tuple[NDArray[Any], int]:
        """Return the real or imaginary numbers at `place`, as `dtype`."""
        kind, content, place = self.element(data, place)
        stored = self.dtypes.get(kind)
        if stored is None or (stored.kind == "f" and dtype.kind != "f"):
            raise _DamageError(f"{dtype} numbers in an element of type {kind}")
        if len(content) != math.prod(shape) * stored.itemsize:
            raise _DamageError(f"{len(content)} bytes for {'x'.join(map(str, shape))} numbers of {stored.itemsize}")
        array: NDArray[Any] = np.frombuffer(content, stored).reshape(shape, order="F")
        if stored != dtype:
            self.spend(array.size * dtype.itemsize)
            with np.errstate(over="ignore"):  # a double beyond the range of single is infinite
                array = array.astype(dtype)
        return array, place

    def cells(self, data: memoryview, shape: tuple[int, ...], depth: int) -> NDArray[Any]:
        count, place = math.prod(shape), 0
        if 8 * count > len(data):
            raise _DamageError(f"{len(data)} bytes for {count} cells")
        cells = np.empty(count, object)
        for k in range(count):
            one, place = self.expected(data, place, _MATRIX)
            cells[k] = self.matrix(one, depth + 1)[1]
        return cells.reshape(shape, order="F")

    def structs(self, data: memoryview, shape: tuple[int, ...], depth: int) -> NDArray[Any]:
        length, place = self.expected(data, 0, _INT32)
        names, place = self.expected(data, place, _INT8)
        wide = struct.unpack(f"{self.order}i", length)[0] if len(length) == 4 else 0
        if wide < 1 or len(names) % wide:
            raise _DamageError(f"{len(names)} bytes of field names, {wide} each")
        fields = [_text(names[k : k + wide]) for k in range(0, len(names), wide)]
        if len(set(fields)) < len(fields) or "" in fields:
            raise _DamageError("field names that are empty or alike")
        count = math.prod(shape)
        if 8 * count * max(1, len(fields)) > len(data) + 8:  # one struct may have no fields
            raise _DamageError(f"{len(data)} bytes for {count} structs of {len(fields)} fields")
        structs = np.empty(count, [(field, object) for field in fields])
        for k in range(count):
            for field in fields:
                one, place = self.expected(data, place, _MATRIX)
                structs[field][k] = self.matrix(one, depth + 1)[1]
        return structs.reshape(shape, order="F")

    def text(self, data: memoryview, shape: tuple[int, ...]) -> str:
        """Return rows as lines."""
        kind, content, _ = self.element(data, 0)
        if kind not in _TEXT:
            raise _DamageError(f"text in an element of type {kind}")
        little = self.order == "<"
        encoding = _TEXT[kind].replace("utf-16", "utf-16-le" if little else "utf-16-be")
        text = str(content, encoding, "replace")
        rows = min(shape[0], len(text))
        return "\n".join(text[row::rows] for row in range(rows))


def _text(data: memoryview) -> str:
    return bytes(data).split(b"\0")[0].decode("latin-1")


def write_mat(variables: Mapping[str, NDArray[Any]]) -> bytes:
    """Return a compressed level-5 file of real numeric arrays; the same bytes for the same arrays."""
    header = b"MATLAB 5.0 MAT-file, written by pixeldiff".ljust(116) + bytes(8) + struct.pack("<H", 0x100) + b"IM"
    return header + b"".join(_variable(name, array) for name, array in variables.items())


def _variable(name: str, array: NDArray[Any]) -> bytes:
    kind = array.dtype.kind + str(array.dtype.itemsize)
    codes = {text: code for code, text in _TYPES.items()}
    classes = {text: code for code, text in _CLASSES.items()}
    flags = 0
    if kind == "b1":
        array, kind, flags = array.astype(np.uint8), "u1", _LOGICAL
    if kind not in classes or array.ndim < 2:
        raise OutputError(f"a .mat file takes arrays of numbers with two or more axes, not {array.dtype} {array.shape}")
    if array.nbytes > LIMIT - 2**10:  # the rest of the file
        raise OutputError(
            f"a .mat file holds at most {LIMIT >> 20} MB, this array {array.nbytes >> 20}; use --format npy"
        )
    body = b"".join(
        (
            _element(_UINT32, struct.pack("<II", classes[kind] | flags, 0)),
            _element(_INT32, struct.pack(f"<{array.ndim}i", *array.shape)),
            _element(_INT8, name.encode("ascii")),
            _element(codes[kind], array.astype(f"<{kind}", copy=False).tobytes(order="F")),
        )
    )
    packed = zlib.compress(_element(_MATRIX, body), 1)  # maps of floats gain little by more
    return struct.pack("<II", _COMPRESSED, len(packed)) + packed


def _element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def describe(variables: dict[str, Any]) -> str:
    """List names and shapes, for messages."""
    shapes = {name: "text" if isinstance(v, str) else "x".join(map(str, v.shape)) for name, v in variables.items()}
    text = ", ".join(f"{name[:40]} {shape}" for name, shape in list(shapes.items())[:10]) or "nothing"
    return text + (f" and {len(shapes) - 10} more" if len(shapes) > 10 else "")
