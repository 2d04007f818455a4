"""Held values meet the rows that they belong to: what goes in, what came too late, what still does not fit.

Held originals as what their columns accept now: the same casts as loads make, from the text that was kept.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from instep.destinations.base import RowLookup
from instep.operations.values import EntryStatus
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Binary, String
from instep.stage.casts.cast import cast
from instep.stage.conform import compact_json
from instep.stage.field_metadata import limited
from instep.stage.quarantine import QuarantineEntry
from instep.sync.context import SyncContext
from instep.sync.quarantine.entry_columns import EntryColumns

Texts = Mapping[str, str | None]
REPLACED = "the table was replaced since: this is of a row of the table before it"
_LEAST = -(1 << 63)


@dataclass(frozen=True)
class Cell:
    """A value that belongs into `column` (the destination's name) of the row with the key number `number`."""

    entry: QuarantineEntry
    number: int
    column: str
    value: pa.Array | None
    """Value of the cell; None if it does not fit, for `reason`."""
    reason: str = ""


@dataclass(frozen=True)
class RefusedRow:
    """A row that was refused, by destination column, with the key number `number`."""

    entry: QuarantineEntry
    number: int
    values: Mapping[str, pa.Array]


@dataclass(frozen=True)
class Recast:
    """Quarantined values, cast again."""

    keys: pa.Table
    """The distinct keys, which cells and rows name by number."""
    cells: tuple[Cell, ...]
    rows: tuple[RefusedRow, ...]
    stays: tuple[QuarantineEntry, ...]
    """Entries without a place, with the reason."""
    replaced: tuple[QuarantineEntry, ...] = ()
    """Entries that were quarantined and are of the table before it was replaced: no row of this one is theirs."""


class StillInvalid(Exception):
    """Reason why an entry stays quarantined."""


def recast(context: SyncContext, table: Table, schema: pa.Schema, entries: Sequence[QuarantineEntry]) -> Recast:
    """Cast quarantined values again; `schema` is the destination table's, with field ids. Entries of any status take
    part, but rows that are no longer quarantined are left out."""
    work = ColumnsNow(context, table, schema)
    cells: list[Cell] = []
    rows: list[RefusedRow] = []
    stays: list[QuarantineEntry] = []
    replaced: list[QuarantineEntry] = []
    for entry in entries:
        if work.columns.is_replaced(entry):
            if entry.status == "held":
                replaced.append(replace(entry, status="superseded", reason=REPLACED))
            continue
        try:
            work.check_key()
            if entry.column:
                cells.append(work.cell(entry))
            elif entry.status == "held":
                rows.append(work.row(entry))
        except StillInvalid as why:
            stays.append(replace(entry, reason=str(why)))
    return Recast(work.keys(), tuple(cells), tuple(rows), tuple(stays), tuple(replaced))


def places_of_rows(
    context: SyncContext, table: Table, schema: pa.Schema
) -> Callable[[QuarantineEntry], tuple[int, int]]:
    """Return a function that puts entries in about the order of their keys: all of one row get the same place. Rows may
    share one."""
    work = ColumnsNow(context, table, schema)

    def place(entry: QuarantineEntry) -> tuple[int, int]:
        try:
            work.check_key()
            key = work.key_of(work.key_texts(entry))[0]
        except StillInvalid:
            return 0, 0
        return _place(key[0]), hash(key)

    return place


def _place(value: Any) -> int:
    """Return a number of 64 bits that is no less for a greater value, where the values have an order."""
    match value:
        case int() | Decimal():
            return min(max(int(value), _LEAST), -_LEAST - 1)
        case str() | bytes():
            data = value.encode() if isinstance(value, str) else value
            return int.from_bytes(data[:8].ljust(8, b"\0"), "big") + _LEAST
        case date():
            return value.toordinal()
        case _:
            return 0


class ColumnsNow:
    """The columns of one table as they are now, found by the destination's field ids where those were recorded."""

    def __init__(self, context: SyncContext, table: Table, schema: pa.Schema) -> None:
        self.table, self.schema = table, schema
        self.accepted = {c.alias or c.name: c for c in table.columns}
        self.columns = EntryColumns(context, table, schema)
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.parts: list[dict[str, pa.Array]] = []

    @cached_property
    def key(self) -> list[str]:
        return [self.table.by_name[k].alias or k for k in self.table.key]

    def place(self, path: str, entry: QuarantineEntry) -> str:
        """Return the destination's name of what was the accepted column `path` when the entry was held."""
        column = self.columns.column(path, entry)
        if column is None:
            raise StillInvalid(f"column {path} no longer exists")
        return column.alias or column.name

    def check_key(self) -> None:
        if not self.key:
            raise StillInvalid("the table has no key to find the row by: load it again with `instep sync --full`")

    def cell(self, entry: QuarantineEntry) -> Cell:
        number, column = self.number(self.placed(json.loads(entry.key), entry)), self.place(entry.column, entry)
        if entry.original is None:
            return Cell(entry, number, column, None, "its original is not kept in clear")
        try:
            self.check_open(entry.column, entry)
            return Cell(entry, number, column, self.value(column, entry.original))
        except StillInvalid as why:
            return Cell(entry, number, column, None, str(why))

    def row(self, entry: QuarantineEntry) -> RefusedRow:
        original = json.loads(entry.original or "{}")
        texts = self.placed(original, entry)
        number = self.number({k: texts.get(k) for k in self.key})
        for path in (path for path, text in original.items() if text is not None):
            self.check_open(path, entry)
        return RefusedRow(entry, number, {n: self.value(n, t) for n, t in texts.items() if t is not None})

    def key_texts(self, entry: QuarantineEntry) -> Texts:
        """Return the key of the row that an entry belongs to, by the destination's names."""
        if entry.column:
            return self.placed(json.loads(entry.key), entry)
        texts = self.placed(json.loads(entry.original or "{}"), entry)
        return {k: texts.get(k) for k in self.key}

    def placed(self, texts: Texts, entry: QuarantineEntry) -> Texts:
        return {self.place(path, entry): text for path, text in texts.items()}

    def number(self, texts: Texts) -> int:
        """Return the number of a key; the same for keys that are equal as values."""
        same, values = self.key_of(texts)
        if same not in self.numbers:
            self.numbers[same] = len(self.parts)
            self.parts.append(values)
        return self.numbers[same]

    def key_of(self, texts: Texts) -> tuple[tuple[Any, ...], dict[str, pa.Array]]:
        """Return a key as values, and as arrays by column."""
        if set(texts) != set(self.key):
            raise StillInvalid(f"the key of the table is now {', '.join(self.key)}")
        if any(texts[k] is None for k in self.key):
            raise StillInvalid("NULL in the key")
        values = {k: self.value(k, str(texts[k]), key=True) for k in self.key}
        return tuple(v[0].as_py() for v in values.values()), values

    def value(self, name: str, text: str, *, key: bool = False) -> pa.Array:
        """Return one value as the column holds it; raises InvalidValue with the reason."""
        column, field = self.accepted[name], self.schema.field(name)
        kind = column.type if isinstance(column.type, Binary) else String()
        done = limited(cast(pa.array([text], pa.string()), kind, field.type, column.type), field)
        if done.invalid_values:
            raise StillInvalid(f"{column.name}: {done.invalid_values[0]}" if key else done.invalid_values[0])
        return done.values

    def check_open(self, path: str, entry: QuarantineEntry) -> None:
        """Refuse hashed and deselected columns, except in the key, where the hash identifies rows: quarantined
        values are from before."""
        column = self.accepted[self.place(path, entry)]
        if not column.key and not self.columns.treatment(path, entry).is_clear:
            raise StillInvalid(f"column {column.name} is now hashed or switched off")

    def keys(self) -> pa.Table:
        fields = [self.schema.field(k) for k in self.key]
        columns = [pa.chunked_array([part[f.name] for part in self.parts], f.type) for f in fields]
        return pa.table(columns, names=[f.name for f in fields])


@dataclass(frozen=True)
class Rejoined:
    """The effect of quarantined values on rows that were found."""

    rows: Sequence[int]
    """Places in the rows that were met, and `updated` what stands there from now on."""
    updated: pa.Table
    inserted: pa.Table
    replayed: tuple[QuarantineEntry, ...] = ()
    superseded: tuple[QuarantineEntry, ...] = ()
    stays: tuple[QuarantineEntry, ...] = ()

    @classmethod
    def nothing(cls, schema: pa.Schema) -> Rejoined:
        return cls((), schema.empty_table(), schema.empty_table())

    @property
    def changes(self) -> bool:
        return bool(self.rows) or len(self.inserted) > 0


def rejoin(recast: Recast, lookup: RowLookup, schema: pa.Schema, prefix: str, now: datetime | None = None) -> Rejoined:
    """Return what becomes of the entries; `now` is the moment of the run."""
    work = _RejoinBatches(lookup, schema, prefix, now or datetime.now(UTC))
    by_place: dict[tuple[int, str], list[Cell]] = defaultdict(list)
    for cell in recast.cells:
        by_place[cell.number, cell.column].append(cell)
    for (number, column), cells in by_place.items():
        work.cells(number, column, sorted(cells, key=lambda c: c.entry.at))
    by_number: dict[int, list[RefusedRow]] = defaultdict(list)
    for row in recast.rows:
        by_number[row.number].append(row)
    for number, rows in by_number.items():
        work.resolve_rows(number, sorted(rows, key=lambda r: r.entry.at))
    return work.done()


@dataclass
class _RejoinBatches:
    lookup: RowLookup
    schema: pa.Schema
    prefix: str
    now: datetime
    places: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    fills: dict[int, dict[str, Cell]] = field(default_factory=dict)
    inserts: list[RefusedRow] = field(default_factory=list)
    entries: dict[str, list[QuarantineEntry]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        current = self.lookup.rows.column(f"{self.prefix}current").to_pylist() if self._has("current") else []
        for at, number in enumerate(self.lookup.numbers):
            if current and not current[at]:
                self.ended.add(number)
            else:
                self.places.setdefault(number, []).append(at)
        self.notes = self.lookup.rows.column(f"{self.prefix}meta").to_pylist() if self._has("meta") else []

    def _has(self, role: str) -> bool:
        return f"{self.prefix}{role}" in self.schema.names

    def cells(self, number: int, column: str, cells: Sequence[Cell]) -> None:
        """Settle all entries of one value, oldest first: only the last may be it."""
        *older, last = cells
        self.set_status("superseded", older)
        places = self.places.get(number, [])
        if len(places) > 1:
            self.leave_quarantined(last, "the table has several rows with this key")
        elif not places:
            self.set_status("superseded", [last])
        else:
            self.fill(places[0], column, last)

    def fill(self, at: int, column: str, cell: Cell) -> None:
        value = self.lookup.rows.column(column)[at]
        if not value.is_valid and self.is_noted(at, cell.entry.name):
            if cell.value is None:
                self.leave_quarantined(cell, cell.reason)
            elif cell.entry.status == "held":
                self.fills.setdefault(at, {})[column] = cell
                self.set_status("replayed", [cell])
        else:
            same = value.is_valid and cell.value is not None and value.as_py() == cell.value[0].as_py()
            self.set_status("replayed" if same else "superseded", [cell])

    def is_noted(self, at: int, name: str) -> bool:
        return any(_is_hold(c, name) for c in _changes(self.notes[at] if self.notes else None))

    def resolve_rows(self, number: int, rows: Sequence[RefusedRow]) -> None:
        """Settle refused rows; one that has come meanwhile is newer than what was refused."""
        *older, last = rows
        self.set_status("superseded", older)
        if number in self.places or number in self.ended:
            self.set_status("superseded", [last])
        else:
            self.inserts.append(last)
            self.set_status("replayed", [last])

    def set_status(self, status: EntryStatus, cells: Sequence[Cell | RefusedRow]) -> None:
        """Set the status of the entries; those that a person has discarded stay so."""
        pending = (c.entry for c in cells if c.entry.status == "held")
        self.entries[status] += [replace(e, status=status) for e in pending]

    def leave_quarantined(self, cell: Cell, reason: str) -> None:
        if cell.entry.status == "held":
            self.entries["held"].append(replace(cell.entry, reason=reason))

    def done(self) -> Rejoined:
        rows = sorted(self.fills)
        parts = [tuple(self.entries[s]) for s in ("replayed", "superseded", "held")]
        return Rejoined(rows, self.updated(rows), self.inserted(), *parts)

    def updated(self, rows: Sequence[int]) -> pa.Table:
        table = self.lookup.rows.take(pa.array(rows, pa.int64()))
        columns = []
        for target in self.schema:
            fills = {n: c.value for n, at in enumerate(rows) if (c := self.fills[at].get(target.name))}
            columns.append(_filled(table.column(target.name), {n: v for n, v in fills.items() if v is not None}))
        return self.stamped(pa.table(columns, schema=self.schema), self.cleared(rows))

    def cleared(self, rows: Sequence[int]) -> list[str | None]:
        """Return the rows' notes without those of the values that they have again."""
        return [_without(self.notes[at], {c.entry.name for c in self.fills[at].values()}) for at in rows]

    def inserted(self) -> pa.Table:
        columns = [
            pa.chunked_array([r.values.get(f.name, pa.nulls(1, f.type)) for r in self.inserts], f.type)
            for f in self.schema
        ]
        table = self.stamped(pa.table(columns, schema=self.schema), [None] * len(self.inserts))
        moment = pa.scalar(self.now, pa.timestamp("us", "UTC"))
        begun = {"deleted": pa.scalar(False), "valid_from": moment, "current": pa.scalar(True)}
        for role in filter(self._has, begun):
            table = _set(table, f"{self.prefix}{role}", pa.repeat(begun[role], len(table)))
        return table

    def stamped(self, table: pa.Table, notes: Sequence[str | None]) -> pa.Table:
        if self._has("synced"):
            moment = pa.scalar(self.now, pa.timestamp("us", "UTC"))
            table = _set(table, f"{self.prefix}synced", pa.repeat(moment, len(table)))
        return _set(table, f"{self.prefix}meta", pa.array(notes, pa.string())) if self._has("meta") else table


def _set(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values.cast(table.schema.field(at).type))


def _filled(column: pa.ChunkedArray, values: Mapping[int, pa.Array]) -> pa.ChunkedArray:
    """Return the column with some of its values replaced, whatever their type."""
    if not values:
        return column
    order = np.arange(len(column))
    order[list(values)] = len(column) + np.arange(len(values))
    return pa.chunked_array([*column.chunks, *values.values()], column.type).take(pa.array(order))


def _changes(note: str | None) -> Iterator[Mapping[str, Any]]:
    if note:
        yield from json.loads(note).get("changes", ())


def _is_hold(change: Mapping[str, Any], name: str) -> bool:
    """Return whether the note is of a value that is in quarantine: not of one that the source has left out."""
    return change.get("change") == "nulled" and change.get("field") == name and "by" not in change


def _without(note: str | None, names: set[str]) -> str | None:
    document = json.loads(note or "{}")
    left = [c for c in _changes(note) if not any(_is_hold(c, n) for n in names)]
    document = {k: v for k, v in document.items() if k != "changes"} | ({"changes": left} if left else {})
    return compact_json(document) if document else None
