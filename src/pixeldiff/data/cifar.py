"""CIFAR-100 as its official Python folder, cifar-100-python/{train,test,meta}. NumPy only.

The files are pickles, and a pickle can run any code. This reader resolves only what NumPy arrays and byte strings need;
anything else in a file is an error.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixeldiff.errors import InputError

CLASSES = 100
SIDE = 32
SPLITS = ("train", "test")
FOLDER = "cifar-100-python"
ORIGIN = "https://www.cs.toronto.edu/~kriz/cifar.html (cifar-100-python.tar.gz)"

_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Restricted(pickle._Unpickler):
    """The unpickler written in Python: the faster one in C allocates as much memory as a damaged length says."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it would run {module}.{name}")
        return _empty if name == "_reconstruct" else super().find_class(module, name)


def _empty(*arguments: Any) -> NDArray[Any]:
    """Return an empty array; size and type come with its content."""
    return np.empty(0, np.uint8)


@dataclass(frozen=True)
class Cifar:
    """One split in memory."""

    images: NDArray[np.uint8]  # N x 32 x 32 x 3, RGB
    labels: NDArray[np.int64]
    names: tuple[str, ...]  # of the 100 classes


def read_cifar100(root: str | Path, split: str) -> Cifar:
    """Read a split from the folder itself or from the folder that holds cifar-100-python."""
    folder = next((f for f in (Path(root), Path(root) / "cifar-100-python") if (f / "meta").is_file()), None)
    if folder is None:
        raise InputError(f"{root} is not CIFAR-100: no cifar-100-python folder with train, test and meta; {ORIGIN}")
    if split not in SPLITS:
        raise InputError(f"CIFAR-100 has the splits {' and '.join(SPLITS)}, got {split!r}")
    table, meta = _read(folder / split), _read(folder / "meta")
    data, labels = np.asarray(table.get("data")), np.asarray(table.get("fine_labels"))
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3 * SIDE * SIDE or len(data) != labels.size:
        raise InputError(f"{folder / split} does not hold N x 3072 bytes and N labels, got {data.dtype} {data.shape}")
    if labels.dtype.kind not in "iu" or labels.size == 0 or labels.min() < 0 or labels.max() >= CLASSES:
        raise InputError(f"{folder / split} has labels outside 0..{CLASSES - 1}; unpack the archive again")
    names = tuple(n.decode() if isinstance(n, bytes) else str(n) for n in meta.get("fine_label_names", ()))
    if len(names) != CLASSES:
        raise InputError(f"{folder / 'meta'} names {len(names)} classes, not {CLASSES}")
    images = np.ascontiguousarray(data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))
    return Cifar(images, labels.astype(np.int64), names)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = _Restricted(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises whatever it happens to hit
        raise InputError(f"{path} is not a readable CIFAR-100 file ({error}); unpack the archive again") from error
    if not isinstance(table, dict):
        raise InputError(f"{path} is not a CIFAR-100 file: it holds a {type(table).__name__}, not a table")
    return {k.decode() if isinstance(k, bytes) else str(k): v for k, v in table.items()}
