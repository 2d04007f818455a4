"""Messages of PostgreSQL's `pgoutput` plug-in, protocol version 1, as records.

From messages of the log to the keys of the rows that changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from struct import error as CutError
from typing import Final

from instep.errors import ReadError
from instep.sources.keyset import KeySet
from instep.sources.log import ChangedKeys, Key


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
    """The begin of a transaction."""

    xid: int
    """The 32 bits of the transaction's id that the log has."""
    commit: int = 0
    """The position of its commit."""


@dataclass(frozen=True)
class WalCommit:
    """The commit of a transaction."""

    end: int
    """The position behind the transaction."""


@dataclass(frozen=True)
class WireColumn:
    """A column of a relation."""

    name: str
    key: bool
    """Part of the replica identity."""
    kind: int
    """The type's oid."""


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
            commit, _, xid = _BEGIN.unpack_from(data, 1)
            return WalBegin(xid, commit)
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


_WRAP = 1 << 32
MARK = "instep"
"""Begins the logical messages that syncs leave in the log."""


@dataclass(frozen=True)
class VisibleTransactions:
    """Transactions that a snapshot shows: all below `first`, none from `next` on, and none of `running` in between."""

    first: int
    next: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> VisibleTransactions:
        """Parse the text of `pg_current_snapshot()`."""
        first, following, running = text.split(":")
        return cls(int(first), int(following), frozenset(int(x) for x in running.split(",") if x))

    def shows(self, xid: int) -> bool:
        """Return whether the snapshot shows `xid`, which has lost its upper half: that of the nearest transaction."""
        whole = (self.next // _WRAP) * _WRAP + xid
        whole += _WRAP if whole < self.next - _WRAP // 2 else -_WRAP if whole > self.next + _WRAP // 2 else 0
        return whole < self.next and whole not in self.running


@dataclass
class WalKeys:
    """The keys of one table's rows that changed, by the columns `key` of the table as it is now: `columns` are its
    names and types in order. With more keys than `limit`, or than queries may name, the whole table is read."""

    key: tuple[str, ...]
    columns: Mapping[str, int]
    limit: int
    keys: KeySet = field(default_factory=KeySet, repr=False)
    whole: str = ""
    places: tuple[int, ...] | None = None

    def relation(self, relation: WalRelation) -> None:
        """Take a relation's columns; one whose key has changed says nothing of today's."""
        names = [c.name for c in relation.columns]
        common = [n for n in self.columns if n in names]
        columns = {c.name: c for c in relation.columns}
        fits = all(k in columns and columns[k].key and columns[k].kind == self.columns.get(k) for k in self.key)
        same_order = common == [n for n in names if n in self.columns]
        self.places = tuple(names.index(k) for k in self.key) if fits and same_order else None

    def partition(self, relation: WalRelation) -> None:
        """Take the columns of a partition, whose own replica identity decides what the log has of a row's key."""
        named = {c.name for c in relation.columns if c.key}
        if not named >= set(self.key):
            self.all(f"its partition {relation.schema}.{relation.name} was logged without its key")

    def changed(self, change: WalChange) -> None:
        if self.places is None:
            self.all("its key was altered")
            return
        for row in (change.old, change.new):
            if row is None:
                continue
            key = self._key(row, change.old)
            if key is None:
                self.all("a row was logged without its key")
            elif not self.whole:
                self.keys.update((key,))
        if self.keys.exceeds(self.limit):
            self.all(f"more than {min(len(self.keys) - 1, self.limit):,} of its rows changed")

    def _key(self, row: Row, old: Row | None) -> Key | None:
        assert self.places is not None
        values = []
        for place in self.places:
            value = row[place]
            if value is UNCHANGED and old is not None:
                value = old[place]
            if not isinstance(value, bytes):
                return None
            values.append(value.decode())
        return tuple(values)

    def all(self, why: str) -> None:
        self.whole = self.whole or why
        self.keys.clear()

    @property
    def changed_keys(self) -> ChangedKeys:
        """Return the keys in the order of their texts, so that a repeated run sends the same queries."""
        return ChangedKeys(self.key, self.keys, self.whole)


@dataclass(frozen=True)
class WalReach:
    """Progress in the log: `end` of the last transaction before the first that the snapshot does not show (None:
    there was none before it), whether there is a `hidden` one, how many messages there were, the `marks` that syncs
    have left, and the end of the `last` transaction of all."""

    end: int | None
    hidden: bool
    count: int
    marks: frozenset[str] = frozenset()
    last: int = -1


NO_PARTS: Mapping[int, WalKeys] = {}


def collect(
    messages: Iterable[Message | None],
    tables: Mapping[int, WalKeys],
    visible: VisibleTransactions,
    parts: Mapping[int, WalKeys] = NO_PARTS,
) -> WalReach:
    """Fill `tables` (by oid; `parts`: by the oids of their partitions). Transactions behind a hidden one are taken in
    as well: they come again, and a row that is read twice is the same row."""
    end: int | None = None
    last = -1
    hidden, shown, count = False, False, 0
    marks = set()
    for message in messages:
        count += 1
        match message:
            case Note(prefix, content):
                marks |= {content.decode(errors="replace")} if prefix == MARK else set()
            case WalBegin(xid):
                shown = visible.shows(xid)
                hidden = hidden or not shown
            case WalRelation(oid) if oid in tables:
                tables[oid].relation(message)
            case WalRelation(oid) if oid in parts:
                parts[oid].partition(message)
            case WalChange(oid) if shown and oid in tables:
                tables[oid].changed(message)
            case Truncate(oids) if shown:
                for oid in tables.keys() & oids:
                    tables[oid].all("it was truncated")
            case WalCommit(at):
                end, last = end if hidden else at, at
    return WalReach(end, hidden, count, frozenset(marks), last)
