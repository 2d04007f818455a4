"""From messages of the log to the keys of the rows that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from instep.sources.log import Key
from instep.sources.postgres.wal.wire import (
    UNCHANGED,
    Message,
    Note,
    Row,
    Truncate,
    WalBegin,
    WalChange,
    WalCommit,
    WalRelation,
)

_WRAP = 1 << 32
MARK = "instep"
"""Begins the logical messages that syncs leave in the log."""


@dataclass(frozen=True)
class Visible:
    """Transactions that a snapshot shows: all below `first`, none from `next` on, and none of `running` in between."""

    first: int
    next: int
    running: frozenset[int]

    @classmethod
    def of(cls, text: str) -> Visible:
        """Parse the text of `pg_current_snapshot()`."""
        first, following, running = text.split(":")
        return cls(int(first), int(following), frozenset(int(x) for x in running.split(",") if x))

    def shows(self, xid: int) -> bool:
        """`xid` has lost its upper half, which is that of the nearest transaction."""
        whole = (self.next // _WRAP) * _WRAP + xid
        whole += _WRAP if whole < self.next - _WRAP // 2 else -_WRAP if whole > self.next + _WRAP // 2 else 0
        return whole < self.next and whole not in self.running


@dataclass
class WalKeys:
    """The keys of one table's rows that changed, by the columns `key` of the table as it is now: `columns` are its
    names and types in order. With more keys than `limit` the whole table is read."""

    key: tuple[str, ...]
    columns: Mapping[str, int]
    limit: int
    keys: dict[Key, None] = field(default_factory=dict, repr=False)
    whole: str = ""
    places: tuple[int, ...] | None = None

    def relation(self, relation: WalRelation) -> None:
        """A relation whose key is another one tells nothing of today's."""
        names = [c.name for c in relation.columns]
        common = [n for n in self.columns if n in names]
        known = {c.name: c for c in relation.columns}
        fits = all(k in known and known[k].key and known[k].kind == self.columns.get(k) for k in self.key)
        same_order = common == [n for n in names if n in self.columns]
        self.places = tuple(names.index(k) for k in self.key) if fits and same_order else None

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
                self.keys[key] = None
        if len(self.keys) > self.limit:
            self.all(f"more than {self.limit:,} of its rows changed")

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
        self.keys = {}


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


def collect(messages: Iterable[Message | None], tables: Mapping[int, WalKeys], visible: Visible) -> WalReach:
    """Fill `tables` (by oid). Transactions behind a hidden one are taken in as well: they come again, and a row that
    is read twice is the same row."""
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
            case WalChange(oid) if shown and oid in tables:
                tables[oid].changed(message)
            case Truncate(oids) if shown:
                for oid in tables.keys() & oids:
                    tables[oid].all("it was truncated")
            case WalCommit(at):
                end, last = end if hidden else at, at
    return WalReach(end, hidden, count, frozenset(marks), last)
