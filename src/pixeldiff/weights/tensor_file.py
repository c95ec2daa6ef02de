"""Read safetensors files strictly, without another library: trained edge networks and packed networks.

A file is the length of its header (8 bytes, little endian), the header (JSON: the description under METADATA_KEY, and
type, shape and place of every tensor), and the tensors. Names, types, shapes and places are compared with what the
network needs before an array is created. Every fault is one InputError that names it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError
from pixeldiff.weights.description import METADATA_KEY, MOST_HEADER_BYTES, JsonReader, check_integer
from pixeldiff.weights.metadata import migrate

DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float
    "U8": np.dtype("u1"),
}
FLOATS = ("F32", "F16", "BF16", "F64")

Tensors = Mapping[str, NDArray[Any]]
Shapes = dict[str, tuple[str | tuple[str, ...], tuple[int, ...]]]  # tensor name -> type, or types, and shape


def split(content: bytes, what: str) -> tuple[dict[str, Any], dict[str, Any], memoryview]:
    """Return the table of tensors, the description of the network, and the bytes of the tensors."""
    if len(content) < 8:
        raise InputError(f"it is cut short ({len(content)} bytes)")
    length = int.from_bytes(content[:8], "little")
    if length > MOST_HEADER_BYTES:
        raise InputError(
            f"its header claims {length} bytes, more than {MOST_HEADER_BYTES}; it is damaged or not such a file"
        )
    if 8 + length > len(content):
        raise InputError(f"it is cut short: {len(content)} bytes, the header alone takes {8 + length}")
    table = _parse_json(content[8 : 8 + length], "its header")
    metadata = table.pop("__metadata__", None)
    if not isinstance(metadata, dict) or not isinstance(metadata.get(METADATA_KEY), str):
        raise InputError(f"it is not a {what} of pixeldiff (no description in its header)")
    described = migrate(_parse_json(metadata[METADATA_KEY].encode("utf-8", "replace"), "its description"))
    return table, described, memoryview(content)[8 + length :]


def _parse_json(text: bytes, what: str) -> dict[str, Any]:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON; the file is damaged") from error
    if not isinstance(table, dict):
        raise InputError(f"{what} is not a JSON object; the file is damaged")
    return table


def read_tensors(table: dict[str, Any], data: memoryview, wanted: Shapes) -> Tensors:
    """Return the arrays, each of a wanted type and shape, floats as float32; together they fill the file."""
    missing, extra = sorted(wanted.keys() - table.keys()), sorted(table.keys() - wanted.keys())
    if missing or extra:
        raise InputError(f"tensor {missing[0]!r} is missing" if missing else f"it has an unknown tensor {extra[0]!r}")
    places, spans = {}, []
    for name, (types, shape) in wanted.items():
        fields = JsonReader(table[name], f"tensor {name!r}")
        dtype = fields.value("dtype")
        allowed = (types,) if isinstance(types, str) else types
        if dtype not in allowed or fields.value("shape") != list(shape):
            raise InputError(f"tensor {name!r} is not {' or '.join(allowed)} {list(shape)}")
        start, stop = (check_integer(v, 0, len(data), f"the place of tensor {name!r}") for v in _offsets(fields))
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if stop - start != size:
            raise InputError(f"tensor {name!r} takes {stop - start} bytes, its shape {size}")
        spans.append((start, stop))
        places[name] = (dtype, data[start:stop], shape)
    _check_spans(sorted(spans), len(data))
    return {name: _array(name, *place) for name, place in places.items()}


def _array(name: str, dtype: str, content: memoryview, shape: tuple[int, ...]) -> NDArray[Any]:
    array: NDArray[Any] = np.frombuffer(content, DTYPES[dtype]).reshape(shape)
    if dtype == "U8":
        array = array.copy()
        return array
    if dtype == "BF16":
        array = (array.astype("<u4") << 16).view("<f4")
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)  # a copy: a file need not align them
    if not np.isfinite(array).all():
        raise InputError(f"tensor {name!r} holds values that are not finite")
    return array


def _offsets(fields: JsonReader) -> list[Any]:
    offsets = fields.value("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2:
        raise InputError(f"the place of {fields.what} is not two numbers")
    return offsets


def _check_spans(spans: list[tuple[int, int]], size: int) -> None:
    end = 0
    for start, stop in spans:
        if start != end:
            raise InputError("its tensors overlap or leave gaps")
        end = stop
    if end != size:
        raise InputError(f"it has {size - end} bytes beyond its tensors")
