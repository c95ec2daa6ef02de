"""Read an .onnx file without onnxruntime: its description, and whether its layers are safe to run.

Layers that no export has (endless loops, arrays of any size), and layers whose attributes would take any memory, are an
error before onnxruntime opens the file.

This reads only a part of the protobuf wire format: a message is fields, each a key (number << 3 | kind) and a value.
ModelProto.graph = 7 and functions = 25, GraphProto.node = 1, NodeProto.op_type = 4, attribute = 5 and domain = 7,
AttributeProto.ints = 8;
ModelProto.metadata_props = 14, StringStringEntryProto.key = 1 and value = 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pixeldiff.errors import InputError

MAX_EXTENT = 64  # of paddings, kernels, strides, dilations and axes; those of an export are at most 11
_EXPORTED = "Add Cast Concat Constant Conv Gather MaxPool Mul Relu Resize Shape Sigmoid Slice Unsqueeze"
_OF_BOXES = "CumSum Exp GatherND GlobalAveragePool HardSigmoid NonMaxSuppression"
_OF_OTHER_VERSIONS = "Clip Div Floor Identity Reshape Split Squeeze Sub Transpose"  # of torch and its exporter
KINDS = frozenset(f"{_EXPORTED} {_OF_BOXES} {_OF_OTHER_VERSIONS}".encode().split())

_VARINT, _LONG, _BYTES, _SHORT = 0, 1, 2, 5


def check_layers(path: Path) -> None:
    """Raise an error for a layer that is not in KINDS, or that has a number beyond MAX_EXTENT in a list."""
    try:
        model = memoryview(path.read_bytes())
        if any(True for _ in _inside(model, 25)):
            raise InputError(f"{path} defines custom layers; use a file written by pixeldiff export")
        for graph in _inside(model, 7):
            for node in _inside(graph, 1):
                _check_kind(node, path)
                for attribute in _inside(node, 5):
                    if not all(abs(number) <= MAX_EXTENT for number in _numbers(attribute, 8)):
                        raise InputError(f"{path} is damaged: a layer pads or reaches beyond {MAX_EXTENT} pixels")
    except (IndexError, OSError) as error:
        raise InputError(f"{path} is not a readable ONNX file; export or download it again") from error


def _check_kind(node: memoryview, path: Path) -> None:
    kinds = [bytes(kind) for kind in _inside(node, 4)]
    if not KINDS.issuperset(kinds) or not {b"", b"ai.onnx"}.issuperset(map(bytes, _inside(node, 7))):
        shown = b" ".join(kinds)[:40].decode(errors="replace")
        raise InputError(f"{path} has a layer {shown!r}, which no export has; use a file written by pixeldiff export")


def read_properties(path: Path) -> dict[str, str]:
    """Return the properties beside the graph."""
    try:
        model = memoryview(path.read_bytes())
        next(_inside(model, 7))  # without a graph it is something else
        entries = [dict(_fields(entry)) for entry in _inside(model, 14)]
    except (IndexError, StopIteration, OSError) as error:
        raise InputError(f"{path} is not a readable ONNX file; export or download it again") from error
    try:
        return {_text(entry.get(1)): _text(entry.get(2)) for entry in entries}
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is damaged: its description is not text; export or download it again") from error


def _text(value: int | memoryview | None) -> str:
    return bytes(value).decode() if isinstance(value, memoryview) else ""


def _inside(message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (value for number, value in _fields(message) if number == wanted and isinstance(value, memoryview))


def _numbers(message: memoryview, wanted: int) -> Iterator[int]:
    for number, value in _fields(message):
        if number == wanted and isinstance(value, memoryview):  # many in one field
            at = 0
            while at < len(value):
                integer, at = _varint(value, at)
                yield _signed(integer)
        elif number == wanted:
            yield _signed(value)  # type: ignore[arg-type]


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind not in (_LONG, _BYTES, _SHORT):
            raise IndexError("unknown kind of field")
        size, at = _varint(message, at) if kind == _BYTES else (8 if kind == _LONG else 4, at)
        if size > len(message) - at:
            raise IndexError("cut short")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        value |= (message[at] & 127) << shift
        at += 1
        if message[at - 1] < 128:
            return value, at
    raise IndexError("a number without end")


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
