"""What a hostile PostgreSQL says: enough of its protocol, version 3, to be believed up to there."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable

from faults.hostile import Act, Client

GARBAGE = bytes(range(256)) * 4
ESCAPES = "\x1b[2J\x1b]0;owned\x07 first\r\nerror: second \u202egnp.exe\u2066 {password} \x9b31m"
"""Of an error message: clears the screen, begins new lines, turns the text round and tells the password."""
MOVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
ENDLESS = 1_000_000_000
_REQUESTS = (80877103, 80877104)


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def error(text: str, sqlstate: str) -> bytes:
    return message(b"E", b"SFATAL\0VFATAL\0C" + sqlstate.encode() + b"\0M" + text.encode() + b"\0\0")


def started(client: Client, tls: bytes = b"N") -> None:
    """Has heard the start of a session; `tls` is said to those who ask for encryption."""
    while True:
        body = client.take(struct.unpack("!I", client.take(4))[0] - 4)
        if struct.unpack("!I", body[:4])[0] not in _REQUESTS:
            return
        client.say(tls)


def taken(client: Client) -> bytes:
    """The next message."""
    return client.take(struct.unpack("!xI", client.take(5))[0] - 4)


def asked(client: Client, method: int, more: bytes = b"") -> bytes:
    """The client's answer to a question of the login."""
    client.say(message(b"R", struct.pack("!I", method) + more))
    return taken(client)


def scram(iterations: int) -> Act:
    """A login by SCRAM whose signature is wrong."""

    def act(client: Client) -> None:
        started(client)
        nonce = asked(client, 10, b"SCRAM-SHA-256\0\0").rpartition(b"r=")[2]
        salt = base64.b64encode(b"salt of no account")
        asked(client, 11, b"r=%sours,s=%s,i=%d" % (nonce, salt, iterations))
        client.say(message(b"R", struct.pack("!I", 12) + b"v=" + base64.b64encode(b"?" * 32)))
        client.silence()

    return act


def asks(method: int, more: bytes = b"") -> Act:
    """A login that asks for the password in this form, and lets nobody in."""

    def act(client: Client) -> None:
        started(client)
        asked(client, method, more)
        client.say(error('password authentication failed for user "u"', "28P01"))

    return act


def at_start(say: bytes, tls: bytes = b"N", then: Act = Client.silence) -> Act:
    """What is said to the first word of a session."""

    def act(client: Client) -> None:
        started(client, tls)
        client.say(say)
        then(client)

    return act


def at(mark: bytes, then: Act) -> Callable[[int], Act]:
    """A real server on this port until the client says `mark`."""

    def behind(port: int) -> Act:
        def act(client: Client) -> None:
            client.relay(port, mark)
            then(client)

        return act

    return behind


def answers(mark: bytes, *data: bytes) -> Callable[[int], Act]:
    """A real server on this port, but for `mark`: that is answered so, and the server goes on."""
    return lambda port: lambda client: client.relay(port, mark, lambda: b"".join(data))


def says(*data: bytes, then: Act = Client.silence) -> Act:
    def act(client: Client) -> None:
        client.say(b"".join(data))
        then(client)

    return act


def cut(client: Client) -> None:
    """The end."""


HUGE = struct.pack("!I", 1 << 30)
CATALOG = b"SELECT rows::int8, pages::int8"
_FIELDS = (("rows", 20), ("pages", 20), ("body", 25), ("md5", 25))
FIELDS = message(
    b"T",
    struct.pack("!h", len(_FIELDS))
    + b"".join(name.encode() + struct.pack("!xIhIhih", 0, 0, oid, -1, -1, 0) for name, oid in _FIELDS),
)
"""What the rows of the catalog are like."""


def values(*given: bytes) -> bytes:
    return struct.pack("!h", len(given)) + b"".join(struct.pack("!i", len(v)) + v for v in given)


def row(*texts: str) -> bytes:
    return message(b"D", values(*(text.encode() for text in texts)))


def table(column: str, name: str = "t") -> bytes:
    """The catalog's row of a table with one column."""
    columns = [[1, column, "integer", None, "b", 0, False, 1, "", "", None, None, True]]
    return row("1", "1", json.dumps([16384, "public", name, "r", True, True, None, columns]), "digest")


def ended(tag: str) -> bytes:
    return message(b"C", tag.encode() + b"\0") + message(b"Z", b"T")


ROWS = b'COPY (SELECT "id"'
COPYING = message(b"1") + message(b"2") + message(b"n") + message(b"H", struct.pack("!bhhh", 1, 2, 1, 1))
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)


def first(*given: bytes) -> bytes:
    """The first row of a binary COPY."""
    return message(b"d", _HEADER + values(*given))


ONE = (1).to_bytes(4, "big")
ROW = message(b"d", values(ONE, ONE))
LAST = message(b"d", b"\xff\xff") + message(b"c")
