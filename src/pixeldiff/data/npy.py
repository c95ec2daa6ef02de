"""NumPy's .npy files, read strictly: the header is matched, never evaluated, and compared with the file's size.

    file    "\\x93NUMPY", version (2 bytes), length of the header (2 bytes; 4 from version 2 on), header, numbers
    header  {'descr': '<f4', 'fortran_order': False, 'shape': (321, 481), }

Reference: numpy.lib.format. Arrays of Python objects (pickles, which can run any code) and records are refused.
"""

from __future__ import annotations

import math
import os
import re
import struct
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import UserError

_HEADER_BYTES = 10_000
_DESCR = re.compile(r"""['"]descr['"]\s*:\s*['"]([<>|=]?[?biufcmMOSUV]\d{0,6})['"]\s*[,}]""")
_ORDER = re.compile(r"""['"]fortran_order['"]\s*:\s*(True|False)\s*[,}]""")
_SHAPE = re.compile(r"""['"]shape['"]\s*:\s*\(((?:\s*\d{1,18}\s*,)*(?:\s*\d{1,18}\s*)?)\)\s*[,}]""")


class _DamageError(ValueError):
    pass


def read_npy(path: Path, mapped: bool = False) -> NDArray[Any]:
    """The array in a file; `mapped` leaves the numbers on the disk until they are asked for."""
    try:
        with path.open("rb") as file:
            dtype, shape, order = _header(file, path)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
        if size - start != math.prod(shape) * dtype.itemsize:
            raise _DamageError(f"{size - start} bytes for {'x'.join(map(str, shape))} numbers of {dtype.itemsize}")
        if not math.prod(shape):  # cannot be mapped
            return np.zeros(shape, dtype)
        if mapped:
            return np.memmap(path, dtype, "r", start, shape, order)
        return np.fromfile(path, dtype, offset=start).reshape(shape, order=order)
    except OSError as error:
        raise UserError(f"{path} is not a readable .npy file ({error.strerror}); check the name") from error
    except _DamageError as error:
        raise UserError(f"{path} is not a readable .npy file ({error}); save it again with numpy.save") from error


def _header(file: IO[bytes], path: Path) -> tuple[np.dtype[Any], tuple[int, ...], Any]:
    begin = file.read(8)
    if begin[:2] == b"PK":
        raise UserError(f"{path} is an .npz archive under another name; save the map with numpy.save")
    if begin[:6] != b"\x93NUMPY" or begin[6:7] not in (b"\1", b"\2", b"\3"):
        raise _DamageError("it does not begin as .npy files do")
    code = "<H" if begin[6] == 1 else "<I"
    length = file.read(struct.calcsize(code))
    size = struct.unpack(code, length)[0] if len(length) == struct.calcsize(code) else 0
    text = file.read(size).decode("latin-1") if size <= _HEADER_BYTES else ""
    found = [pattern.search(text) for pattern in (_DESCR, _ORDER, _SHAPE)]
    if len(text) != size or not all(found):
        raise _DamageError("its header does not say type, order and shape of plain numbers")
    descr, order, numbers = (match[1] for match in found if match)
    dtype = _type(descr)
    shape = tuple(int(side) for side in numbers.split(",") if side.strip())
    if len(shape) > 32 or math.prod(filter(None, shape)) * max(1, dtype.itemsize) >= 2**62:
        raise _DamageError("its shape is beyond reason")
    return dtype, shape, "F" if order == "True" else "C"


def _type(descr: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(descr)
    except (TypeError, ValueError) as error:
        raise _DamageError(f"its numbers are of an unknown type {descr!r}") from error
    if not dtype.itemsize:
        raise _DamageError(f"its numbers are of an unknown type {descr!r}")
    if dtype.hasobject:
        raise _DamageError("it holds Python objects, which can run any code")
    return dtype
