"""The layout of safetensors, by its definition: length of the header, JSON header, the tensors' bytes."""

import json
from collections.abc import Mapping

import numpy as np

TYPES = {"f2": "F16", "f4": "F32", "f8": "F64", "u1": "U8", "i1": "I8", "i4": "I32", "i8": "I64"}


def save(tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> bytes:
    table: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    data = b""
    for name, tensor in tensors.items():
        content = np.ascontiguousarray(tensor).tobytes()
        offsets = [len(data), len(data) + len(content)]
        table[name] = {"dtype": TYPES[tensor.dtype.str[1:]], "shape": list(tensor.shape), "data_offsets": offsets}
        data += content
    header = json.dumps(table).encode()
    return len(header).to_bytes(8, "little") + header + data


def load(content: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors and the metadata of such a file."""
    types = {name: code for code, name in TYPES.items()}
    length = int.from_bytes(content[:8], "little")
    table, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = table.pop("__metadata__", {})
    return {
        name: np.frombuffer(data[slice(*one["data_offsets"])], types[one["dtype"]]).reshape(one["shape"]).copy()
        for name, one in table.items()
    }, metadata
