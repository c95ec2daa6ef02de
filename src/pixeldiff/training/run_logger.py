"""The log of a run: metrics.jsonl, TensorBoard, preview images and a progress bar.

metrics.jsonl has one JSON object per line, each with `step` and `seconds` (of training, over all resumed parts).
None of this stops a run: if a file cannot be written, a warning is printed and training continues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from pixeldiff.errors import OutputError
from pixeldiff.files import atomic_write


class RunLogger:
    """Log one run in the folder `out`; lines later than `step` (of a killed run) are dropped."""

    def __init__(self, out: Path, step: int, steps: int) -> None:
        self.out, self.step, self.seconds = out, step, 0.0
        self.console = Console(stderr=True)
        self._survive(lambda: self._drop_after(step))
        self._board: SummaryWriter | None = None
        self._survive(lambda: self._open_board(step))
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            speed_estimate_period=3600,  # seconds; a step may take longer than rich's 30
        )
        self._bar = self._progress.add_task("training", total=steps, completed=step)
        self._progress.start()

    @property
    def path(self) -> Path:
        return self.out / "metrics.jsonl"

    def advance(self, step: int, seconds: float) -> None:
        """Note that a step is done."""
        self.step, self.seconds = step, seconds
        self._progress.update(self._bar, completed=step)

    def record(self, **values: Any) -> None:
        """Record values; numbers also go to TensorBoard and the bar."""
        line = {"step": self.step, "seconds": round(self.seconds, 1), **values}
        self._survive(lambda: self._append(json.dumps(line)))
        for name, value in values.items():
            if isinstance(value, float):
                self._show("add_scalar", name, value, self.step)
        shown = "  ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        )
        self._progress.update(self._bar, description=shown[:60])
        if not self.console.is_terminal:
            self.console.print(f"step {self.step}  {self.seconds:.0f} s  {shown}", soft_wrap=True, highlight=False)

    def warn(self, message: str) -> None:
        self.console.print(f"pixeldiff: {message}", style="yellow", soft_wrap=True, highlight=False, markup=False)
        self._survive(lambda: self._append(json.dumps({"step": self.step, "warning": message})), silent=True)

    def image(self, image: np.ndarray) -> None:
        """Save a preview, uint8 (H, W, 3), as previews/<step>.png and in TensorBoard."""

        def write() -> None:
            folder = self.out / "previews"
            folder.mkdir(exist_ok=True)
            Image.fromarray(image).save(folder / f"{self.step:07d}.png")

        self._survive(write)
        self._show("add_image", "preview", image, self.step, dataformats="HWC")

    def close(self) -> None:
        self._progress.stop()
        self._show("close")

    def _open_board(self, step: int) -> None:
        self._board = SummaryWriter(str(self.out / "tensorboard"), purge_step=step + 1)

    def _show(self, what: str, *values: Any, **options: Any) -> None:
        """Write to TensorBoard. Its writer never recovers from an error, so the first error is its last."""
        if self._board is None:
            return
        try:
            getattr(self._board, what)(*values, **options)
        except OSError as error:
            self._board = None
            self.warn(f"TensorBoard log ended: {error}")

    def _append(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(line + "\n")

    def _survive(self, write: Any, silent: bool = False) -> None:
        try:
            write()
        except (OSError, OutputError) as error:
            if not silent:
                self.warn(f"not recorded: {error}")

    def _drop_after(self, step: int) -> None:
        if not self.path.exists():
            return
        lines = []
        for line in self.path.read_text(errors="replace").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    lines.append(line + "\n")
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # half a line of a killed run
        atomic_write(self.path, "".join(lines).encode())
