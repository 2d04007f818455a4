# ruff: noqa: S608 - columns are numbered
"""Brings values into rows that have none: they meet the staged values by key, their files are rewritten."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import Commit, Fill, Filled, FillSize, Ref
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.engine import as_table, engine, fields_by_name, run, staged_rows, table_rows
from instep.destinations.delta.log import Action, rows_of
from instep.destinations.delta.rewrite import RowEdit, edited
from instep.destinations.delta.table_state import DeltaTableState, find, named, require
from instep.destinations.delta.warehouse import DeltaFacet
from instep.destinations.notes import merged
from instep.destinations.sql.records import MOST_IDS
from instep.errors import DestinationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _may_lack(file: Action, column: str) -> bool:
    place = file.get("partitionValues") or {}
    if column in place:
        return not place[column]
    stats = json.loads(file.get("stats") or "{}")
    return bool(stats.get("numRecords", 1) and stats.get("nullCount", {}).get(column) != 0)


def _found(state: DeltaTableState, work: Fill) -> tuple[RowEdit, int]:
    """Return what becomes of rows that get a value or another note, and how many."""
    columns, first = list(work.columns), len(work.key)
    names = [*work.key, *columns, work.meta]
    same = " AND ".join(f"t.c{i} = s.c{i}" for i in range(first))
    places = range(first, first + len(columns))
    meta = first + len(columns)
    gets = " OR ".join(f"(t.c{i} IS NULL AND s.c{i} IS NOT NULL)" for i in places)
    noted = f"t.c{meta} IS NOT NULL OR s.c{meta} IS NOT NULL"
    values = ", ".join(f"coalesce(t.c{i}, s.c{i}) AS v{i}" for i in places)
    with engine() as db:
        db.register("staged", staged_rows(state, names, work.values))
        run(db, "CREATE TEMP TABLE s AS SELECT * FROM staged")
        db.register("t", table_rows(state, names))
        rows = as_table(
            db,
            f"SELECT t.f, t.p, ({gets}) AS gets, t.c{meta} AS old, s.c{meta} AS new, {values} "
            f"FROM t JOIN s ON {same} WHERE {gets} OR {noted}",
        )
    return _edit(state, work, columns, rows)


def _edit(state: DeltaTableState, work: Fill, columns: Sequence[str], rows: pa.Table) -> tuple[RowEdit, int]:
    lacks = [rows.column(5 + i).is_null().to_pylist() for i in range(len(columns))]
    old, new = rows.column(3).to_pylist(), rows.column(4).to_pylist()
    notes = [
        merged(o, n, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns) if o or n else None
        for o, n, *lacking in zip(old, new, *lacks, strict=True)
    ]
    gets = rows.column(2).to_pylist()
    keep = np.flatnonzero([bool(g) or note != o for g, note, o in zip(gets, notes, old, strict=True)])
    rows_left = rows.take(pa.array(keep))
    at = np.stack([rows_left.column(i).to_numpy().astype(np.int64) for i in (0, 1)], axis=1)
    kinds = [f.type for f in fields_by_name(state, [work.meta])]
    assert kinds == ["string"], "notes are text"
    meta = pa.array([notes[i] for i in keep], pa.large_string())
    values = rows_left.select(range(5, 5 + len(columns))).rename_columns(list(columns)).append_column(work.meta, meta)
    return RowEdit(at, values), len(keep)


class DeltaFills(DeltaFacet):
    """Values for rows that lack them, in one commit."""

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Return the files whose statistics allow for a NULL in one of the columns; none once all backfills were
        through."""
        table_state = find(self.warehouse, ref)
        if table_state is None or table_state.state() is None:
            return FillSize(why_not="it has not been loaded yet")
        known = {f.name: f.physical for f in table_state.fields}
        if gone := sorted(columns.keys() - known.keys()):
            return FillSize(why_not=f"the destination has no column {', '.join(gone)}: see `instep plan`")
        left = [known[c] for c, number in columns.items() if number not in table_state.record.fills]
        found = [f for f in table_state.files if any(_may_lack(f, c) for c in left)]
        rows, weight = sum(rows_of(f) for f in found), sum(int(f["size"]) for f in found)
        return FillSize(len(found), rows, weight, len(table_state.files))

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Rows with NULL in a column get its value; a value that is there is never replaced. In one commit,
        so that nothing is asked in between. Cursor and accepted fingerprint stay."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        if (state := table_state.state()) is None:
            why = f"table {named(ref)} cannot be filled: it has not been loaded yet"
            raise DestinationError(why, hint="load the whole table again")
        change = DeltaCommit(table_state, table_state.record)
        edit, filled = _found(table_state, work)
        if len(edit.at):
            edited(change, [edit], (), commit)
        crashpoint("fill.rewritten")
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        fills = tuple(dict.fromkeys((*table_state.record.fills, *work.columns.values())))[-MOST_IDS:]
        change.record = replace(table_state.record.after_load(own, table_state.rows, new=0), fills=fills)
        change.land("UPDATE", own, self.warehouse)
        crashpoint("fill.committed")
        weight = sum(int(f["size"]) for f in change.add)
        on_progress(filled, weight)
        return Filled(filled, len(change.remove), weight)
