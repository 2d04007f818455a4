# ruff: noqa: S608 - names are quoted or ours, values are parameters
"""Values that come back from quarantine: the rows that they belong to are found here and rewritten in one commit.

No Spark and no MERGE: whoever changes a row has looked at it first, and the commit lands only onto the snapshot that
was looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    GreaterThanOrEqual,
    In,
    LessThanOrEqual,
    Reference,
)
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, IntegerType, LongType, StringType

from instep.destinations.base import Commit, LoadOutcome, Ref, RowLookup, RowUpdate
from instep.destinations.iceberg.commit.commit import TableCommit
from instep.destinations.iceberg.commit.row_reader import Positions, RowReader, current_rows, numbered, rows_at
from instep.destinations.iceberg.commit.shard_table import ShardTable, land
from instep.destinations.iceberg.metadata.catalog import LakeFacet
from instep.destinations.iceberg.metadata.files import arrow_schema
from instep.destinations.iceberg.metadata.records import exact_rows, load_state, read_pending, state_record
from instep.destinations.iceberg.metadata.updates import MAIN, ref_is
from instep.destinations.iceberg.write.load import load_ours, summary
from instep.destinations.iceberg.write.upsert import MEMORY, row_delta
from instep.destinations.shared import RowsMoved
from instep.errors import DestinationError
from instep.stage.duckdb_memory import duckdb_cursor

LISTED = 200
"""Values that are compared with a file's metrics one by one; pyiceberg looks at no more than these."""
_ORDERED = (IntegerType, LongType, StringType, DateType)
"""Types whose metrics compare as the values do, and whose values pyiceberg takes as they are."""


def keys_expression(schema: Schema, keys: pa.Table) -> BooleanExpression:
    """Return an expression that holds for each row with one of the keys (columns by name, in the types of `schema`):
    true of a file's metrics unless none of its rows can have one. A NULL matches no row."""
    expression: BooleanExpression = AlwaysTrue()
    for part in _parts(schema, keys):
        expression = And(expression, part)
    return expression


def _parts(schema: Schema, keys: pa.Table) -> Iterator[BooleanExpression]:
    for name in keys.column_names:
        if not isinstance(schema.find_type(name), _ORDERED):
            continue
        values = keys.column(name).drop_null()
        if not len(values):
            yield AlwaysFalse()
            return
        distinct = pc.unique(values)
        yield _listed(name, distinct.to_pylist()) if len(distinct) <= LISTED else _between(name, distinct)


def _listed(name: str, values: list[Any]) -> BooleanExpression:
    return In(term=Reference(name), values={literal(v) for v in values})


def _between(name: str, values: pa.Array) -> BooleanExpression:
    low, high = (bound.as_py() for bound in pc.min_max(values).values())
    column = Reference(name)
    return And(GreaterThanOrEqual(term=column, value=literal(low)), LessThanOrEqual(term=column, value=literal(high)))


@dataclass(frozen=True)
class RowPlaces:
    """Positions of the rows that were found: lines of (file number, position), and the snapshot that says so."""

    rows: RowReader
    places: Positions
    snapshot: int


def _find_places(rows: RowReader, keys: pa.Table) -> tuple[list[int], Positions]:
    with duckdb_cursor(MEMORY, streams=True) as db:
        table = numbered(rows, keys.column_names)
        names, number = [f"c{i}" for i in range(keys.num_columns)], pa.array(np.arange(len(keys)))
        db.register("k", pa.table([*keys.columns, number], names=[*names, "n"]))
        db.register("t", table)
        same = " AND ".join(f"t.{name} = k.{name}" for name in names)
        arrays = db.execute(f"SELECT k.n, t.f, t.p FROM t JOIN k ON {same} ORDER BY t.f, t.p").fetchnumpy()
    places = np.stack([arrays["f"].astype(np.int64), arrays["p"].astype(np.int64)], axis=1)
    return [int(n) for n in arrays["n"]], places


def _whole(rows: pa.Table, target: pa.Schema, old: tuple[pa.Table, Sequence[int]] | None = None) -> pa.Table:
    """Return the rows with all of the table's columns: those that they lack (a shard has its own only) are as in the
    `old` rows at these places."""
    if rows.column_names == target.names:
        return rows
    lacking = [f for f in target if f.name not in rows.column_names]
    old_rows = old[0].select([f.name for f in lacking]).take(pa.array(old[1], pa.int64())) if old else None
    for field in lacking:
        values = old_rows.column(field.name) if old_rows is not None else pa.nulls(len(rows), field.type)
        rows = rows.append_column(field, values.cast(field.type))
    return rows.select(target.names).cast(target)


class IcebergRowEdits(LakeFacet):
    """Rows that are looked up by key and put right."""

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        """Return the rows that have one of the keys (columns by name; no two alike). Reads the key columns of the files
        whose metrics allow for one of them."""
        table, metadata = load_ours(self.lake, ref)
        snapshot = table.metadata.current_snapshot()
        if read_pending(ref, metadata) or snapshot is None:
            raise DestinationError(f"table {'.'.join(ref)} has not been loaded yet", hint="sync it first")
        # the keys in the types that the rows are read in
        kinds = schema_to_pyarrow(table.schema().select(*keys.column_names), include_field_ids=False)
        typed_keys = keys.cast(pa.schema([kinds.field(name) for name in keys.column_names]).remove_metadata())
        rows = current_rows(table, keys_expression(table.schema(), typed_keys))
        if rows is None:
            raise DestinationError(
                f"table {'.'.join(ref)} has deletes by value, which another program has written",
                hint="compact the table with that program, or reload it with `instep sync --full`",
            )
        numbers, places = _find_places(rows, typed_keys)
        return RowLookup(
            rows_at(rows, places, arrow_schema(table.schema())), numbers, RowPlaces(rows, places, snapshot.snapshot_id)
        )

    def update_rows(self, ref: Ref, lookup: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        """Raise Conflict if the table has moved since, Fenced if a later run has claimed it. The cursor stays as it
        is."""
        table, metadata = load_ours(self.lake, ref)
        seen, state = lookup.places, load_state(metadata)
        assert isinstance(seen, RowPlaces)
        main = table.metadata.current_snapshot()
        moved = main is None or main.snapshot_id != seen.snapshot
        if state is None or (moved and not isinstance(seen.rows.table, ShardTable)):
            raise RowsMoved(ref)
        target = arrow_schema(table.schema())
        new = pa.concat_tables(
            [_whole(change.updated, target, (lookup.rows, change.rows)), _whole(change.inserted, target)]
        )
        gone = seen.places[np.array(change.rows, dtype=np.int64)]
        before = exact_rows(metadata, seen.snapshot)
        rows = None if before is None else before + len(change.inserted)
        with row_delta(seen.rows, new, gone, commit.fence) as (files, deletes):

            def onto(now: Table) -> None:
                work = TableCommit(now)
                work.require(ref_is(MAIN, now.metadata.current_snapshot_id))
                snapshot = work.delta(files, deletes, summary(commit))
                work.properties(state_record(commit, snapshot, rows, deleted=state.deleted))
                work.land(commit.fence)

            land(seen.rows.table if isinstance(table, ShardTable) else table, onto)
        return LoadOutcome(len(change.inserted), len(change.rows), 0)
