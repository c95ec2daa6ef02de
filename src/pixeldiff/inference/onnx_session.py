"""ONNX Runtime, imported only here, with its telemetry off, so that it sends nothing and leaves no files.

From 1.29 on, importing it writes a device id and a database under ~/.cache/Microsoft, a file into the temporary
folder, and looks up its maker's address. Only the environment at the moment of that import stops it (older versions
ignore the variable); a program that imports onnxruntime before pixeldiff must set it. Child processes inherit it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # a user may set it to 0

import onnxruntime as onnxruntime

from pixeldiff.errors import InputError, UserError
from pixeldiff.weights.graph_file import check_layers


def open_session(
    path: Path, threads: int | None, providers: Sequence[Any] | None, installed: bool = False
) -> onnxruntime.InferenceSession:
    """Open the graph of a file on onnxruntime's providers (the CPU's by default).

    The layers of a user's file are checked; those of an `installed` package are not.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors come back as exceptions
    # Image sizes vary: planning memory per size takes 669 instead of 365 bytes per pixel, and more time.
    options.enable_mem_pattern = False
    if threads is not None:
        if threads < 1:
            raise UserError(f"threads is at least 1, got {threads}")
        options.intra_op_num_threads = threads
    chosen = ["CPUExecutionProvider"] if providers is None else list(providers)
    have = onnxruntime.get_available_providers()
    for provider in chosen:
        if (provider if isinstance(provider, str) else provider[0]) not in have:
            raise UserError(f"onnxruntime here has no provider {provider!r}; it has {', '.join(have)}")
    if not installed:
        check_layers(path)
    try:
        return onnxruntime.InferenceSession(path, options, providers=chosen)
    except Exception as error:  # onnxruntime raises a class for each kind of damage
        raise InputError(f"{path} is not a readable ONNX file; export or download it again") from error
