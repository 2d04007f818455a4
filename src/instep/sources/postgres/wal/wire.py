"""Messages of PostgreSQL's `pgoutput` plug-in, protocol version 1, as records."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as CutError
from typing import Final

from instep.errors import ReadError


class Unchanged:
    """A value that is stored out of line and was not touched: the log does not have it."""

    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = Unchanged()
Value = bytes | None | Unchanged
Row = tuple[Value, ...]
"""Values as the server's text, by place of the relation's columns."""


@dataclass(frozen=True)
class WalBegin:
    """`xid` is the 32 bits of the transaction's id that the log has."""

    xid: int


@dataclass(frozen=True)
class WalCommit:
    """`end`: the position behind the transaction."""

    end: int


@dataclass(frozen=True)
class WireColumn:
    """`key`: part of the replica identity. `kind`: the type's oid."""

    name: str
    key: bool
    kind: int


@dataclass(frozen=True)
class WalRelation:
    """Relation of the changes after this message; sent again when the table was altered."""

    oid: int
    schema: str
    name: str
    columns: tuple[WireColumn, ...]


@dataclass(frozen=True)
class WalChange:
    """An insert has a `new` row only, a delete an `old` one. An update has an `old` one if its key changed, or if the
    replica identity is the whole row."""

    oid: int
    old: Row | None = field(default=None, repr=False)
    new: Row | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Truncate:
    oids: tuple[int, ...]


@dataclass(frozen=True)
class Note:
    """A logical message."""

    prefix: str
    content: bytes = field(repr=False)


Message = WalBegin | WalCommit | WalRelation | WalChange | Truncate | Note
_BEGIN, _COMMIT, _OID, _COUNT = Struct(">qqI"), Struct(">Bqqq"), Struct(">I"), Struct(">H")
_COLUMN, _LENGTH, _TRUNCATE, _MESSAGE = Struct(">Ii"), Struct(">I"), Struct(">IB"), Struct(">Bq")


def decode(data: bytes) -> Message | None:
    """Return the message, None for one that says nothing of rows (origin, type); ReadError for one that is not known,
    or that ends too early."""
    try:
        return _decode(data)
    except (CutError, IndexError, ValueError):
        raise ReadError(
            f"a message of the log of the kind {data[:1]!r} ends too early, after {len(data):,} bytes",
            hint="sync again; if it stays, report this with the server's version",
        ) from None


def _decode(data: bytes) -> Message | None:
    match data[:1]:
        case b"I" | b"U" | b"D":
            return _change(data)
        case b"B":
            return WalBegin(_BEGIN.unpack_from(data, 1)[2])
        case b"C":
            return WalCommit(_COMMIT.unpack_from(data, 1)[2])
        case b"R":
            return _relation(data)
        case b"T":
            count, _ = _TRUNCATE.unpack_from(data, 1)
            return Truncate(tuple(_OID.unpack_from(data, 6 + 4 * at)[0] for at in range(count)))
        case b"M":
            prefix, at = _name(data, 1 + _MESSAGE.size)
            (length,) = _LENGTH.unpack_from(data, at)
            return Note(prefix, data[at + 4 : at + 4 + length])
        case b"O" | b"Y":
            return None
    raise ReadError(
        f"the log has a message of the kind {data[:1]!r}, which is not known",
        hint="report this with the server's version",
    )


def _relation(data: bytes) -> WalRelation:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _name(data, 5)
    name, at = _name(data, at)
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        key = bool(data[at] & 1)
        column, at = _name(data, at + 1)
        kind, _ = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(WireColumn(column, key, kind))
    return WalRelation(oid, schema, name, tuple(columns))


def _name(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _change(data: bytes) -> WalChange:
    """Return one row at least."""
    (oid,) = _OID.unpack_from(data, 1)
    rows: dict[int, Row] = {}
    at = 5
    while at < len(data) or not rows:
        what = data[at]
        rows[what], at = _row(data, at + 1)
    return WalChange(oid, rows.get(ord("K")) or rows.get(ord("O")), rows.get(ord("N")))


def _row(data: bytes, at: int) -> tuple[Row, int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        what = data[at]
        at += 1
        if what == ord("n"):
            values.append(None)
        elif what == ord("u"):
            values.append(UNCHANGED)
        else:
            (length,) = _LENGTH.unpack_from(data, at)
            at += 4 + length
            if at > len(data):
                raise IndexError
            values.append(data[at - length : at])
    return tuple(values), at
