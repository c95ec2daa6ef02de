"""MATLAB files, read with SciPy (extra `eval`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pixeldiff.errors import UserError


def read_mat(path: Path) -> dict[str, Any]:
    """The variables of a .mat file by name."""
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise UserError("reading .mat files needs SciPy; install it with: pip install 'pixeldiff[eval]'") from error
    try:
        content = loadmat(path)
    except NotImplementedError as error:
        raise UserError(f"{path} is a MATLAB v7.3 file; save it again with -v7") from error
    except Exception as error:  # SciPy raises whatever the damage happens to hit
        raise UserError(f"{path} is not a readable .mat file ({error}); copy or save it again") from error
    return {name: value for name, value in content.items() if not name.startswith("__")}


def describe(variables: dict[str, Any]) -> str:
    """Names and shapes, for messages."""
    return ", ".join(f"{n} {'x'.join(map(str, v.shape))}" for n, v in variables.items()) or "nothing"
