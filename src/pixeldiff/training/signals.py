"""How a run is asked to stop."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Signals:
    """SIGTERM and SIGINT end the run after the step at hand; a second SIGINT (Ctrl-C) ends it at once.

    A second SIGTERM does not: torchrun passes its own on to processes that were sent one already.
    """

    def __enter__(self) -> Signals:
        self.seen: list[int] = []
        self.before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():  # elsewhere Python allows no handlers
            self.before = {n: signal.signal(n, self._note) for n in (signal.SIGTERM, signal.SIGINT)}
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.seen.append(number)
        if number == signal.SIGINT:
            signal.signal(number, self.before.get(number, signal.SIG_DFL))

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
