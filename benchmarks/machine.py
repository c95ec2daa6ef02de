"""What a figure was measured on: the commit, the CPU, the threads, and how busy the machine was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from pixeldiff.machine import describe


def machine(threads: int) -> dict[str, Any]:
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    return {"commit": found.stdout.strip(), "load": round(os.getloadavg()[0], 2), **describe(threads)}
