# ruff: noqa: S608 - columns are numbered, values are not part of the text
"""Values of a column that was dropped and came back, for rows that were written in between: by key, from the snapshot
before the drop."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pyarrow as pa
from pyiceberg.expressions import IsNull, NotNull, Reference
from pyiceberg.table import Table as IcebergTable

from instep.destinations.base import Commit, Ref, RowUpdate
from instep.destinations.iceberg.evolve.undo import snapshot_before
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.records import current_fields, load_state, read_table
from instep.destinations.iceberg.write.load import load_ours
from instep.destinations.iceberg.write.row_edits import lookup_rows, update_rows
from instep.destinations.iceberg.write.upsert_diff import MEMORY

OLD = "instep_old_value"


def refill(lake: Lake, ref: Ref, column: str, commit: Commit) -> int:
    """Restore values in one commit; rows that have a value keep it. Returns how many rows got one. Keys and the column
    are read."""
    table, metadata = load_ours(lake, ref)
    key = read_table(ref, metadata).key
    field = next(f.id for f in current_fields(metadata) if f.name == column)
    before = snapshot_before(table, metadata, field)
    state = load_state(metadata)
    if not key or before is None or state is None:
        return 0
    found = _lost(table, key, column, before.snapshot_id)
    if not found.num_rows:
        return 0
    met = lookup_rows(lake, ref, found.select(list(key)))
    updated = _with(met.rows, column, found.column(OLD).take(pa.array(met.numbers)))
    change = RowUpdate(range(len(met.rows)), updated, updated.slice(0, 0))
    update_rows(lake, ref, met, change, replace(commit, cursor=state.cursor, accepted=state.accepted))
    return len(met.rows)


def _lost(table: IcebergTable, key: tuple[str, ...], column: str, snapshot: int) -> pa.Table:
    """Return the keys of rows without a value that had one in the snapshot, with that value under the name `OLD`."""
    now = table.scan(row_filter=IsNull(term=Reference(column)), selected_fields=key).to_arrow()
    at = table.metadata.snapshot_by_id(snapshot)
    name = _name_in(table, at.schema_id if at else None, column)
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


def _name_in(table: IcebergTable, schema: int | None, column: str) -> str:
    return _names_in(table, schema, (column,))[0]


def _names_in(table: IcebergTable, schema: int | None, columns: tuple[str, ...]) -> list[str]:
    """Return what columns were called in an older schema of the table."""
    then = table.schemas().get(schema, table.schema()) if schema is not None else table.schema()
    return [then.find_column_name(table.schema().find_field(c).field_id) or c for c in columns]


def _with(rows: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    place = rows.column_names.index(column)
    field = rows.schema.field(place)
    return rows.set_column(place, field, values.cast(field.type) if values.type != field.type else values)
