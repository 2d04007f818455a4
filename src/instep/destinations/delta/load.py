# ruff: noqa: S608 - columns are numbered, values are parameters
"""Loads without a change of single rows: claim, append and overwrite, by adopting the files that the tasks wrote.

An upsert: what differs is found in DuckDB, the files that have such rows are rewritten, all in one commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.base import Commit, LoadOutcome, Merge, Ref, SparkStart
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import adopted, check_ids, copied, path_of, read_footer, remove_files, staged_path
from instep.destinations.delta.log import Action, rows_of
from instep.destinations.delta.rewrite import RowEdit, edited
from instep.destinations.delta.rows import (
    count,
    engine,
    fields_by_name,
    places,
    run,
    staged_at,
    staged_rows,
    table_rows,
)
from instep.destinations.delta.shape import arrow_type
from instep.destinations.delta.table_state import DeltaTableState, find, named, require, with_stored
from instep.destinations.delta.warehouse import DeltaFacet, Warehouse
from instep.destinations.types import duckdb_primitive
from instep.errors import Conflict, DestinationError, Fenced, StageError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Uuid
from instep.stage.spec import StagedFile, SystemColumns

TRIES = 5
T = TypeVar("T")


def again(attempt: Callable[[], T]) -> T:
    """Try it on the table as it is by then, if somebody else was faster; never behind a later run's back."""
    for left in range(TRIES - 1, -1, -1):
        try:
            return attempt()
        except Fenced:
            raise
        except Conflict:
            if not left:
                raise
    raise AssertionError("the last try returns or raises")


def _claim(warehouse: Warehouse, ref: Ref, fence: int) -> None:
    state = find(warehouse, ref)
    if state is None or state.record.fence == fence:
        return
    state.record.check(fence)
    DeltaCommit(state, replace(state.record, fence=fence)).land("CLAIM", Commit("", fence), warehouse)


def replaced(ref: Ref) -> DestinationError:
    return DestinationError(f"table {named(ref)} was replaced: load it whole", hint="run `instep sync --full`")


def _append(warehouse: Warehouse, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
    state = require(warehouse, ref)
    state.record.check(commit.fence)
    if state.record.pending is not None:
        raise replaced(ref)
    loaded = state.record.loaded
    if files and loaded and loaded.last == tuple(sorted(f.path for f in files)):
        return LoadOutcome()
    added = adopted(state, state.fields, files, commit.run, state.by)
    count = sum(rows_of(a) for a in added)
    record = state.record.after_load(commit, state.rows + count, files, new=count)
    DeltaCommit(state, record, add=added).land("WRITE", commit, warehouse)
    _clear(state, files, added)
    return LoadOutcome(inserted=count)


def _clear(state: DeltaTableState, files: Sequence[StagedFile], added: Sequence[Action]) -> None:
    """Staged files whose rows were rewritten have served."""
    new_paths = {path_of(state, a) for a in added}
    remove_files(state, (f for f in files if staged_path(state, f) not in new_paths))


def _overwrite(
    warehouse: Warehouse, ref: Ref, files: Sequence[StagedFile], commit: Commit, *, copy: bool
) -> LoadOutcome:
    state = require(warehouse, ref)
    state.record.check(commit.fence)
    before = state.record.loaded.rows if state.record.loaded else 0
    pending = state.record.pending is not None
    fields, by, record = state.fields, state.next_by, replace(state.record, by=None)
    if record.pending is not None:
        fields = state.waiting
        fresh = replace(record, table=record.pending, pending=None, loaded=None, parked=(), numbers={}, fills=())
        record = with_stored(fresh, fields, {})
    added = (copied if copy else adopted)(state, fields, files, commit.run, by)
    rows = sum(rows_of(a) for a in added)
    record = record.after_load(commit, rows, files, new=rows, anew=True)
    change = DeltaCommit(state, record, fields if pending else None, added, [*state.paths], by=by)
    change.land("WRITE", commit, warehouse)
    if not copy:
        _clear(state, files, added)
    return LoadOutcome(inserted=rows, deleted=before)


class DeltaLoads(DeltaFacet):
    """Loads of whole files."""

    def claim(self, ref: Ref, fence: int) -> None:
        """From now on a lower fence is refused. A table that is not there is fine."""
        if find(self.warehouse, ref) is not None:
            with self.warehouse.moving():
                again(lambda: _claim(self.warehouse, ref, fence))

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        """The rows are added; files that the table has already are not brought again."""
        return again(lambda: _append(self.warehouse, ref, files, commit))

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit, *, copy: bool = False) -> LoadOutcome:
        """Return the staged rows in the place of all that were, with the generation that waits, if one does. `copy`:
        the files stay the caller's."""
        return again(lambda: _overwrite(self.warehouse, ref, files, commit, copy=copy))


