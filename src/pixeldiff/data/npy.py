"""NumPy's .npy files, read strictly: plain numbers only, and exactly as many bytes as the header says.

Arrays of Python objects (pickles, which can run any code) and records are errors.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError

_HEADER_BYTES = 10_000
_MAX_SIDE = 2**31
_KINDS = "?biufcSU"  # of plain numbers and text


def read_npy(path: Path, mapped: bool = False) -> NDArray[Any]:
    """Read the array in a file; `mapped` leaves the numbers on the disk until they are used."""
    try:
        with path.open("rb") as file:
            begin = file.read(2)
        if begin == b"PK":
            raise InputError(f"{path} is an .npz archive under another name; save the map with numpy.save")
        array = np.lib.format.open_memmap(path, mode="r", max_header_size=_HEADER_BYTES)
        size = path.stat().st_size
    except InputError:
        raise
    except OSError as error:
        reason = error.strerror or "its header does not fit its size"
        raise InputError(f"{path} is not a readable .npy file ({reason}); check the name") from error
    except Exception as error:  # damaged headers raise whatever Python's parser meets
        reason = " ".join(str(error).split())[:100]
        raise InputError(f"{path} is not a readable .npy file ({reason}); save it again with numpy.save") from error
    if (array.dtype.char not in _KINDS and array.dtype.kind not in _KINDS) or not array.dtype.itemsize:
        raise InputError(f"{path} holds {array.dtype} values, which are not plain numbers; save plain numbers")
    if max(array.shape, default=0) > _MAX_SIDE:
        raise InputError(f"{path} holds an array of shape {array.shape}, too large for a map")
    if size != array.offset + array.nbytes:
        raise InputError(f"{path} has {size - array.offset} bytes for {array.nbytes}; save it again with numpy.save")
    return array if mapped else np.array(array)
