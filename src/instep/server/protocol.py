"""HTTP connections with an end to waiting: a request's head comes in time, or the connection is closed."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

IDLE_SECONDS = 5
"""Seconds until the first byte of the next request on a connection."""
HEAD_SECONDS = 10.0
"""Seconds from when a connection is free to the end of a request's headers. Bodies have a limit of their own:
`guard.BODY_TIMEOUT`."""


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, whose only timer each byte of a head puts off."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timer once, unless a request is under way."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _unwatch(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None
