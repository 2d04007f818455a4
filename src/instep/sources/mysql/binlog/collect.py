"""Collection of the keys of changed rows from events of the binary log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from instep.sources.keyset import KeySet
from instep.sources.log import ChangedKeys, Key, Ref
from instep.sources.mysql.binlog.ddl import edits
from instep.sources.mysql.binlog.values import Images, KeyColumn, UnreadableImage, images
from instep.sources.mysql.binlog.wire import (
    BinlogBegin,
    BinlogStatement,
    End,
    Event,
    Rotate,
    RowImages,
    TableMap,
    UnreadableEvent,
)

Spot = tuple[str, int]
"""A file and a position in it."""
BEYOND = 1 << 32
"""Positions from here on cannot be asked for."""


@dataclass(frozen=True)
class CascadingTables:
    """Tables that rows of another one follow by foreign keys, when rows are deleted there or updated. Updates of those
    `by_key` count where their primary key becomes another one."""

    deletes: frozenset[Ref] = frozenset()
    updates: frozenset[Ref] = frozenset()
    by_key: frozenset[Ref] = frozenset()

    def follows(self, ref: Ref, rows: RowImages, moved: bool | None) -> bool:
        """Return whether deletes or key changes reach other tables by a foreign key. `moved`: whether a key of the
        rows has changed, None if that is not known."""
        if rows.change == "delete":
            return ref in self.deletes
        return rows.change == "update" and ref in self.updates and (moved is not False or ref not in self.by_key)


@dataclass
class BinlogKeys:
    """The keys of one table's rows that changed, as SQL, by the columns `key`, which are at `places` of the `width`
    columns of now, which are called `names`."""

    key: tuple[KeyColumn, ...]
    places: tuple[int, ...]
    width: int
    limit: int
    """Number of keys above which the whole table is read; so it is with more than a query may name."""
    since: tuple[int, int] = (0, 0)
    """Position before which everything is known."""
    parents: CascadingTables = CascadingTables()
    """Tables whose changes change rows of this one, which is not logged."""
    primary: bool = False
    """The key is its primary key."""
    names: frozenset[str] = frozenset()
    keys: KeySet = field(default_factory=KeySet, repr=False)
    whole: str = ""
    _widths: set[int] = field(default_factory=set)
    _dropped: set[str] = field(default_factory=set)

    def altered(self, added: Sequence[str], dropped: Sequence[str], *, placed: bool) -> None:
        """Record that columns came or went. Where the log does not name them, those behind others do no harm."""
        self._dropped.update(dropped)
        if self._dropped & (self.names | set(added)):
            self.all("a column of it was dropped and created again")
        if self._widths and (dropped or placed):
            self.all("its columns were altered, and the log does not name them: set binlog_row_metadata to FULL")
        self._widths = {width + len(added) for width in self._widths}

    def cut(self, mapped: TableMap) -> Images:
        """Return how images of the mapped table are read; raises UnreadableImage if its key was altered."""
        if mapped.names:
            if not {c.name for c in self.key} <= set(mapped.names):
                raise UnreadableImage("its key was altered")
            return images(mapped, [mapped.names.index(c.name) for c in self.key], self.key)
        self._widths.add(len(mapped.kinds))
        if max(self.places) >= len(mapped.kinds):
            raise UnreadableImage("its columns were altered")
        return images(mapped, self.places, self.key)

    def changed(self, cut: Images, rows: RowImages) -> int:
        """Return how many images there were."""
        try:
            keys = cut.keys(rows)
        except (UnreadableImage, IndexError, ValueError) as error:
            self.all(str(error) if isinstance(error, UnreadableImage) else "a row of it cannot be taken apart")
            return 0
        if any(None in key for key in keys):
            self.all("a row was logged without its key")
            return 0
        self.keys.update(cast("list[Key]", keys))
        if self.keys.exceeds(self.limit):
            self.all(f"more than {min(len(self.keys) - 1, self.limit):,} of its rows changed")
        return len(keys)

    @property
    def changed_keys(self) -> ChangedKeys:
        """Return the keys in the order of their texts, so that a repeated run sends the same queries."""
        return ChangedKeys(tuple(c.name for c in self.key), self.keys, self.whole)

    def done(self) -> None:
        """End a pass: including the columns added since, all widths are those of the catalog."""
        if self._widths - {self.width}:
            self.all("the log has it with other columns than the catalog shows")

    def all(self, why: str) -> None:
        self.whole = self.whole or why
        self.keys.clear()


@dataclass(frozen=True)
class BinlogReach:
    """Progress in the log: `end` of the last transaction that counts, whether there is a `hidden` one behind it,
    whether there is `more`."""

    end: Spot
    hidden: bool
    more: bool


@dataclass
class LogPass:
    """One way through the log. `shows` tells of a transaction's name whether a snapshot of now shows it; `most` events
    and images of rows are looked at, to the end of the transaction that goes beyond."""

    tables: Mapping[Ref, BinlogKeys]
    shows: Callable[[str], bool]
    number: Callable[[Spot], tuple[int, int]]
    start: Spot
    most: int
    _maps: dict[int, tuple[BinlogKeys, Images]] = field(default_factory=dict)
    _refs: dict[int, Ref] = field(default_factory=dict)
    _named: bool = False
    _begun: bool = False
    _hidden: bool = False
    _prepared: dict[str, Spot] = field(default_factory=dict)
    _in_xa: bool = False
    _file: str = ""
    _images: int = 0
    _seen: dict[int, TableMap] = field(default_factory=dict)

    def collect(self, events: Iterable[tuple[Event | None, int]]) -> BinlogReach:
        """Return events with the position behind each. What is behind a hidden or an undecided transaction is taken in
        as well: it comes again, and a row that is read twice is the same row."""
        end, self._file = self.start, self.start[0]
        for count, (event, at) in enumerate(events):
            if isinstance(event, Rotate):
                self._file, at = event.file, event.at
                self._forget()
            self.handle_event(event, (self._file, at))
            within = self._named or self._begun
            if not (within or self._hidden or self._prepared) and 0 < at < BEYOND:
                end = max(end, (self._file, at), key=self.number)
            if count + self._images >= self.most and not within:
                return self._reach(end, more=True)
        return self._reach(end, more=False)

    def _forget(self) -> None:
        """Reset the state of the file: no transaction spans files, and a restarted server numbers its tables again."""
        self._maps, self._refs, self._seen = {}, {}, {}
        self._named = self._begun = self._in_xa = False

    def _reach(self, end: Spot, *, more: bool) -> BinlogReach:
        for table in self.tables.values():
            table.done()
        return BinlogReach(end, self._hidden or bool(self._prepared), more)

    def handle_event(self, event: Event | None, spot: Spot) -> None:
        match event:
            case BinlogBegin(gtid, alone):
                self._named, self._begun = True, not alone and gtid.count("-") > 0
                self._hidden = self._hidden or not self.shows(gtid)
            case BinlogStatement():
                self._statement(event, spot)
            case TableMap():
                self._mapped(event, spot)
            case RowImages():
                self._rows(event, spot)
            case End(prepared):
                self._named = self._begun = self._in_xa = False
                if prepared:
                    self._prepared[prepared] = spot
            case UnreadableEvent(why):
                for table in self._tables_behind(spot).values():
                    table.all(why)

    def _tables_behind(self, spot: Spot) -> Mapping[Ref, BinlogKeys]:
        """Return the tables that have not read this position yet."""
        at = self.number(spot)
        return {ref: t for ref, t in self.tables.items() if t.since < at}

    def _statement(self, event: BinlogStatement, spot: Spot) -> None:
        words = event.text.upper().split(maxsplit=2)
        match words[:2]:
            case ["BEGIN"]:
                self._begun = True
            case ["XA", "START" | "BEGIN"]:
                self._begun = self._in_xa = True
            case ["COMMIT" | "ROLLBACK"]:
                self._named = self._begun = False
            case ["XA", "COMMIT" | "ROLLBACK"]:
                self._decided(words[2] if len(words) > 2 else "", spot, done=words[1] == "COMMIT")
            case ["SAVEPOINT" | "RELEASE", *_] | ["ROLLBACK", _] | ["XA", _]:
                pass
            case _:
                self._named = self._begun
                self._altered(event, spot)

    def _decided(self, name: str, spot: Spot, *, done: bool) -> None:
        """Mark tables for a full read if the transaction was prepared before the log was followed."""
        begun = self._prepared.pop(name, None)
        for table in self._tables_behind(spot).values() if done and not self._in_xa else ():
            if begun is None or self.number(begun) <= table.since:
                table.all("a transaction was committed that had been prepared before its log was followed")
        self._named = self._begun = self._in_xa = False

    def _altered(self, event: BinlogStatement, spot: Spot) -> None:
        """Handle DDL, which commits by itself, whatever the log calls its transaction. What becomes of the name or the
        foreign keys of a table decides which rows of others have followed its own before."""
        self._maps, self._seen = {}, {}
        behind = self._tables_behind(spot)
        edits_of = edits(event.text, event.database, behind.keys() | self._parents, event.mode, event.other)
        for ref, edit in edits_of.items():
            for child in behind.values() if edit.rekeyed and ref in self._parents else ():
                if ref in child.parents.deletes | child.parents.updates:
                    child.all(f"{'.'.join(ref)}, which it follows by a foreign key, was renamed or altered")
            table = behind.get(ref)
            if table is not None and edit.why:
                table.all(edit.why)
            elif table is not None:
                table.altered(edit.added, edit.dropped, placed=edit.placed)

    def _mapped(self, event: TableMap, spot: Spot) -> None:
        if self._seen.get(event.number) is event:
            return
        self._refs[event.number] = event.ref
        self._maps.pop(event.number, None)
        table = self.tables.get(event.ref)
        if table is None or self.number(spot) <= table.since:
            return
        try:
            self._maps[event.number] = table, table.cut(event)
            self._seen[event.number] = event
        except UnreadableImage as error:
            table.all(str(error))

    @cached_property
    def _parents(self) -> frozenset[Ref]:
        """The tables that others follow."""
        return frozenset().union(*(t.parents.deletes | t.parents.updates for t in self.tables.values()))

    def _followed(self, ref: Ref, event: RowImages, mapped: tuple[BinlogKeys, Images] | None, spot: Spot) -> None:
        by_key = mapped is not None and mapped[0].primary and event.change == "update"
        moved = mapped[1].is_key_changed(event) if mapped is not None and by_key else None
        for table in self._tables_behind(spot).values():
            if table.parents.follows(ref, event, moved):
                table.all(f"rows of {'.'.join(ref)} changed, and by a foreign key rows of it, which is not logged")

    def _rows(self, event: RowImages, spot: Spot) -> None:
        mapped = self._maps.get(event.number)
        ref = self._refs.get(event.number)
        if ref is None:
            for table in self._tables_behind(spot).values():
                table.all("the log has rows and does not say of which table")
        elif event.change != "insert" and ref in self._parents:
            self._followed(ref, event, mapped, spot)
        if mapped is not None and not mapped[0].whole:
            self._images += mapped[0].changed(mapped[1], event)
