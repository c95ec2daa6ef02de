"""What only the extras install, for tests that also run in the plain install: whoever calls what is absent is skipped.

    savemat = optional("scipy.io").savemat

An absent module of the package itself (a torch room) counts too, if it lacks a module of an extra; else it is an error.
"""

import importlib
import importlib.util
from typing import Any

import pytest

EXTRAS = {
    *("torch", "onnx", "safetensors", "tensorboard", "scipy", "matplotlib", "skimage", "av"),
    *("onnxruntime", "httpx", "fastapi", "starlette", "uvicorn", "mypy"),
    *("ray", "pyarrow", "yaml"),
}

NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


class Absent:
    def __init__(self, missing: str) -> None:
        self._missing = missing

    def __getattr__(self, name: str) -> "Absent":
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(self._missing)

    def __call__(self, *_: Any, **__: Any) -> Any:
        pytest.skip(f"needs {self._missing}")


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").split(".")[0]
        if missing not in EXTRAS:
            raise
        return Absent(missing)
