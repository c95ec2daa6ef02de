"""Stop a run on a signal, after the step at hand."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Signals:
    """Note SIGTERM and SIGINT, which end the run after the current step; a second SIGINT (Ctrl-C) ends it at once.

    A second SIGTERM does not end it at once: torchrun forwards its own to processes that already got one.
    """

    def __enter__(self) -> Signals:
        self.received: list[int] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self.before = {n: signal.signal(n, self._note) for n in (signal.SIGTERM, signal.SIGINT)}
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.received.append(number)
        if number == signal.SIGINT:
            signal.signal(number, self.before.get(number, signal.SIG_DFL))

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