@dataclass(frozen=True)
class _DeltaMerge:
    """One merge. `names`: the columns of staged rows that decide it: key first, then those whose values are compared,
    then the time."""

    table: Table
    how: Merge
    system: SystemColumns

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Columns whose values are compared: retained and unread ones are not."""
        out = {self.system.synced, self.system.deleted, *self.how.key, *self.how.unread}
        return tuple(c.name for c in self.table.live if c.name not in out)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (*self.how.key, *self.values, *([self.system.synced] if self.system.synced else []))

    @property
    def compared(self) -> tuple[str, ...]:
        """What is read of the table."""
        return (*self.how.key, *self.values, *((self.system.deleted,) if self.system.deleted else ()))

    @property
    def brief(self) -> frozenset[str]:
        """What is compared and nothing else: the cursor has an order."""
        return frozenset(self.values).difference((self.how.cursor,))

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.c{i} = {b}.c{i}" for i in range(len(self.how.key)))

    def key(self, side: str) -> str:
        return ", ".join(f"{side}.c{i}" for i in range(len(self.how.key)))

    @property
    def latest(self) -> str:
        """One row a key: the highest by cursor, then the last one staged."""
        newest = f"c{self.names.index(c)} DESC NULLS LAST, " if (c := self.how.cursor) else ""
        return f"SELECT * FROM r QUALIFY row_number() OVER (PARTITION BY {self.key('r')} ORDER BY {newest}n DESC) = 1"

    @property
    def what(self) -> str:
        """What becomes of a row of the table, of a staged one, or of both."""
        how, first = self.how, len(self.how.key)
        gone = f"coalesce(t.c{first + len(self.values)}, false)" if self.system.deleted else "false"
        differs = [gone, *(f"t.c{i} IS DISTINCT FROM s.c{i}" for i in range(first, first + len(self.values)))]
        newer = f"coalesce(s.c{(c := self.names.index(how.cursor))} >= t.c{c}, true)" if how.cursor else "true"
        cases = [
            ("t.f IS NULL", "'inserted'"),
            (f"s.n IS NOT NULL AND {newer} AND ({' OR '.join(differs)})", "'updated'"),
        ]
        if how.keys:  # also of a row that came, and is older
            cases.append(("k.here", f"CASE WHEN {gone} THEN 'returned' END"))
        cases.append(("s.n IS NOT NULL", "NULL"))
        if (how.complete or how.keys) and how.deletes == "hard":
            cases.append(("true", "'removed'"))
        if (how.complete or how.keys) and how.deletes == "soft" and self.system.deleted:
            cases.append((f"NOT {gone}", "'marked'"))
        return "CASE " + " ".join(f"WHEN {when} THEN {then}" for when, then in cases) + " END"

    @property
    def met(self) -> str:
        keys = ", ".join(f"c{i}" for i in range(len(self.how.key)))
        here, known = "false", ""
        if self.how.keys:
            here = "coalesce(k.here, false)"
            known = f" LEFT JOIN (SELECT DISTINCT {keys}, true AS here FROM k) k ON {self.same_key('t', 'k')}"
        return (
            f"SELECT t.f, t.p, s.n, {here} AS known, {self.what} AS what "
            f"FROM t FULL JOIN s ON {self.same_key('t', 's')}{known}"
        )

    @property
    def absent(self) -> str:
        """Counts the keys of the source that neither a row of the table nor a staged one has."""
        keys = ", ".join(f"c{i}" for i in range(len(self.how.key)))
        met = "SELECT count(*) FILTER (known OR what = 'inserted') FROM met"
        return f"SELECT greatest(count(*) - ({met}), 0) FROM (SELECT DISTINCT {keys} FROM k)"


def _since(change: DeltaCommit, files: Sequence[StagedFile], how: Merge, commit: Commit) -> LoadOutcome:
    """Return the staged rows in the place of those from a value on."""
    assert how.since is not None, "asked for by the caller"
    column, low = how.since
    state = change.state
    kind = state.record.table.by_name[column].type
    spelled = "VARCHAR" if isinstance(kind, Uuid) else duckdb_primitive(kind)
    names = [f.name for f in state.fields]
    with engine() as db:
        db.register("t", table_rows(state, [column]))
        found = db.execute(f"SELECT f, p FROM t WHERE c0 >= CAST(? AS {spelled})", [low]).fetchnumpy()
        gone = np.stack([found["f"].astype(np.int64), found["p"].astype(np.int64)], axis=1)
    edited(change, [RowEdit(gone)], staged_at(state, names, files), commit)
    return LoadOutcome(inserted=sum(f.rows for f in files), deleted=len(gone))


def _upsert(change: DeltaCommit, files: Sequence[StagedFile], how: Merge, commit: Commit, prefix: str) -> LoadOutcome:
    state = change.state
    work = _DeltaMerge(state.record.table, how, SystemColumns.of(state.record.table, prefix))
    with engine() as db:
        _meet(db, state, work, files)
        found = dict(db.execute("SELECT what, count(*) FROM met WHERE what IS NOT NULL GROUP BY what").fetchall())
        absent, returned = count(db, work.absent) if how.keys else 0, found.pop("returned", 0)
        by = state.next_by if how.complete and state.record.by is not None else None
        if found or by is not None:
            edits, new = _edits(db, state, work, found, files)
            edited(change, edits, new, commit, by)
    return LoadOutcome(
        found.get("inserted", 0),
        found.get("updated", 0),
        found.get("marked", 0) + found.get("removed", 0),
        absent,
        returned,
    )


def _meet(
    db: duckdb.DuckDBPyConnection, state: DeltaTableState, work: _DeltaMerge, files: Sequence[StagedFile]
) -> None:
    """Make the tables s (one staged row a key) and met (every row, and what becomes of it)."""
    db.register("staged", staged_rows(state, work.names, files, work.brief))
    run(db, "CREATE TEMP TABLE r AS SELECT * FROM staged")
    lacks = " OR ".join(f"c{i} IS NULL" for i in range(len(work.how.key)))
    nulls = count(db, f"SELECT count(*) FROM r WHERE {lacks}")
    if work.how.keys:
        db.register("bare", staged_rows(state, work.how.key, work.how.keys))
        run(db, "CREATE TEMP TABLE k AS SELECT * FROM bare")
        nulls += count(db, f"SELECT count(*) FROM k WHERE {lacks}")
    if nulls:
        raise StageError(
            f"table {named(state.ref)}: {nulls} staged rows have NULL in their key", hint="correct them at the source"
        )
    run(db, f"CREATE TEMP TABLE s AS {work.latest}")
    run(db, "DROP TABLE r")
    db.register("t", table_rows(state, work.compared, work.brief))
    run(db, f"CREATE TEMP TABLE met AS {work.met}")
    db.unregister("t")
    if twins := count(
        db,
        "SELECT count(*) FROM (SELECT n FROM met WHERE f IS NOT NULL AND n IS NOT NULL GROUP BY n HAVING count(*) > 1)",
    ):
        raise StageError(
            f"table {named(state.ref)} holds {twins} keys more than once: nothing was written",
            hint="`instep sync --full` rebuilds it",
        )


def _edits(
    db: duckdb.DuckDBPyConnection,
    state: DeltaTableState,
    work: _DeltaMerge,
    found: dict[str, int],
    files: Sequence[StagedFile],
) -> tuple[list[RowEdit], Iterator[pa.RecordBatch]]:
    edits = list[RowEdit]()
    new: Iterator[pa.RecordBatch] = iter(())
    stamps = [c for c in (work.system.synced, work.system.deleted) if c]
    if "updated" in found:
        at = places(db, "SELECT f, p, n FROM met WHERE what = 'updated' ORDER BY n")
        rows = pa.Table.from_batches(staged_at(state, [*work.values, *stamps], files, at[:, 2]))
        edits.append(RowEdit(at[:, :2], rows))
    if "marked" in found:
        at = places(db, "SELECT f, p FROM met WHERE what = 'marked'")
        edits.append(RowEdit(at, _marks(db, state, work, stamps, len(at))))
    if "removed" in found:
        edits.append(RowEdit(places(db, "SELECT f, p FROM met WHERE what = 'removed'")))
    if "inserted" in found:
        [numbers] = places(db, "SELECT n FROM met WHERE what = 'inserted' ORDER BY n").T
        new = staged_at(state, [c.name for c in work.table.columns], files, numbers)
    return edits, new


def _marks(
    db: duckdb.DuckDBPyConnection, state: DeltaTableState, work: _DeltaMerge, stamps: Sequence[str], rows: int
) -> pa.Table:
    """Return the system columns of rows that leave: the time is that of the staged rows."""
    at: Any = None
    if work.system.synced:
        [(at,)] = db.execute(f"SELECT epoch_us(max(c{work.names.index(work.system.synced)})) FROM s").fetchall()
    now = int(at) if at is not None else time.time_ns() // 1000
    values = {work.system.synced: now, work.system.deleted: True}
    kinds = {f.name: arrow_type(f.type) for f in fields_by_name(state, stamps)}
    return pa.table({n: pa.repeat(pa.scalar(values[n], kinds[n]), rows) for n in stamps})


class DeltaMerges(DeltaLoads):
    """Loads that change single rows."""

    def merge(
        self, spark: SparkStart | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge without Spark. StageError for staged rows without a key, or a table with twins."""
        table_state = require(self.warehouse, ref)
        table_state.record.check(commit.fence)
        if table_state.record.pending is not None:
            if not how.complete:
                raise replaced(ref)
            return self.overwrite(ref, files, commit, copy=True)
        if not how.key and how.since is None:
            raise DestinationError(f"table {named(ref)} has no key to merge by", hint="name one in `key:`")
        change = DeltaCommit(table_state, table_state.record)
        for file in files:
            check_ids(table_state, file, read_footer(file), table_state.fields)
        outcome = _since(change, files, how, commit) if how.since else _upsert(change, files, how, commit, self.prefix)
        marks = how.deletes == "soft" and how.since is None and outcome.deleted > 0
        deleted = marks and bool(SystemColumns.of(table_state.record.table, self.prefix).deleted)
        before = table_state.rows
        gone = 0 if marks and deleted else outcome.deleted
        rows = before + outcome.inserted - gone
        record = table_state.record if change.by is None else replace(table_state.record, by=None)
        change.record = record.after_load(commit, rows, files, new=outcome.inserted, deleted=deleted)
        change.land("MERGE", commit, self.warehouse)
        return outcome
