"""Damage to files: blind (bits, bytes, blocks, numbers) and aimed (behind checksums, compression and headers)."""

from __future__ import annotations

import contextlib
import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

Damage = Callable[[bytes, Random], bytes]

# Where readers go wrong: around zero, around the limits of each width, and sizes that cost memory.
NUMBERS = (0, 1, -1, 2, 3, 7, 8, 127, 128, 255, 256, 32767, 65535, 65536, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**63)
VALUES: tuple[Any, ...] = (*NUMBERS, 10**30, 10**400, 0.5, 1e308, -0.0, float("nan"), float("inf"), True, None, "", [])
TEXTS = ("", "nan", "inf", "1e999", "-1", "9" * 20, "[" * 5000, "\x00", "\ud800", "../..", '"', "é", "true")


def damage(content: bytes, rng: Random, aimed: Damage | None = None) -> bytes:
    """A few faults; where a format has its own, half of the files get those, some both."""
    if aimed is not None and rng.random() < 0.6:
        with contextlib.suppress(ValueError, IndexError, RecursionError, struct.error, zlib.error, zipfile.BadZipFile):
            content = aimed(content, rng)
        if rng.random() < 0.7:
            return content
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        content = rng.choice(BLIND)(content, rng)
    return content


def _place(content: bytes, rng: Random) -> int:
    """Anywhere, but often in the head, where the sizes stand."""
    return rng.randrange(min(len(content), rng.choice((16, 64, 512, 2**62))) or 1)


def _flip(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content or b"\0")
    changed[_place(content, rng)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _set(content: bytes, rng: Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))]) + content[at + 1 :]


def _number(content: bytes, rng: Random) -> bytes:
    at, size = _place(content, rng), rng.choice((1, 2, 4, 8))
    value = (rng.choice(NUMBERS) % 2 ** (8 * size)).to_bytes(size, rng.choice(("little", "big")))  # type: ignore[arg-type]
    return content[:at] + value + content[at + size :]


def _truncate(content: bytes, rng: Random) -> bytes:
    return content[: _place(content, rng)]


def _insert(content: bytes, rng: Random) -> bytes:
    at = _place(content, rng)
    return content[:at] + rng.randbytes(rng.choice((1, 2, 4, 100))) + content[at:]


def _block(content: bytes, rng: Random) -> bytes:
    """A block left out, doubled, or put elsewhere."""
    at, to = _place(content, rng), _place(content, rng)
    size = rng.choice((1, 4, 16, 256))
    block = content[at : at + size]
    if rng.random() < 0.3:
        return content[:at] + content[at + size :]
    return content[:to] + block * rng.choice((1, 1, 50)) + content[to + rng.choice((0, len(block))) :]


def _digits(content: bytes, rng: Random) -> bytes:
    """Another number where one stands as text."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:4096]))
    if not found:
        return _flip(content, rng)
    where = rng.choice(found)
    text = rng.choice((str(rng.choice(NUMBERS)), rng.choice(TEXTS), "1" * rng.choice((20, 5000))))
    return content[: where.start()] + text.encode("utf-8", "surrogatepass") + content[where.end() :]


BLIND: tuple[Damage, ...] = (_flip, _flip, _set, _set, _number, _number, _truncate, _insert, _block, _digits)


def png(content: bytes, rng: Random) -> bytes:
    """One chunk changed, the pixels inside their compression, with checksums that agree."""
    chunks, at = [], 8
    while at + 12 <= len(content):
        (size,) = struct.unpack(">I", content[at : at + 4])
        chunks.append([content[at + 4 : at + 8], content[at + 8 : at + 8 + size]])
        at += 12 + size
    chunk = rng.choice(chunks)
    if chunk[0] == b"IDAT" and rng.random() < 0.7:
        chunk[1] = zlib.compress(damage(zlib.decompress(chunk[1]), rng))
    else:
        chunk[1] = damage(chunk[1], rng)
    if rng.random() < 0.1:
        chunks.insert(rng.randrange(len(chunks) + 1), list(rng.choice(chunks)))
    parts = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks]
    return content[:8] + b"".join(parts)


def mat(content: bytes, rng: Random) -> bytes:
    """A variable of a level-5 file changed inside its compression; or the tag of an element."""
    kind, size = struct.unpack("<II", content[128:136])
    if kind != 15:
        at = 128 + 8 * rng.randrange((len(content) - 128) // 8)
        return content[:at] + _number(content[at : at + 8], rng) + content[at + 8 :]
    inner = damage(zlib.decompress(content[136 : 136 + size]), rng, mat_element)
    packed = zlib.compress(inner)
    return content[:128] + struct.pack("<II", 15, len(packed)) + packed + content[136 + size :]


def mat_element(content: bytes, rng: Random) -> bytes:
    at = 8 * rng.randrange(max(1, min(len(content) // 8, 40)))
    return content[:at] + _number(content[at : at + 8] or b"\0", rng) + content[at + 8 :]


def change_json(value: Any, rng: Random) -> Any:
    """A JSON value with one place in it changed, dropped or doubled."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.1:
            del changed[key]
        else:
            changed[key] = change_json(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.2:
            return value[:at] + value[at + 1 :] if rng.random() < 0.5 else value[:at] + value[at : at + 1] + value[at:]
        return [*value[:at], change_json(value[at], rng), *value[at + 1 :]]
    if isinstance(value, str) and rng.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError):  # a description is JSON inside a text
            return json.dumps(change_json(json.loads(value), rng))
        return rng.choice(TEXTS)
    if isinstance(value, int) and not isinstance(value, bool) and rng.random() < 0.4:
        return value + rng.choice((-1, 1, value, 8 * value))
    return rng.choice(VALUES)


