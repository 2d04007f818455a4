"""One table of the destination in this process, and what the steps of a plan make of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pyarrow as pa

from instep.destinations.base import Commit, InvalidValueCount, LoadState
from instep.destinations.rows import invalid_values_in
from instep.destinations.types import ICEBERG_PROMOTIONS
from instep.errors import DestinationError, Fenced, IllegalChange
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, String
from instep.schema.changes.describe import ColumnAdded, ColumnRemoved, ColumnRenamed
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import RewriteColumn, Step, UndropColumn
from instep.stage.casts.cast import cast
from memory.arrow import arrow_type

FIELD_ID = "PARQUET:field_id"
Row = Mapping[int, Any]
"""Values by field id. Rows are never changed in place; one without a field has NULL in that column."""

CAPABILITIES = Capabilities(
    name="memory",
    promotes=ICEBERG_PROMOTIONS,
    nested=True,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    views=True,
    merges_requested=True,
)


@dataclass(frozen=True)
class Dropped:
    """A column that was, with the rows from before its drop."""

    field: int
    column: Column
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Held:
    """A table as one commit left it; `fields` are the ids of its columns, in order. `pending` waits for its rows."""

    table: Table
    fields: tuple[int, ...]
    rows: tuple[Row, ...] = ()
    fence: int = 0
    state: LoadState | None = None
    pending: Table | None = None
    next_field: int = 1
    dropped: tuple[Dropped, ...] = ()
    added: frozenset[tuple[str, ...]] = frozenset()
    runs: frozenset[str] = frozenset()
    version: int = 0
    place: str = ""

    @property
    def ids(self) -> dict[str, int]:
        """Field ids by column name."""
        return dict(zip((c.name for c in self.table.columns), self.fields, strict=True))

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.table, self.fields)

    @property
    def waiting(self) -> Held:
        """The generation that the next load fills: its fields are new ones, so that no old value is read as one."""
        assert self.pending is not None
        fields = tuple(range(self.next_field, self.next_field + len(self.pending.columns)))
        return replace(self, table=self.pending, fields=fields, pending=None, next_field=fields[-1] + 1)

    def check(self, fence: int) -> None:
        if self.fence > fence:
            raise Fenced(f"table {self.table.path} was claimed by a later run")

    def with_rows(self, rows: Iterable[Row], commit: Commit, **said: Any) -> Held:
        """What a data commit leaves. `said`: bytes, files, deleted."""
        kept = tuple(rows)
        state = LoadState(commit.run, commit.fence, commit.cursor, commit.accepted, len(kept), **said)
        runs = self.runs | {commit.run}
        return replace(self, rows=kept, state=state, runs=runs, version=self.version + 1)

    def arrow(self, rows: Iterable[Row], columns: Sequence[str] = ()) -> pa.Table:
        found, ids = list(rows), self.ids
        schema = pa.schema([self.schema.field(n) for n in columns]) if columns else self.schema
        arrays = [pa.array([row.get(ids[f.name]) for row in found], f.type) for f in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def plain(self, table: pa.Table) -> list[Row]:
        ids = self.ids
        return [{ids[name]: value for name, value in row.items()} for row in table.to_pylist()]


def schema_of(table: Table, fields: Sequence[int]) -> pa.Schema:
    pairs = zip(table.columns, fields, strict=True)
    return pa.schema([pa.field(c.name, arrow_type(c.type), c.nullable, {FIELD_ID: str(f)}) for c, f in pairs])


def new_table(table: Table, commit: Commit, place: str) -> Held:
    fields = tuple(range(1, len(table.columns) + 1))
    return Held(table, fields, fence=commit.fence, next_field=len(fields) + 1, place=place)


@dataclass
class _Entry:
    """A column on its way; one that was renamed gives way to another of its old name."""

    name: str
    field: int
    column: Column | None
    moved: bool = False
    rewrite: RewriteColumn | None = None


def evolved(held: Held, steps: Sequence[Step], after: Table, commit: Commit) -> Held:
    """The table that `steps` lead to. Raises IllegalChange for a type that it cannot take, DestinationError if steps
    and `after` do not fit together."""
    if held.pending is not None:
        return replace(held, pending=after, version=held.version + 1)
    fresh = count(held.next_field)
    columns = zip(held.table.columns, held.fields, strict=True)
    entries = [_Entry(c.name, f, c) for c, f in columns]
    dropped = list(held.dropped)
    for step in steps:
        _run(entries, step, dropped, held, fresh)
    by_name = {e.name: e for e in entries}
    if len(entries) != len(after.columns) or set(by_name) != set(after.by_name):
        raise DestinationError(f"the steps for table {after.path} do not lead to the target table")
    ordered = [by_name[c.name] for c in after.columns]
    rows = held.rows
    for entry, column in zip(ordered, after.columns, strict=True):
        rows = _fitted(rows, entry, column, fresh)
    return replace(
        held, table=replace(after, columns=tuple(map(_relaxed, after.columns, ordered))),
        fields=tuple(e.field for e in ordered), rows=rows, fence=commit.fence, next_field=next(fresh),
        dropped=tuple(dropped), version=held.version + 1,
    )  # fmt: skip


def _run(entries: list[_Entry], step: Step, dropped: list[Dropped], held: Held, fresh: count[int]) -> None:
    match step.change:
        case ColumnAdded(after=column):
            entries.append(_Entry(column.name, next(fresh), None))
        case UndropColumn(before=before, after=column):
            old = next((d for d in reversed(dropped) if d.column.name == before.name), None)
            if old is None:
                raise DestinationError(f"{held.table.path} has never had a column {before.name}")
            entries.append(_Entry(column.name, old.field, old.column))
        case ColumnRenamed(before=before, after=column):
            entry = _find(entries, before.name)
            entry.name, entry.moved = column.name, True
        case RewriteColumn(before=before) as rewrite:
            _find(entries, before.name, at_end=True).rewrite = rewrite
        case ColumnRemoved(before=before):
            entry = _find(entries, before.name)
            entries.remove(entry)
            if entry.column is not None:
                dropped.append(Dropped(entry.field, entry.column, held.rows))


def _find(entries: list[_Entry], name: str, *, at_end: bool = False) -> _Entry:
    found = sorted((e for e in entries if e.name == name), key=lambda e: e.moved, reverse=at_end)
    if not found:
        raise DestinationError(f"there is no column {name}")
    return found[0]


def _relaxed(column: Column, entry: _Entry) -> Column:
    """NOT NULL is only ever relaxed."""
    return replace(column, nullable=column.nullable or entry.column is None or entry.column.nullable)


def _fitted(rows: tuple[Row, ...], entry: _Entry, column: Column, fresh: count[int]) -> tuple[Row, ...]:
    if entry.rewrite is not None:
        old, entry.field = entry.field, next(fresh)
        values = _cast([row.get(old) for row in rows], entry.rewrite.before.type, column.type)
        if values.invalid_values:
            raise IllegalChange(f"column {column.name}: values do not fit {column.type}")
        pairs = zip(rows, values.values.to_pylist(), strict=True)
        return tuple({**{f: v for f, v in row.items() if f != old}, entry.field: value} for row, value in pairs)
    before = entry.column.type if entry.column else column.type
    if arrow_type(before) != arrow_type(column.type) and not CAPABILITIES.promotes_in_place(before, column.type):
        raise IllegalChange(f"column {column.name}: {before} cannot become {column.type} in place")
    return rows


def _cast(values: Sequence[Any], before: DataType, after: DataType) -> Any:
    return cast(pa.array(values, arrow_type(before)), before, arrow_type(after), after)


def invalid_values_of(held: Held, column: str, kind: DataType) -> InvalidValueCount:
    field, before = held.ids[column], held.table.by_name[column].type
    values = pa.array([row.get(field) for row in held.rows], arrow_type(before))
    return invalid_values_in([values], before, kind, arrow_type(kind))


BY_HAND = "by_hand"


def changed_by_hand(held: Held, column: str) -> Held:
    """What somebody else does to a table: drops this column, or adds one of the name BY_HAND."""
    pairs = dict(zip(held.table.columns, held.fields, strict=True))
    dropped = held.dropped
    if column == BY_HAND:
        pairs[Column(BY_HAND, String())] = held.next_field
    else:
        gone = held.table.by_name[column]
        dropped = (*dropped, Dropped(pairs.pop(gone), gone, held.rows))
    table = replace(held.table, columns=tuple(pairs))
    return replace(
        held, table=table, fields=tuple(pairs.values()), next_field=held.next_field + 1, dropped=dropped,
        version=held.version + 1,
    )  # fmt: skip


Change = Callable[[Held], Held]
