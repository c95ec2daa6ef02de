"""Networks on a CPU without torch: edges.py runs them, formats.py encodes maps, folder.py does many pictures."""

import os


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
