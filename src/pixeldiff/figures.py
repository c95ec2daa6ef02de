"""One style of plot: colors, dashes, and how a figure becomes a file (Matplotlib, extra `eval`)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from pixeldiff.errors import MissingExtra, UserError
from pixeldiff.files import atomic_write

SUFFIXES = (".png", ".svg", ".pdf")
# Okabe and Ito's colors, told apart by color-blind readers; the dashes do it in gray print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


def check_plot(path: Path) -> None:
    """An error before the work rather than after it."""
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"cannot plot to {path.name!r}; give a name that ends in {', '.join(SUFFIXES)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtra("eval", "a plot", error.name) from error


def save_figure(figure: Any, path: Path, dpi: int) -> None:
    """Write a figure, whole or not at all. Without dates and random names the same curves give the same file."""
    import matplotlib

    kind = path.suffix[1:].lower()
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "pixeldiff"}):
        figure.savefig(content, format=kind, dpi=dpi, metadata=dated)
    atomic_write(path, content.getvalue())
