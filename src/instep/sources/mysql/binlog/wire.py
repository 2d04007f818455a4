"""Events of the row-based binary log of MySQL and MariaDB as records. Values of rows are left as bytes."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from struct import Struct
from struct import error as CutError
from typing import Final

from instep.errors import ReadError

_HEADER, _ROTATE, _QUERY, _XA = Struct("<IBIIIH"), Struct("<Q"), Struct("<IIBHH"), Struct("<BiII")
_MARIADB_GTID, _GTID = Struct("<QIB"), Struct("<B16sQ")
HEADER: Final = 19
CHECKSUM: Final = 4
ROTATE, FORMAT, TABLE_MAP, QUERY_COMPRESSED = 4, 15, 19, 165
INSERTS = frozenset({23, 30, 166, 169})
UPDATES = frozenset({24, 31, 39, 167, 170})
DELETES = frozenset({25, 32, 168, 171})
_SECOND = frozenset({30, 31, 32, 39})
_COMPRESSED = frozenset(range(166, 172))
_PARTIAL = 39
_NO_ROWS = frozenset({1, 2, 3, 5, 13, 14, 27, 28, 29, 34, 35, 36, 37, 41, 160, 161, 163, 164})
_IGNORABLE = 0x80
"""Marks events that a reader which does not know them may pass over."""
_NAMES = 4
_SQL_MODE, _CHARSET, _CATALOG = 1, 4, 6
_SIZES = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6}
"""Of a statement's variables, by their codes."""
_NO_PAD = 1024
"""MariaDB's collations that do not pad have the numbers of the others from here on."""


@dataclass(frozen=True)
class Header:
    """The header of an event."""

    when: int
    """Time in seconds since 1970."""
    kind: int
    size: int
    end: int
    """The position behind the event, 0 for one that is not in the file."""


@dataclass(frozen=True)
class Rotate:
    file: str
    at: int


@dataclass(frozen=True)
class Format:
    """Begins a file."""

    summed: bool
    """The events behind it end in a checksum."""


@dataclass(frozen=True)
class BinlogStatement:
    """`BEGIN`, DDL, or a change that was logged as what somebody wrote."""

    database: str
    text: str
    mode: int | None = None
    """The sql_mode of the session, None if the log does not tell."""
    other: str = ""
    """Kind of text if the server wrote it itself, "" if that is the same."""


