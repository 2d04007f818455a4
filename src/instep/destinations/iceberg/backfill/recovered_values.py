# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""Values of a column that was dropped and came back, for rows that were written in between: by key, from the snapshot
before the drop.

Values that were kept as JSON beside a table's rows, taken out into columns of their own.

A row gets a value where it has none, and loses the name from its object in the same commit: what is done once is not
found again, so that nothing has to be remembered between two attempts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import IsNull, NotNull, Reference
from pyiceberg.table import Table as IcebergTable

from instep.crash import crashpoint
from instep.destinations.base import Commit, Ref, RowLookup, RowUpdate
from instep.destinations.iceberg.commit.row_reader import RowReader, current_rows, numbered, take
from instep.destinations.iceberg.evolve.undo import snapshot_before
from instep.destinations.iceberg.metadata.catalog import Lake, LakeFacet
from instep.destinations.iceberg.metadata.files import arrow_schema
from instep.destinations.iceberg.metadata.records import current_fields, load_state, read_pending, read_table
from instep.destinations.iceberg.write.load import load_ours
from instep.destinations.iceberg.write.row_edits import IcebergRowEdits, RowPlaces
from instep.destinations.iceberg.write.upsert import MEMORY
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.errors import DestinationError
from instep.stage.conform import compact_json
from instep.stage.overflow import from_texts

OLD = "instep_old_value"


def _lost(table: IcebergTable, key: tuple[str, ...], column: str, snapshot: int) -> pa.Table:
    """Return the keys of rows without a value that had one in the snapshot, with that value under the name `OLD`."""
    now = table.scan(row_filter=IsNull(term=Reference(column)), selected_fields=key).to_arrow()
    at = table.metadata.snapshot_by_id(snapshot)
    name = _names_in(table, at.schema_id if at else None, (column,))[0]
    names = _names_in(table, at.schema_id if at else None, key)
    old = table.scan(
        row_filter=NotNull(term=Reference(name)), snapshot_id=snapshot, selected_fields=(*names, name)
    ).to_arrow()
    old = old.select([*names, name]).rename_columns([*key, OLD])
    number = pa.array(range(len(old)))
    with duckdb.connect(":memory:", config={"memory_limit": MEMORY}) as db:
        keys = [f"k{i}" for i in range(len(key))]
        db.register("now", now.select(list(key)).rename_columns(keys))
        db.register("old", old.select(list(key)).rename_columns(keys).append_column("n", number))
        found = db.execute(f"SELECT n FROM old JOIN now USING ({', '.join(keys)}) ORDER BY n").fetchnumpy()
    return old.take(pa.array(found["n"]))


def _names_in(table: IcebergTable, schema: int | None, columns: tuple[str, ...]) -> list[str]:
    """Return what columns were called in an older schema of the table."""
    then = table.schemas().get(schema, table.schema()) if schema is not None else table.schema()
    return [then.find_column_name(table.schema().find_field(c).field_id) or c for c in columns]


def _with(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.column_names.index(column)
    field = rows.schema.field(place)
    return rows.set_column(place, field, values.cast(field.type) if values.type != field.type else values)


class IcebergRestoredValues(IcebergRowEdits):
    """Values of dropped columns that come back."""

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit) -> int:
        """Write the values of an undropped column back in one commit; return the number of rows that got one.

        Rows that have a value keep it. Keys and the column are read.
        """
        table, metadata = load_ours(self.lake, ref)
        key = read_table(ref, metadata).key
        field = next(f.id for f in current_fields(metadata) if f.name == column)
        before = snapshot_before(table, metadata, field)
        state = load_state(metadata)
        if not key or before is None or state is None:
            return 0
        found = _lost(table, key, column, before.snapshot_id)
        if not found.num_rows:
            return 0
        met = self.lookup_rows(ref, found.select(list(key)))
        updated = _with(met.rows, column, found.column(OLD).take(pa.array(met.numbers)))
        change = RowUpdate(range(len(met.rows)), updated, updated.slice(0, 0))
        self.update_rows(ref, met, change, replace(commit, cursor=state.cursor, accepted=state.accepted))
        return len(met.rows)


ROWS = 500_000
"""Rows that one commit changes at most."""


@dataclass
class _PromotedRows:
    """Rows that get a value: (file number, position) each, what their objects become, and the values by column."""

    places: list[tuple[int, int]] = field(default_factory=list)
    objects: list[str | None] = field(default_factory=list)
    values: dict[str, list[pa.Array]] = field(default_factory=dict)
    invalid_values: int = 0
    whole: bool = True


