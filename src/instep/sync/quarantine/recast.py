"""Held originals as what their columns accept now: the same casts as loads make, from the text that was kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Binary, String
from instep.schema.selection.selection import column_is_on, hashed
from instep.stage.casts.cast import cast
from instep.stage.entries import QuarantineEntry
from instep.stage.field_metadata import limited
from instep.stage.quarantine import field_id
from instep.sync.context import SyncContext

Texts = Mapping[str, str | None]


@dataclass(frozen=True)
class Cell:
    """A value that belongs into `column` (the destination's name) of the row with the key number `number`. `value` is
    None if it does not fit, for `reason`."""

    entry: QuarantineEntry
    number: int
    column: str
    value: pa.Array | None
    reason: str = ""


@dataclass(frozen=True)
class RefusedRow:
    """A row that was refused, by destination column, with the key number `number`."""

    entry: QuarantineEntry
    number: int
    values: Mapping[str, pa.Array]


@dataclass(frozen=True)
class Recast:
    """`keys`: the distinct keys, which cells and rows name by number. `stays`: what has no place, with the reason."""

    keys: pa.Table
    cells: tuple[Cell, ...]
    rows: tuple[RefusedRow, ...]
    stays: tuple[QuarantineEntry, ...]


class StillInvalid(Exception):
    """Reason why an entry stays quarantined."""


def recast(context: SyncContext, table: Table, schema: pa.Schema, entries: Sequence[QuarantineEntry]) -> Recast:
    """`schema` is the destination table's, with field ids. Entries of any status take part, but rows that are not held
    any more are left out."""
    work = _Columns(context, table, schema)
    cells: list[Cell] = []
    rows: list[RefusedRow] = []
    stays: list[QuarantineEntry] = []
    for entry in entries:
        try:
            work.check_key()
            if entry.column:
                cells.append(work.cell(entry))
            elif entry.status == "held":
                rows.append(work.row(entry))
        except StillInvalid as why:
            stays.append(replace(entry, reason=str(why)))
    return Recast(work.keys(), tuple(cells), tuple(rows), tuple(stays))


class _Columns:
    """The columns of one table as they are now, found by the destination's field ids where those were recorded."""

    def __init__(self, context: SyncContext, table: Table, schema: pa.Schema) -> None:
        self.context, self.table, self.schema = context, table, schema
        self.accepted = {c.alias or c.name: c for c in table.columns}
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.parts: list[dict[str, pa.Array]] = []

    @cached_property
    def by_id(self) -> Mapping[int, str]:
        return {field_id(f): f.name for f in self.schema if field_id(f)}

    @cached_property
    def key(self) -> list[str]:
        return [self.table.by_name[k].alias or k for k in self.table.key]

    def place(self, path: str, entry: QuarantineEntry) -> str:
        """Return the destination's name of what was the accepted column `path` when the entry was held."""
        recorded = json.loads(entry.fields).get(path, 0)
        known = self.table.by_name.get(path)
        name = self.by_id.get(recorded) or ((known.alias or known.name) if known else "")
        if name not in self.accepted:
            raise StillInvalid(f"there is no column {path} any more")
        return name

    def check_key(self) -> None:
        if not self.key:
            raise StillInvalid("the table has no key to find the row by: load it again with `instep sync --full`")

    def cell(self, entry: QuarantineEntry) -> Cell:
        number, column = self.number(self.placed(json.loads(entry.key), entry)), self.place(entry.column, entry)
        if entry.original is None:
            return Cell(entry, number, column, None, "its original is not kept in clear")
        try:
            return Cell(entry, number, column, self.value(column, entry.original))
        except StillInvalid as why:
            return Cell(entry, number, column, None, str(why))

    def row(self, entry: QuarantineEntry) -> RefusedRow:
        texts = self.placed(json.loads(entry.original or "{}"), entry)
        number = self.number({k: texts.get(k) for k in self.key})
        return RefusedRow(entry, number, {n: self.value(n, t) for n, t in texts.items() if t is not None})

    def placed(self, texts: Texts, entry: QuarantineEntry) -> Texts:
        return {self.place(path, entry): text for path, text in texts.items()}

    def number(self, texts: Texts) -> int:
        """Return the number of a key; the same for keys that are equal as values."""
        if set(texts) != set(self.key):
            raise StillInvalid(f"the key of the table is {', '.join(self.key)} by now")
        if any(texts[k] is None for k in self.key):
            raise StillInvalid("NULL in the key")
        values = {k: self.value(k, str(texts[k]), key=True) for k in self.key}
        same = tuple(v[0].as_py() for v in values.values())
        if same not in self.numbers:
            self.numbers[same] = len(self.parts)
            self.parts.append(values)
        return self.numbers[same]

    def value(self, name: str, text: str, *, key: bool = False) -> pa.Array:
        """Return one value as the column holds it; raises InvalidValue with the reason."""
        column, field = self.accepted[name], self.schema.field(name)
        if not key:
            self.check_open(column)
        source: pa.Array = pa.array([text], pa.string())
        kind: Binary | String = String()
        if isinstance(column.type, Binary) and text.startswith("\\x"):
            source, kind = pa.array([bytes.fromhex(text[2:])], pa.binary()), Binary()
        done = limited(cast(source, kind, field.type, column.type), field)
        if done.invalid_values:
            raise StillInvalid(f"{column.name}: {done.invalid_values[0]}" if key else done.invalid_values[0])
        return done.values

    def check_open(self, column: Column) -> None:
        """Key columns are told by their hash; other values come from before the column was hashed or switched off."""
        if column.key:
            return
        if (
            hashed(self.context.selection, self.table.ref, column.name)
            or not (column_is_on(self.context.selection, self.table, column)[0])
        ):
            raise StillInvalid(f"column {column.name} is hashed or switched off by now")

    def keys(self) -> pa.Table:
        fields = [self.schema.field(k) for k in self.key]
        columns = [pa.chunked_array([part[f.name] for part in self.parts], f.type) for f in fields]
        return pa.table(columns, names=[f.name for f in fields])
