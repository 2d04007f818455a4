# ruff: noqa: S608 - columns are numbered, values are parameters
"""An upsert: what differs is found in DuckDB, the files that have such rows are rewritten, all in one commit.

One that is too large for this process is done by tasks (merge_parts.py), which find it with the same statements.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.base import Commit, LoadOutcome, Merge, Ref
from instep.destinations.delta.change import DeltaCommit
from instep.destinations.delta.files import check_ids, read_footer
from instep.destinations.delta.load import DeltaLoads, replaced
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
from instep.destinations.delta.table_state import DeltaTableState, named, require
from instep.destinations.delta.tasks import fits
from instep.destinations.delta.warehouse import Warehouse
from instep.destinations.types import duckdb_primitive
from instep.errors import DestinationError, SparkNeeded, StageError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Uuid
from instep.stage.spec import StagedFile, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DeltaMergeWork:
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
    def stamps(self) -> tuple[str, ...]:
        """System columns that are set and not compared."""
        return tuple(c for c in (self.system.synced, self.system.deleted) if c)

    @property
    def edits(self) -> tuple[str, ...]:
        """What an updated row gets."""
        return (*self.values, *self.stamps)

    @property
    def carried(self) -> tuple[str, ...]:
        """All columns of a staged row, `names` first."""
        return (*self.names, *(c.name for c in self.table.columns if c.name not in self.names))

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
        return f"SELECT count(*) - ({met}) FROM (SELECT DISTINCT {keys} FROM k)"


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


def _upsert(change: DeltaCommit, files: Sequence[StagedFile], work: DeltaMergeWork, commit: Commit) -> LoadOutcome:
    state, how = change.state, work.how
    with engine() as db:
        staged = staged_rows(state, work.names, files, work.brief)
        keys = staged_rows(state, how.key, how.keys) if how.keys else None
        refuse(state, *meet(db, work, staged, keys, table_rows(state, work.compared, work.brief)))
        found, absent = counts(db, work)
        by = state.next_by if how.complete and state.record.by is not None else None
        if found.keys() - {"returned"} or by is not None:
            edits, new = _edits(db, state, work, found, files)
            edited(change, edits, new, commit, by)
    return outcome(found, absent)


def outcome(found: Mapping[str, int], absent: int) -> LoadOutcome:
    """Return what a merge did."""
    left = found.get("marked", 0) + found.get("removed", 0)
    return LoadOutcome(
        found.get("inserted", 0), found.get("updated", 0), left, max(absent, 0), found.get("returned", 0)
    )


def meet(
    db: duckdb.DuckDBPyConnection,
    work: DeltaMergeWork,
    staged: pa.RecordBatchReader,
    keys: pa.RecordBatchReader | None,
    table: pa.RecordBatchReader,
) -> tuple[int, int]:
    """Make the tables s (one staged row a key) and met (every row, and what becomes of it). Returns how many staged
    rows have NULL in their key, and how many keys the table has more than once: with any, nothing may be written."""
    db.register("staged", staged)
    run(db, "CREATE TEMP TABLE r AS SELECT * FROM staged")
    lacks = " OR ".join(f"c{i} IS NULL" for i in range(len(work.how.key)))
    nulls = count(db, f"SELECT count(*) FROM r WHERE {lacks}")
    if keys is not None:
        db.register("bare", keys)
        run(db, "CREATE TEMP TABLE k AS SELECT * FROM bare")
        nulls += count(db, f"SELECT count(*) FROM k WHERE {lacks}")
    run(db, f"CREATE TEMP TABLE s AS {work.latest}")
    run(db, "DROP TABLE r")
    db.register("t", table)
    run(db, f"CREATE TEMP TABLE met AS {work.met}")
    db.unregister("t")
    return nulls, count(
        db,
        "SELECT count(*) FROM (SELECT n FROM met WHERE f IS NOT NULL AND n IS NOT NULL GROUP BY n HAVING count(*) > 1)",
    )


def refuse(state: DeltaTableState, nulls: int, twins: int) -> None:
    """Raise StageError for staged rows without a key, or a table with twins."""
    if nulls:
        raise StageError(
            f"table {named(state.ref)}: {nulls} staged rows have NULL in their key", hint="correct them at the source"
        )
    if twins:
        raise StageError(
            f"table {named(state.ref)} holds {twins} keys more than once: nothing was written",
            hint="`instep sync --full` rebuilds it",
        )


def counts(db: duckdb.DuckDBPyConnection, work: DeltaMergeWork) -> tuple[dict[str, int], int]:
    """Return how many rows what becomes of, and how many more keys the source has than rows of the table and staged
    ones have."""
    found = dict(db.execute("SELECT what, count(*) FROM met WHERE what IS NOT NULL GROUP BY what").fetchall())
    return found, count(db, work.absent) if work.how.keys else 0


def _edits(
    db: duckdb.DuckDBPyConnection,
    state: DeltaTableState,
    work: DeltaMergeWork,
    found: dict[str, int],
    files: Sequence[StagedFile],
) -> tuple[list[RowEdit], Iterator[pa.RecordBatch]]:
    edits = list[RowEdit]()
    new: Iterator[pa.RecordBatch] = iter(())
    if "updated" in found:
        at = places(db, "SELECT f, p, n FROM met WHERE what = 'updated' ORDER BY n")
        rows = pa.Table.from_batches(staged_at(state, work.edits, files, at[:, 2]))
        edits.append(RowEdit(at[:, :2], rows))
    if "marked" in found:
        at = places(db, "SELECT f, p FROM met WHERE what = 'marked'")
        edits.append(RowEdit(at, marks(state, work, latest_time(db, work), len(at))))
    if "removed" in found:
        edits.append(RowEdit(places(db, "SELECT f, p FROM met WHERE what = 'removed'")))
    if "inserted" in found:
        [numbers] = places(db, "SELECT n FROM met WHERE what = 'inserted' ORDER BY n").T
        new = staged_at(state, [c.name for c in work.table.columns], files, numbers)
    return edits, new


def latest_time(db: duckdb.DuckDBPyConnection, work: DeltaMergeWork) -> int | None:
    """Return the time of the staged rows in microseconds since 1970; None if they have none."""
    if not work.system.synced:
        return None
    [(at,)] = db.execute(f"SELECT epoch_us(max(c{work.names.index(work.system.synced)})) FROM s").fetchall()
    return at if at is None else int(at)


def marks(state: DeltaTableState, work: DeltaMergeWork, at: int | None, rows: int) -> pa.Table:
    """Return the system columns of rows that leave: the time is that of the staged rows, or this moment."""
    values = {work.system.synced: time.time_ns() // 1000 if at is None else at, work.system.deleted: True}
    kinds = {f.name: arrow_type(f.type) for f in fields_by_name(state, work.stamps)}
    return pa.table({n: pa.repeat(pa.scalar(values[n], kinds[n]), rows) for n in work.stamps})


class DeltaMerges(DeltaLoads):
    """Loads that change single rows."""

    def __init__(self, warehouse: Warehouse, prefix: str, upsert_rows: int) -> None:
        super().__init__(warehouse, prefix)
        self.upsert_rows = upsert_rows

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], how: Merge, commit: Commit
    ) -> LoadOutcome:
        """Merge by tasks of Spark what is too large for this process. StageError for staged rows without a key, or a
        table with twins."""
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
        work = DeltaMergeWork(table_state.record.table, how, SystemColumns.of(table_state.record.table, self.prefix))
        if how.since:
            done = _since(change, files, how, commit)
        elif fits(table_state, [*files, *how.keys], self.upsert_rows):
            done = _upsert(change, files, work, commit)
        elif spark is None:
            raise SparkNeeded(
                f"table {named(ref)} is too large to be merged without Spark",
                hint="set `engine: spark` in instep.yml, or raise `upsert_rows` of the destination",
            )
        else:
            from instep.destinations.delta.merge_parts import upsert_by_tasks

            done = upsert_by_tasks(spark, change, files, work, commit)
        left = how.deletes == "soft" and how.since is None and done.deleted > 0
        deleted = left and bool(work.system.deleted)
        before = table_state.rows
        gone = 0 if deleted else done.deleted
        rows = before + done.inserted - gone
        record = table_state.record if change.by is None else replace(table_state.record, by=None)
        change.record = record.after_load(commit, rows, files, new=done.inserted, deleted=deleted)
        change.land("MERGE", commit, self.warehouse)
        return done
