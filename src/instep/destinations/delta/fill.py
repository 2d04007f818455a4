"""Backfill columns of a Delta table: join staged values by key and rewrite the files.

Values of a column that was dropped and came back, from the version before the drop.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.crash import crashpoint
from instep.destinations.base import HERE, BackfillResult, Commit, FileWorkers, Fill, FillSize, Ref
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.merge_parts import EarlierValues, fill_by_tasks
from instep.destinations.delta.merge_work import FillWork, filled_rows
from instep.destinations.delta.protocol.snapshot import Action, rows_of
from instep.destinations.delta.retention import version_before
from instep.destinations.delta.rewrite import edited
from instep.destinations.delta.rows import engine, staged_rows, table_rows
from instep.destinations.delta.shape import BEFORE
from instep.destinations.delta.table_state import DeltaTableState, find, named, require
from instep.destinations.delta.tasks import fits_in_process
from instep.destinations.delta.warehouse import DeltaFacet
from instep.destinations.parts import is_large
from instep.destinations.sql.records import MOST_IDS
from instep.errors import DestinationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def may_lack(file: Action, column: str) -> bool:
    place = file.get("partitionValues") or {}
    if column in place:
        return not place[column]
    stats = json.loads(file.get("stats") or "{}")
    return bool(stats.get("numRecords", 1) and stats.get("nullCount", {}).get(column) != 0)


def _fill(change: DeltaCommit, work: FillWork, values: pa.RecordBatchReader, commit: Commit) -> int:
    """Put the files with the values into the change; returns how many rows get one."""
    with engine() as db:
        edit = filled_rows(db, work, values, table_rows(change.state, work.names))
    if len(edit.at):
        edited(change, [edit], (), commit)
    return len(edit.at)


class DeltaFills(DeltaFacet):
    """Values for rows that lack them, in one commit."""

    upsert_rows: int

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        """Return the files whose statistics allow for a NULL in one of the columns; none once all backfills were
        through."""
        table_state = find(self.warehouse, ref)
        if table_state is None or table_state.state() is None:
            return FillSize(why_not="it has not been loaded yet")
        physical = {f.name: f.physical for f in table_state.fields}
        if gone := sorted(columns.keys() - physical.keys()):
            return FillSize(why_not=f"the destination has no column {', '.join(gone)}: see `instep plan`")
        left = [physical[c] for c, number in columns.items() if number not in table_state.record.fills]
        lacking = [f for f in table_state.own.each() if any(may_lack(f, c) for c in left)]
        rows, weight = sum(rows_of(f) for f in lacking), sum(int(f["size"]) for f in lacking)
        return FillSize(len(lacking), rows, weight, len(table_state.own))

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        work: Fill,
        commit: Commit,
        on_progress: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> BackfillResult:
        """Fill NULLs of a column with its value, never replacing a value, in one commit. Cursor and accepted
        fingerprint stay."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        if (state := table_state.state()) is None:
            why = f"table {named(ref)} cannot be filled: it has not been loaded yet"
            raise DestinationError(why, hint="load the whole table again")
        change = DeltaCommit(table_state, table_state.record)
        what = FillWork(work.key, tuple(work.columns), work.meta)
        if fits_in_process(table_state, work.values, self.upsert_rows):
            filled = _fill(change, what, staged_rows(table_state, what.names, work.values), commit)
        else:
            filled = fill_by_tasks(session, change, what, work.values, commit)
        crashpoint("fill.rewritten")
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        fills = tuple(dict.fromkeys((*table_state.record.fills, *work.columns.values())))[-MOST_IDS:]
        change.record = replace(table_state.record.after_load(own, table_state.rows, new=0), fills=fills)
        change.land("UPDATE", own, self.warehouse)
        crashpoint("fill.committed")
        weight = sum(int(f["size"]) for f in change.add)
        on_progress(filled, weight)
        return BackfillResult(filled, len(change.remove), weight)


def _names_then(state: DeltaTableState, before: DeltaTableState, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return what columns were called in an older version; None if one was not there."""
    then = {f.physical: f.name for f in before.columns}
    now = {f.name: f.physical for f in state.columns}
    old_names = tuple(then[now[n]] for n in names if now[n] in then)
    return old_names if len(old_names) == len(names) else None


class DeltaRestoredValues(DeltaFacet):
    """Values of dropped columns that come back."""

    upsert_rows: int

    def restore_dropped_values(self, ref: Ref, column: str, commit: Commit, workers: FileWorkers = HERE) -> int:
        """Write the values of an undropped column back in one commit; return the number of rows that got one.

        Rows that have a value keep it. It is a fill whose values are those of the version before the drop.
        """
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        key, state = table_state.record.table.key, table_state.state()
        restored = next(f for f in table_state.columns if f.name == column)
        before = version_before(table_state, int(restored.facts[BEFORE])) if BEFORE in restored.facts else None
        names = _names_then(table_state, before, (*key, column)) if before else None
        if not key or before is None or names is None or state is None:
            return 0
        lacking = frozenset(n for n, f in enumerate(table_state.files) if may_lack(f, restored.physical))
        own = replace(commit, cursor=state.cursor, accepted=state.accepted)
        change = DeltaCommit(table_state, table_state.record.after_load(own, table_state.rows, new=0))
        work = FillWork(key, (column,))
        if not lacking:
            return 0
        if is_large(table_state.rows + before.rows, table_state.bytes + before.bytes, self.upsert_rows):
            filled = fill_by_tasks(workers.session(), change, work, EarlierValues(before, names, lacking), commit)
        else:
            filled = _fill(change, work, table_rows(before, names), commit)
        if filled:
            change.land("UPDATE", own, self.warehouse)
            workers.on_progress(filled, sum(int(f["size"]) for f in change.add))
        return filled