def _look(rows: RowReader, columns: Mapping[str, OverflowColumn], extra: str) -> _PromotedRows:
    """Read these columns only, and stop once there are enough rows for a commit."""
    found = _PromotedRows(values={name: [] for name in columns})
    for batch in numbered(rows, [extra, *columns]):
        if len(found.places) >= ROWS:
            found.whole = False
            break
        some = batch.filter(_may_have(batch, columns))
        if len(some):
            _add(found, some, columns, arrow_schema(rows.table.schema()))
    return found


def _may_have(batch: pa.RecordBatch, columns: Mapping[str, OverflowColumn]) -> pa.Array:
    """Return rows without a value whose object has the column's name somewhere."""
    some = pa.array(np.zeros(len(batch), dtype=np.bool_))
    for place, overflow in enumerate(columns.values(), 1):
        name = pc.match_substring(batch.column(0), json.dumps(overflow.name, ensure_ascii=False))
        some = pc.or_(some, pc.and_(pc.fill_null(name, False), batch.column(place).is_null()))
    return some


def _add(found: _PromotedRows, batch: pa.RecordBatch, columns: Mapping[str, OverflowColumn], target: pa.Schema) -> None:
    objects: list[dict[str, Any]] = [json.loads(text) for text in batch.column(0).to_pylist()]
    got: list[set[str]] = [set() for _ in objects]
    fitting: dict[str, pa.Array] = {}
    for place, (column, overflow) in enumerate(columns.items(), 1):
        lacks = batch.column(place).is_null().to_pylist()
        texts = overflow.texts([o.get(overflow.name) if lack else None for o, lack in zip(objects, lacks, strict=True)])
        done = from_texts(texts, overflow.type, target.field(column).type)
        found.invalid_values += len(done.invalid_values)
        fitting[column] = done.values
        for at in np.flatnonzero(np.asarray(done.values.is_valid())).tolist():
            got[at].add(overflow.name)
    gets = [at for at, names in enumerate(got) if names]
    files, positions = (batch.column(name).to_pylist() for name in ("f", "p"))
    for at in gets:
        found.places.append((files[at], positions[at]))
        left = {name: value for name, value in objects[at].items() if name not in got[at]}
        found.objects.append(compact_json(left) if left else None)
    for column, values in fitting.items():
        found.values[column].append(values.take(pa.array(gets, pa.int64())))


def _commit(
    lake: Lake, ref: Ref, rows: RowReader, snapshot: int, found: _PromotedRows, extra: str, commit: Commit
) -> None:
    """One fenced commit onto the snapshot that was read."""
    order = sorted(range(len(found.places)), key=lambda at: found.places[at])
    places = np.array([found.places[at] for at in order], dtype=np.int64)
    new = take(rows, places, arrow_schema(rows.table.schema()))
    new = _set(new, extra, pa.array([found.objects[at] for at in order], pa.string()))
    for column, parts in found.values.items():
        kind = new.schema.field(column).type
        values = pa.concat_arrays([p if p.type == kind else p.cast(kind) for p in parts]).take(pa.array(order))
        new = _set(new, column, _filled(pa.concat_arrays(new.column(column).chunks), values))
    met = RowLookup(new, range(len(new)), RowPlaces(rows, places, snapshot))
    IcebergRowEdits(lake).update_rows(ref, met, RowUpdate(range(len(new)), new, new.slice(0, 0)), commit)


def _filled(old: pa.Array, new: pa.Array) -> pa.Array:
    """Return the old values, and the new ones where there is none."""
    rows = np.arange(len(old))
    place = np.where(np.asarray(old.is_valid()), rows, rows + len(old))
    return pa.concat_arrays([old, new]).take(pa.array(place))


def _set(rows: pa.Table, column: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(column)
    kind = rows.schema.field(place)
    return rows.set_column(place, kind, values if values.type == kind.type else values.cast(kind.type))


class IcebergPromotes(LakeFacet):
    """Kept values that come into their columns."""

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        """Bring kept values into columns: see `WriteFacet.promote`."""
        done = 0
        while True:
            table, metadata = load_ours(self.lake, ref)
            snapshot, state = table.metadata.current_snapshot(), load_state(metadata)
            if read_pending(ref, metadata) or snapshot is None or state is None:
                return Promoted(done)
            rows = current_rows(table, NotNull(term=Reference(extra)))
            if rows is None:
                raise DestinationError(
                    f"table {'.'.join(ref)} has deletes by value, which another program has written",
                    hint="compact the table with that program",
                )
            found = _look(rows, columns, extra)
            if found.places:
                own = replace(commit, cursor=state.cursor, accepted=state.accepted)
                _commit(self.lake, ref, rows, snapshot.snapshot_id, found, extra, own)
                crashpoint("promote.committed")
                done += len(found.places)
            if found.whole:
                return Promoted(done, found.invalid_values)