def json_text(content: bytes, rng: Random) -> bytes:
    changed = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 4))):
        changed = change_json(changed, rng)
    return json.dumps(changed).encode()


def tensors(content: bytes, rng: Random) -> bytes:
    """A header of safetensors that lies, about shapes and places or in the description of the network."""
    size = int.from_bytes(content[:8], "little")
    header = json_text(content[8 : 8 + size], rng)
    return len(header).to_bytes(8, "little") + header + content[8 + size :]


def layout(content: bytes, rng: Random) -> bytes:
    """A safetensors file whose layout for the engine lies: order, kinds, folding matrices."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    described = json.loads(header["__metadata__"]["pixeldiff"])
    damaged = json_text(json.dumps(described.pop("engine")).encode(), rng).decode(errors="replace")
    text = json.dumps(described)[:-1] + f', "engine": {damaged}' + "}"
    header["__metadata__"]["pixeldiff"] = text
    written = json.dumps(header).encode()
    return len(written).to_bytes(8, "little") + written + content[8 + size :]


def zipped(content: bytes, rng: Random) -> bytes:
    """A member of a zip archive (a .pth file) changed, or packed where none is."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(written, "w") as new:
        names = old.namelist()
        chosen = rng.choice([name for name in names if name.endswith(".pkl")] if rng.random() < 0.7 else names)
        for name in names:
            member = old.read(name)
            way = zipfile.ZIP_DEFLATED if rng.random() < 0.05 else zipfile.ZIP_STORED
            new.writestr(zipfile.ZipInfo(name), damage(member, rng) if name == chosen else member, way)
    return written.getvalue()


def graph(content: bytes, rng: Random) -> bytes:
    """An ONNX file whose description, attributes, shapes or wiring lie."""
    import onnx

    proto = onnx.load_from_string(content)
    node = rng.choice(proto.graph.node)
    what = rng.random()
    if what < 0.4:
        entry = rng.choice(proto.metadata_props)
        entry.value = json_text(entry.value.encode(), rng).decode()
    elif what < 0.6 and node.attribute:
        attribute = rng.choice(node.attribute)
        if attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(NUMBERS[:-1])
        else:
            attribute.i = rng.choice(NUMBERS[:-1])
    elif what < 0.8:
        tensor = rng.choice(proto.graph.initializer)
        if tensor.dims and rng.random() < 0.5:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS[:-1])
        else:
            tensor.raw_data = damage(tensor.raw_data, rng)
    elif what < 0.9 and node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(rng.choice(proto.graph.node).output)
    else:
        node.op_type = rng.choice((rng.choice(proto.graph.node).op_type, "Loop", "ConstantOfShape", "Expand", "Tile"))
    return bytes(proto.SerializeToString())
