"""What a hostile MySQL says: enough of its protocol to be believed up to there."""

from __future__ import annotations

import ssl
import struct
from collections.abc import Callable

from faults.hostile import Act, Client

TLS = 0x800
CAPABILITIES = 0x00BFF7DF & ~TLS
FILE = "/etc/hostname"


def packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def error(number: int, text: str, code: int = 1105) -> bytes:
    return packet(number, b"\xff" + struct.pack("<H", code) + b"#HY000" + text.encode())


def greeting(plugin: bytes = b"mysql_native_password", version: bytes = b"8.4.0", tls: int = 0) -> bytes:
    low, high = struct.pack("<H", CAPABILITIES & 0xFFFF | tls), struct.pack("<H", CAPABILITIES >> 16)
    return packet(
        0,
        b"\x0a" + version + b"\0" + struct.pack("<I", 7) + b"12345678\0" + low + b"\x2d\x02\0" + high
        + b"\x15" + bytes(10) + b"901234567890\0" + plugin + b"\0",
    )  # fmt: skip


def taken(client: Client) -> tuple[int, bytes]:
    """The next packet: (its number, its body)."""
    head = client.take(4)
    return head[3], client.take(int.from_bytes(head[:3], "little"))


OK = b"\0\0\0\2\0\0\0"
EOF = b"\xfe\0\0\2\0"


def switching(plugin: bytes, more: bytes = b"", tls: ssl.SSLContext | None = None) -> Act:
    """A login that asks for another proof than the first one, and lets nobody in."""

    def act(client: Client) -> None:
        client.say(greeting(tls=TLS if tls else 0))
        if tls:
            taken(client)
            client.link = tls.wrap_socket(client.link, server_side=True)
        number, _ = taken(client)
        client.say(packet(number + 1, b"\xfe" + plugin + b"\0" + more))
        number, _ = taken(client)
        client.say(error(number + 1, "Access denied", 1045))

    return act


def let_in(answer: Callable[[Client, int, bytes], None]) -> Act:
    """A login that everybody passes; then `answer` says something to each statement."""

    def act(client: Client) -> None:
        client.say(greeting())
        number, _ = taken(client)
        client.say(packet(number + 1, OK))
        while True:
            number, body = taken(client)
            answer(client, number + 1, body)

    return act


def at(mark: bytes, then: Callable[[Client, int], None]) -> Act:
    """Says yes to every statement up to the one that holds `mark`."""

    def answer(client: Client, number: int, body: bytes) -> None:
        if mark in body:
            then(client, number)
        elif b"SELECT VERSION()" in body:
            names = header(number, "version", "account", "comment")
            client.say(names + row(number + 5, "8.4.0", "u@%", "") + packet(number + 6, EOF))
        else:
            client.say(packet(number, OK))

    return let_in(answer)


def header(number: int, *names: str) -> bytes:
    """What the rows of texts are like."""
    parts = [packet(number, bytes([len(names)]))]
    for at_, name in enumerate(names):
        texts = (b"def", b"", b"", b"", name.encode(), b"")
        told = b"".join(bytes([len(t)]) + t for t in texts)
        parts.append(packet(number + 1 + at_, told + b"\x0c\x2d\0" + struct.pack("<IBHB", 1024, 253, 0, 0) + b"\0\0"))
    return b"".join([*parts, packet(number + 1 + len(names), EOF)])


def row(number: int, *values: str) -> bytes:
    return packet(number % 256, b"".join(bytes([len(v)]) + v.encode() for v in values))