@dataclass(frozen=True)
class TableMap:
    """Table of the rows that follow. `kinds` and `metas` by column; `names` if the server logs them, else ()."""

    number: int
    ref: tuple[str, str]
    kinds: bytes
    metas: tuple[int, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowImages:
    """Images of rows: an update has two each."""

    number: int
    change: str
    width: int
    present: tuple[bytes, ...]
    """Bitmaps of the columns that they have, one an image."""
    data: bytes = field(repr=False)
    partial: bool = False


@dataclass(frozen=True)
class BinlogBegin:
    """A transaction's name; `alone`: it is the next event and nothing else."""

    gtid: str
    alone: bool = False


@dataclass(frozen=True)
class End:
    """End of a transaction; a `prepared` one waits for somebody's decision, under this name."""

    prepared: str = ""


@dataclass(frozen=True)
class UnreadableEvent:
    """An event after which nothing can be said of the rows."""

    why: str


Event = Rotate | Format | BinlogStatement | TableMap | RowImages | BinlogBegin | End | UnreadableEvent


def header(data: bytes) -> Header:
    when, kind, _, size, end, _ = _HEADER.unpack_from(data)
    return Header(when, kind, size, end)


def checked(data: bytes, summed: bool) -> bytes:
    """Return the event without its checksum; ReadError if that is another one."""
    if not summed:
        return data
    body, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
    if zlib.crc32(body).to_bytes(CHECKSUM, "little") != checksum:
        raise ReadError(
            "an event of the binary log has another checksum than it says",
            hint="sync again; if it stays, the server's binary log is damaged (mysqlbinlog --verify-binlog-checksum)",
        )
    return body


def decode(data: bytes) -> Event | None:
    """Return the event (without a checksum), None for one that says nothing of rows."""
    kind = data[4]
    try:
        return _decode(kind, data)
    except (CutError, IndexError, ValueError, zlib.error):
        raise ReadError(
            f"an event of the binary log of the kind {kind} cannot be read ({len(data):,} bytes)",
            hint="sync again; if it stays, report this with the server's version",
        ) from None


def _decode(kind: int, data: bytes) -> Event | None:
    if kind in INSERTS or kind in UPDATES or kind in DELETES:
        return _rows(kind, data)
    decode_kind = _KINDS.get(kind)
    if decode_kind is not None:
        return decode_kind(data)
    if kind in _LOST:
        return UnreadableEvent(_LOST[kind])
    flags = _HEADER.unpack_from(data)[-1]
    if kind in _NO_ROWS or flags & _IGNORABLE:
        return None
    return UnreadableEvent(f"it has events of the kind {kind}, of which nothing is known: report the server's version")


def _gtid(data: bytes) -> BinlogBegin:
    _, source, number = _GTID.unpack_from(data, HEADER)
    return BinlogBegin(f"{source.hex()}:{number}")


def _tagged(data: bytes) -> BinlogBegin:
    """Decode fields in order, each behind its number, numbers as `_packed_number` has them: flags, the source's 16
    bytes, the number with its sign in the lowest bit, the tag."""
    at = HEADER
    for _ in range(3):  # the format's version, the size, the last field that has to be known
        _, at = _packedcounted_number(data, at)
    values: list[int] = []
    for number, size in ((0, 1), (1, 16), (2, 1), (3, 1)):
        field_number, at = _packedcounted_number(data, at)
        if field_number != number:
            raise ValueError
        for _ in range(size):
            value, at = _packedcounted_number(data, at)
            values.append(value)
    tag = data[at : at + values[-1]].decode()
    return BinlogBegin(f"{bytes(values[1:17]).hex()}:{tag}:{values[17] >> 1}")


def _packedcounted_number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number whose first byte ends in as many ones as bytes follow, and where it ends."""
    size = (~data[at] & data[at] + 1).bit_length()
    if size > 8:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(data[at : at + size], "little") >> size, at + size


def _mariadb_gtid(data: bytes) -> BinlogBegin:
    number, domain, flags = _MARIADB_GTID.unpack_from(data, HEADER)
    return BinlogBegin(f"{domain}-{number}", alone=bool(flags & 1))


def _rotate(data: bytes) -> Rotate:
    """Decode the file's name and position. Nothing says whether a connection's first event has a checksum."""
    body, checksum = data[:-CHECKSUM], data[-CHECKSUM:]
    if zlib.crc32(body).to_bytes(CHECKSUM, "little") == checksum:
        data = body
    return Rotate(data[HEADER + 8 :].decode(), _ROTATE.unpack_from(data, HEADER)[0])


def _prepared(data: bytes) -> End:
    at_once, form, first, second = _XA.unpack_from(data, HEADER)
    at = HEADER + _XA.size
    name = data[at : at + first + second]
    return End("" if at_once else f"X'{name[:first].hex()}',X'{name[first:].hex()}',{form}".upper())


def _statement(data: bytes, *, compressed: bool = False) -> BinlogStatement:
    _, _, length, _, size = _QUERY.unpack_from(data, HEADER)
    variables = HEADER + _QUERY.size
    at = variables + size
    raw = data[at + length + 1 :]
    if compressed:
        raw = _unpacked(raw)
    mode, charset = _session(data[variables:at])
    text, plain = raw.decode(_codec(charset), errors="replace"), raw.decode(errors="replace")
    other = "" if plain == text or "\ufffd" in plain else plain
    return BinlogStatement(data[at : at + length].decode(errors="replace"), text, mode, other)


def _session(data: bytes) -> tuple[int | None, int]:
    """Return sql_mode and character_set_client of the session (0 if absent) from an event's variables, which are in
    this order: flags, the mode, the catalog, steps of numbers, character sets. Anything may follow."""
    mode, at = None, 0
    while at < len(data):
        code, at = data[at], at + 1
        size = data[at] + 1 if code == _CATALOG and at < len(data) else _SIZES.get(code)
        if size is None or at + size > len(data):
            break
        if code == _CHARSET:
            return mode, int.from_bytes(data[at : at + 2], "little")
        mode = int.from_bytes(data[at : at + size], "little") if code == _SQL_MODE else mode
        at += size
    return mode, 0


@cache
def _codec(charset: int) -> str:
    """Return the codec of a collation by its number.

    Unknown ones are of UTF-8, or have no letters that contain a backslash.
    """
    from pymysql.charset import charset_by_id

    if _NO_PAD <= charset < 2 * _NO_PAD:
        charset -= _NO_PAD
    try:
        return codecs.lookup(charset_by_id(charset).encoding).name
    except LookupError:
        return "utf-8"


def _unpacked(data: bytes) -> bytes:
    """Decompress MariaDB's own format: a byte of marks, the length, zlib."""
    if data[0] & 0x70:
        raise ValueError
    width = data[0] & 7
    unpacked = zlib.decompress(data[1 + width :])
    if len(unpacked) != int.from_bytes(data[1 : 1 + width], "big"):
        raise ValueError
    return unpacked


def counted_number(data: bytes, at: int) -> tuple[int, int]:
    """Return a length-encoded number, and where it ends."""
    first = data[at]
    width = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first, 0)
    if not width:
        return first, at + 1
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width


