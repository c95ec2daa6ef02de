"""Threads: how many an image gets, and a map over many items whose results come in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def split_threads(threads: int, images: int) -> tuple[int, int]:
    """Return (threads per image, images at once). One image per thread gives the most images per second; several
    threads per image give the shortest wait for a single one."""
    streams = max(1, min(threads, images))
    return threads // streams, streams


def ordered_map(
    executor: Executor, function: Callable[[_Item], _Result], items: Iterable[_Item], ahead: int
) -> Iterator[_Result]:
    """Yield function(item) of each item, in order, while the executor works on up to `ahead` items.

    Unlike `Executor.map` this holds no more than `ahead` results, and calls that have not started are canceled when the
    caller stops or a call raises.
    """
    pending: deque[Future[_Result]] = deque()
    try:
        for item in items:
            pending.append(executor.submit(function, item))
            if len(pending) >= ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
