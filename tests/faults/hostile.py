"""A server that means harm, or is broken: takes connections of loopback and answers each as a case says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


class Client:
    """One connection of the product's. `heard` is all that it has said."""

    def __init__(self, link: socket.socket, over: threading.Event) -> None:
        self.link, self.over, self.heard = link, over, bytearray()

    def take(self, size: int) -> bytes:
        """So many bytes; raises EOFError when the other side has gone."""
        taken = b""
        while len(taken) < size:
            if not (piece := self.link.recv(size - len(taken))):
                raise EOFError
            taken += piece
        self.heard += taken
        return taken

    def hear(self) -> bytes:
        """What is said next; b"" when the other side has gone."""
        piece = self.link.recv(1 << 16)
        self.heard += piece
        return piece

    def say(self, data: bytes) -> None:
        self.link.sendall(data)

    def flood(self, data: bytes) -> None:
        """Says it again and again, until the other side goes or the test ends."""
        while not self.over.is_set():
            self.say(data)

    def drip(self, data: bytes) -> None:
        """A byte every tenth of a second."""
        for octet in data:
            self.say(bytes([octet]))
            if self.over.wait(0.1):
                return

    def silence(self) -> None:
        """Listens and does not answer, until the other side goes."""
        while self.hear():
            pass

    def relay(self, port: int, mark: bytes, instead: Callable[[], bytes] | None = None) -> None:
        """A real server answers until `mark` has been said, which it is not told. With `instead`, that is the answer,
        and the server goes on."""
        with socket.create_connection(("127.0.0.1", port)) as server:
            threading.Thread(target=_pump, args=(server, self.link), daemon=True).start()
            while piece := self.hear():
                if mark not in piece:
                    server.sendall(piece)
                elif instead is None:
                    return
                else:
                    self.say(instead())
            raise EOFError


def _pump(server: socket.socket, link: socket.socket) -> None:
    with suppress(OSError):
        while piece := server.recv(1 << 16):
            link.sendall(piece)


Act = Callable[[Client], None]
"""What a server does with a connection; it is closed when this returns."""


@dataclass
class Hostile:
    port: int
    clients: list[Client] = field(default_factory=list)

    @property
    def heard(self) -> bytes:
        return b"".join(bytes(client.heard) for client in self.clients)


@contextmanager
def hostile(act: Act) -> Iterator[Hostile]:
    """Listens on loopback, each connection on a thread of its own. What a server has said comes before its end: a link
    that is closed with something unread is reset, and the other side may lose what is on its way."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Hostile(listener.getsockname()[1])

        def run(client: Client) -> None:
            with suppress(OSError), client.link:
                with suppress(EOFError):
                    act(client)
                client.link.shutdown(socket.SHUT_WR)
                client.silence()

        def accept() -> None:
            with suppress(OSError):
                while True:
                    client = Client(listener.accept()[0], over)
                    server.clients.append(client)
                    threading.Thread(target=run, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield server
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            for client in server.clients:
                client.link.close()
