"""ONNX Runtime, imported in this one place with its telemetry off, so that nothing is sent and nothing left behind.

From 1.29 on, importing it writes a device id and a database under ~/.cache/Microsoft, a file into the temporary
folder, and looks up its maker's address. Only the environment at the moment of that import stops it (older versions
ignore the variable); whoever imports onnxruntime before pixeldiff must set it themselves. Child processes inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # who sets it to 0 has asked for it

import onnxruntime as onnxruntime

from pixeldiff.errors import UserError
from pixeldiff.weights.graph_file import check_layers


def open_session(
    path: Path, threads: int | None, providers: Sequence[Any] | None, installed: bool = False
) -> onnxruntime.InferenceSession:
    """The graph of a file, on these of onnxruntime's providers (the CPU's by default).

    A user's file has the layers of our exports; that of an `installed` package is believed."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors come back as exceptions
    # Image sizes vary: planning memory per size takes more of it (669 against 365 bytes per pixel) and more time.
    options.enable_mem_pattern = False
    if threads is not None:
        if threads < 1:
            raise UserError(f"threads is at least 1, got {threads}")
        options.intra_op_num_threads = threads
    chosen = ["CPUExecutionProvider"] if providers is None else list(providers)
    have = onnxruntime.get_available_providers()
    for one in chosen:
        if (one if isinstance(one, str) else one[0]) not in have:
            raise UserError(f"onnxruntime here has no provider {one!r}; it has {', '.join(have)}")
    if not installed:
        check_layers(path)
    try:
        return onnxruntime.InferenceSession(path, options, providers=chosen)
    except Exception as error:  # onnxruntime raises a class of its own for each kind of damage
        raise UserError(f"{path} is not a readable ONNX file; export or download it again") from error
