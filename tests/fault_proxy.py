"""A network that does what networks do: stands between a client and a server, and delays, cuts or forgets."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

PIECE = 1 << 16
How = Literal["reset", "silence"]


@dataclass(frozen=True)
class Fault:
    """What becomes of connections.

    The trigger: the client has said `mark` for the `at`th time (counted over all connections; b"": at once), then the
    server has sent `down` bytes more on that connection, or the client `up` bytes. What would be the next byte is lost,
    and so is all after it: `reset` tells both ends, `silence` tells nobody and leaves the connection open. It strikes
    `times` connections, 0: every one. With `unheard`, the server never gets what holds the mark.

    Traffic: each piece of `slice` bytes (0: as it comes) waits `latency` and up to `jitter` seconds; `bandwidth` is
    bytes a second (0: no bound).
    """

    how: How = "reset"
    mark: bytes = b""
    at: int = 1
    down: int = 0
    up: int | None = None
    unheard: bool = False
    times: int = 1
    latency: float = 0
    jitter: float = 0
    bandwidth: int = 0
    slice: int = 0


CALM = Fault(times=-1)
"""Nothing happens: all is passed on."""


class Proxy:
    """Listens on `port` of the loopback. `set` makes the next fault and forgets what was counted; `strikes` is how many
    connections it has struck."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.set(CALM)
        self._random = random.Random(7)
        self._loop = asyncio.new_event_loop()
        self._links: set[_Link] = set()
        listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(listener.getsockname()[1])
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()

    def set(self, fault: Fault) -> None:
        self.fault, self.seen, self.strikes = fault, 0, 0

    def hang_up(self) -> None:
        """Every connection there is ends without a word of farewell."""
        self._do(self._end())

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(300)
        self._loop.close()

    def may_strike(self) -> bool:
        return not self.fault.times or self.strikes < self.fault.times

    def pause(self, size: int) -> float:
        """Seconds that a piece takes."""
        fault = self.fault
        lost = fault.latency + fault.jitter * self._random.random()
        return lost + (size / fault.bandwidth if fault.bandwidth else 0)

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(300)

    def _run(self, listener: socket.socket) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, sock=listener))
        self._loop.run_forever()
        server.close()
        self._loop.run_until_complete(server.wait_closed())

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection("127.0.0.1", self.server_port)
        except OSError:
            _reset(writer)
            return
        link = _Link(self, (reader, writer), server)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    async def _end(self) -> None:
        for link in list(self._links):
            link.reset()
        while self._links:
            await asyncio.sleep(0.005)


End = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection of a client and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: End, server: End) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.fault, self.tail = proxy.fault, b""
        self.left: int | None = None  # what the server may still send; None: the mark was not said yet
        self.sent = 0
        self.mute = False
        self.over = asyncio.Event()

    async def run(self) -> None:
        ways = [asyncio.ensure_future(self._up()), asyncio.ensure_future(self._down())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            if self.mute:
                await self.over.wait()
        finally:
            for way in ways:
                way.cancel()
            for _, writer in (self.client, self.server):
                writer.close()
            await asyncio.wait(ways)

    def reset(self) -> None:
        for _, writer in (self.client, self.server):
            _reset(writer)
        self.over.set()

    async def _up(self) -> None:
        with suppress(OSError):
            while data := await self.client[0].read(PIECE):
                if self._look() and self.left is None and self._marked(data):
                    self.left = self.fault.down
                    if self.fault.unheard and self._strike():
                        return
                self.sent += len(data)
                over = self.left is not None and self.fault.up is not None and self.sent > self.fault.up
                if over and self._look() and self._strike():
                    return
                if not self.mute:
                    await self._pass(self.server[1], data)

    async def _down(self) -> None:
        with suppress(OSError):
            while data := await self.server[0].read(PIECE):
                if self._look() and not self.fault.mark and self.left is None:
                    self.left = self.fault.down
                if self.left is not None and self.fault.up is None and self._look():
                    kept = data[: self.left]
                    self.left -= len(kept)
                    if len(kept) < len(data):
                        await self._pass(self.client[1], kept)
                        if self._strike():
                            return
                        data = data[len(kept) :]
                if not self.mute:
                    await self._pass(self.client[1], data)

    def _look(self) -> bool:
        """Whether there is something to look for; a new fault begins anew."""
        if self.proxy.fault is not self.fault:
            self.fault, self.left, self.sent, self.tail = self.proxy.fault, None, 0, b""
        if self.fault.up is not None and not self.fault.mark and self.left is None:
            self.left = 0
        return not self.mute and self.proxy.may_strike()

    def _marked(self, data: bytes) -> bool:
        mark = self.fault.mark
        if not mark:
            return False
        text, keep = self.tail + data, len(mark) - 1
        self.tail = text[-keep:] if keep else b""
        self.proxy.seen += text.count(mark)
        return mark in text and self.proxy.seen >= self.fault.at

    def _strike(self) -> bool:
        if not self.proxy.may_strike():
            return False
        self.proxy.strikes += 1
        if self.fault.how == "silence":
            self.mute = True
        else:
            self.reset()
        return True

    async def _pass(self, to: asyncio.StreamWriter, data: bytes) -> None:
        size = self.fault.slice or len(data) or 1
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            if pause := self.proxy.pause(len(piece)):
                await asyncio.sleep(pause)
            to.write(piece)
            await to.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """The other end is told that the connection was reset."""
    open_socket = writer.get_extra_info("socket")
    with suppress(OSError):
        open_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@contextmanager
def before(server_port: int) -> Iterator[Proxy]:
    """A proxy before a server of this machine, ended with its connections."""
    made = Proxy(server_port)
    try:
        yield made
    finally:
        made.close()
