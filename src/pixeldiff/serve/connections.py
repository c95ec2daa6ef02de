"""Connections: deadlines for requests and responses, and a bound on what is read after a response.

uvicorn limits only the pause between two requests, so a client that sends a byte now and then would hold a connection
for ever. The rest of a refused upload is read and dropped, because a client that is still sending does not read the
response of a closed connection. A response waits in memory until the client takes it, so that has a deadline, too.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0
BODY_SECONDS = 40.0  # above app.UPLOAD_SECONDS, whose error says more
RESPONSE_SECONDS = 120.0  # to take a response that does not fit into the buffers of the connection
REST_BYTES = 256 * 2**20  # read and dropped after a response
_LATE = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Connection(H11Protocol):
    """uvicorn's connection, with a deadline for each stage of a request."""

    _stage: Any = None  # h11's state of the client
    _deadline: asyncio.TimerHandle | None = None
    _response_deadline: asyncio.TimerHandle | None = None
    _rest = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY:
            self._rest += len(data)
            if self._rest > REST_BYTES:
                self.transport.close()
                return
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._deadline, self._response_deadline):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._response_deadline = self.loop.call_later(RESPONSE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._response_deadline is not None:
            self._response_deadline.cancel()

    def _watch(self) -> None:
        if self.conn.their_state is self._stage:
            return
        self._stage = self.conn.their_state
        self._rest = 0
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {h11.IDLE: HEADER_SECONDS, h11.SEND_BODY: BODY_SECONDS}.get(self._stage)
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._stage is h11.IDLE:
            self.transport.write(_LATE)
        self.transport.close()


def configured(app: Any) -> uvicorn.Config:
    """Configure uvicorn for the application."""
    # Headers are read up to this size, so that longer ones get a response instead of a closed connection.
    return uvicorn.Config(
        app, http=Connection, h11_max_incomplete_event_size=2**19, log_level="error", timeout_keep_alive=30
    )