def _rows(kind: int, data: bytes) -> RowImages:
    number = int.from_bytes(data[HEADER : HEADER + 6], "little")
    at = HEADER + 8
    if kind in _SECOND:
        at += int.from_bytes(data[at : at + 2], "little")
    elif kind in (169, 170, 171):
        at += 2
    width, at = counted_number(data, at)
    size = (width + 7) // 8
    images = 2 if kind in UPDATES else 1
    present = tuple(data[at + n * size : at + (n + 1) * size] for n in range(images))
    rows = data[at + images * size :]
    if kind in _COMPRESSED:
        rows = _unpacked(rows)
    change = "insert" if kind in INSERTS else "update" if kind in UPDATES else "delete"
    return RowImages(number, change, width, present, rows, kind == _PARTIAL)


def _mapped(data: bytes) -> TableMap:
    number = int.from_bytes(data[HEADER : HEADER + 6], "little")
    at = HEADER + 8
    texts = []
    for _ in range(2):
        length = data[at]
        texts.append(data[at + 1 : at + 1 + length].decode())
        at += length + 2
    width, at = counted_number(data, at)
    kinds = data[at : at + width]
    length, at = counted_number(data, at + width)
    metas = _metas(kinds, data[at : at + length])
    at += length + (width + 7) // 8
    return TableMap(number, (texts[0], texts[1]), kinds, metas, _names(data, at))


WIDE = frozenset({15, 16, 246, 247, 248, 253, 254, 141})
"""Kinds whose metadata has two bytes: varchar, bit, decimal, enum, set, char, MariaDB's compressed varchar."""
_NARROW = frozenset({4, 5, 17, 18, 19, 140, 242, 245, 249, 250, 251, 252, 255})


def _metas(kinds: bytes, data: bytes) -> tuple[int, ...]:
    """Return each column's metadata, a little-endian number of 0 to 2 bytes."""
    metas, at = [], 0
    for kind in kinds:
        size = 2 if kind in WIDE else 1 if kind in _NARROW else 0
        metas.append(int.from_bytes(data[at : at + size], "little"))
        at += size
    if at != len(data):
        raise ValueError
    return tuple(metas)


def _names(data: bytes, at: int) -> tuple[str, ...]:
    """Return the columns' names from the optional part (`binlog_row_metadata = FULL`)."""
    while at < len(data):
        what = data[at]
        length, at = counted_number(data, at + 1)
        if what == _NAMES:
            return _listed(data[at : at + length])
        at += length
    return ()


def _listed(data: bytes) -> tuple[str, ...]:
    names, at = [], 0
    while at < len(data):
        length, at = counted_number(data, at)
        names.append(data[at : at + length].decode())
        at += length
    return tuple(names)


_KINDS: dict[int, Callable[[bytes], Event]] = {
    2: _statement,
    ROTATE: _rotate,
    FORMAT: lambda data: Format(data[-CHECKSUM - 1] == 1),
    16: lambda data: End(),
    TABLE_MAP: _mapped,
    33: _gtid,
    38: _prepared,
    42: _tagged,
    162: _mariadb_gtid,
    QUERY_COMPRESSED: lambda data: _statement(data, compressed=True),
}
_LOST = {
    26: "the server says that it may have lost changes (an incident)",
    **dict.fromkeys((6, 12, 17, 18), "rows were loaded by a statement that was logged in their place"),
}
