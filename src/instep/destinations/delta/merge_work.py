# ruff: noqa: S608 - columns are numbered, values are parameters
"""Rows that are joined by key, and the statements that say what becomes of them: the same in this process and in tasks.

Of a merge, staged rows and those of the table. Of a fill, rows that lack a value and values that were staged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import LoadOutcome, Merge
from instep.destinations.delta.files import staged_name
from instep.destinations.delta.rewrite import RowEdit
from instep.destinations.delta.rows import as_table, count, fields_by_name, run
from instep.destinations.delta.shape import arrow_type
from instep.destinations.delta.table_state import DeltaTableState, named
from instep.destinations.rows import latest_time, merged
from instep.errors import StageError
from instep.schema.catalog.catalog import Table
from instep.stage.spec import StagedFile, SystemColumns


@dataclass(frozen=True)
class DeltaMergeWork:
    """One merge. `names`: the columns of staged rows that decide it: key first, then those whose values are
    compared."""

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
        return (*self.how.key, *self.values)

    @property
    def stamped_columns(self) -> tuple[str, ...]:
        """System columns that are set and not compared."""
        return tuple(c for c in (self.system.synced, self.system.deleted) if c)

    @property
    def edits(self) -> tuple[str, ...]:
        """The columns that an updated row gets."""
        return (*self.values, *self.stamped_columns)

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns that are read of the table."""
        return (*self.how.key, *self.values, *((self.system.deleted,) if self.system.deleted else ()))

    @property
    def compared_only(self) -> frozenset[str]:
        """The columns that are only compared: the cursor has an order."""
        return frozenset(self.values).difference((self.how.cursor,))

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.c{i} = {b}.c{i}" for i in range(len(self.how.key)))

    def key(self, side: str) -> str:
        return ", ".join(f"{side}.c{i}" for i in range(len(self.how.key)))

    @property
    def latest(self) -> str:
        """One row a key: the highest by cursor, then the last one staged."""
        newest = f"{self.cursor_of('r')} DESC NULLS LAST, " if self.how.cursor else ""
        return f"SELECT * FROM r QUALIFY row_number() OVER (PARTITION BY {self.key('r')} ORDER BY {newest}n DESC) = 1"

    @property
    def differs(self) -> str:
        """The SQL for whether a value that is compared is another one on either side."""
        places = range(len(self.how.key), len(self.how.key) + len(self.values))
        return " OR ".join(f"t.c{i} IS DISTINCT FROM s.c{i}" for i in places) or "false"

    @property
    def deleted_condition(self) -> str:
        """The SQL for whether a row of the table is marked as deleted."""
        return f"coalesce(t.c{len(self.how.key) + len(self.values)}, false)" if self.system.deleted else "false"

    def cursor_of(self, side: str) -> str:
        """Return the cursor of a row in SQL; the merge has one."""
        return f"{side}.c{self.names.index(self.how.cursor)}"

    @property
    def outcome_sql(self) -> str:
        """The SQL for what becomes of a row of the table, of a staged one, or of both."""
        how, gone = self.how, self.deleted_condition
        newer = f"coalesce({self.cursor_of('s')} >= {self.cursor_of('t')}, true)" if how.cursor else "true"
        cases = [
            ("t.f IS NULL", "'inserted'"),
            (f"s.n IS NOT NULL AND {newer} AND ({gone} OR {self.differs})", "'updated'"),
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
    def joined(self) -> str:
        keys = ", ".join(f"c{i}" for i in range(len(self.how.key)))
        here, known = "false", ""
        if self.how.keys:
            here = "coalesce(k.here, false)"
            known = f" LEFT JOIN (SELECT DISTINCT {keys}, true AS here FROM k) k ON {self.same_key('t', 'k')}"
        return (
            f"SELECT t.f, t.p, s.n, {here} AS known, {self.outcome_sql} AS what "
            f"FROM {self._met_rows} FULL JOIN s ON {self.same_key('t', 's')}{known}"
        )

    @property
    def _met_rows(self) -> str:
        return "near AS t" if self.how.leaves_others else "t"

    @property
    def near(self) -> str:
        """The SQL for the rows of the table whose key comes: where the others stay, they pass by."""
        return f"SELECT t.* FROM t SEMI JOIN s ON {self.same_key('t', 's')}"

    @property
    def absent(self) -> str:
        """Counts the keys of the source that neither a row of the table nor a staged one has."""
        keys = ", ".join(f"c{i}" for i in range(len(self.how.key)))
        met = "SELECT count(*) FILTER (known OR what = 'inserted') FROM met"
        return f"SELECT count(*) - ({met}) FROM (SELECT DISTINCT {keys} FROM k)"


@dataclass(frozen=True)
class HashedMergeWork(DeltaMergeWork):
    """The same merge of rows that bear two hashes (h0, h1) of the values that are compared, and not these: what tasks
    deal out and join."""

    @property
    def differs(self) -> str:
        """The SQL for whether the values differ: they do if a hash does."""
        return "t.h0 <> s.h0 OR t.h1 <> s.h1"

    @property
    def deleted_condition(self) -> str:
        """The SQL for whether a row of the table is marked as deleted."""
        return "coalesce(t.deleted, false)" if self.system.deleted else "false"

    def cursor_of(self, side: str) -> str:
        """Return the cursor of a row in SQL."""
        return f"{side}.cursor"


def outcome(counted: Mapping[str, int], absent: int) -> LoadOutcome:
    """Return the outcome of a merge."""
    left = counted.get("marked", 0) + counted.get("removed", 0)
    return LoadOutcome(
        counted.get("inserted", 0), counted.get("updated", 0), left, max(absent, 0), counted.get("returned", 0)
    )


def join_by_key(
    db: duckdb.DuckDBPyConnection, work: DeltaMergeWork, keys: pa.RecordBatchReader | None
) -> tuple[int, int]:
    """Make the tables s (one staged row a key) and met (every row, and what becomes of it) of the staged rows r, which
    go, and those of the table, t. Returns how many staged rows have NULL in their key, and how many keys the table has
    more than once: with any, nothing may be written."""
    lacks = " OR ".join(f"c{i} IS NULL" for i in range(len(work.how.key)))
    nulls = count(db, f"SELECT count(*) FROM r WHERE {lacks}")
    if keys is not None:
        db.register("bare", keys)
        run(db, "CREATE TEMP TABLE k AS SELECT * FROM bare")
        nulls += count(db, f"SELECT count(*) FROM k WHERE {lacks}")
    run(db, f"CREATE TEMP TABLE s AS {work.latest}")
    run(db, "DROP TABLE r")
    if work.how.leaves_others:
        run(db, f"CREATE TEMP TABLE near AS {work.near}")
    run(db, f"CREATE TEMP TABLE met AS {work.joined}")
    return nulls, count(
        db,
        "SELECT count(*) FROM (SELECT n FROM met WHERE f IS NOT NULL AND n IS NOT NULL GROUP BY n HAVING count(*) > 1)",
    )


def load_both(db: duckdb.DuckDBPyConnection, staged: pa.RecordBatchReader, table: pa.RecordBatchReader) -> None:
    """Make the staged rows the table r; those of the table pass by as t."""
    db.register("staged", staged)
    run(db, "CREATE TEMP TABLE r AS SELECT * FROM staged")
    db.register("t", table)


def refuse(state: DeltaTableState, nulls: int, duplicates: int) -> None:
    """Raise StageError for staged rows without a key, or a table with twins."""
    if nulls:
        raise StageError(
            f"table {named(state.ref)}: {nulls} staged rows have NULL in their key", hint="correct them at the source"
        )
    if duplicates:
        raise StageError(
            f"table {named(state.ref)} holds {duplicates} keys more than once: nothing was written",
            hint="`instep backfill` reloads it",
        )


def counts(db: duckdb.DuckDBPyConnection, work: DeltaMergeWork) -> tuple[dict[str, int], int]:
    """Return how many rows what becomes of, and how many more keys the source has than rows of the table and staged
    ones have."""
    counted = dict(db.execute("SELECT what, count(*) FROM met WHERE what IS NOT NULL GROUP BY what").fetchall())
    return counted, count(db, work.absent) if work.how.keys else 0


def time_of_staged(state: DeltaTableState, work: DeltaMergeWork, files: Sequence[StagedFile]) -> int | None:
    """Return the time of the staged rows in microseconds since 1970; None if they have none."""
    if not work.system.synced:
        return None
    [field] = fields_by_name(state, [work.system.synced])
    times = [latest_time([file], staged_name(file, field)) for file in files]
    return max((at for at in times if at is not None), default=None)


def marks(state: DeltaTableState, work: DeltaMergeWork, at: int | None, rows: int) -> pa.Table:
    """Return the system columns of rows that leave: the time is that of the staged rows, or this moment."""
    values = {work.system.synced: time.time_ns() // 1000 if at is None else at, work.system.deleted: True}
    kinds = {f.name: arrow_type(f.type) for f in fields_by_name(state, work.stamped_columns)}
    return pa.table({n: pa.repeat(pa.scalar(values[n], kinds[n]), rows) for n in work.stamped_columns})


@dataclass(frozen=True)
class FillWork:
    """One fill, as tasks take it. `meta`: the column that notes what a row lacks; "" where nothing is noted."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    meta: str = ""

    @cached_property
    def edits(self) -> tuple[str, ...]:
        """The columns that a row gets."""
        return (*self.columns, self.meta) if self.meta else self.columns

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of both sides."""
        return (*self.key, *self.edits)

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.c{i} = {b}.c{i}" for i in range(len(self.key)))


def filled_rows(
    db: duckdb.DuckDBPyConnection, work: FillWork, values: pa.RecordBatchReader, table: pa.RecordBatchReader
) -> RowEdit:
    """Return what becomes of rows that get one of the values, or another note."""
    places = range(len(work.key), len(work.key) + len(work.columns))
    gets = " OR ".join(f"(t.c{i} IS NULL AND s.c{i} IS NOT NULL)" for i in places)
    old, new = (f"{side}.c{places.stop}" if work.meta else "NULL::VARCHAR" for side in "ts")
    filled = ", ".join(f"coalesce(t.c{i}, s.c{i}) AS v{i}" for i in places)
    some = "true" if work.meta else " OR ".join(f"c{i} IS NOT NULL" for i in places)
    db.register("came", values)
    run(db, f"CREATE TEMP TABLE s AS SELECT * FROM came WHERE {some}")
    db.register("t", table)
    rows = as_table(
        db,
        f"SELECT t.f, t.p, CASE WHEN {gets} THEN 1 ELSE 0 END AS gets, {old} AS old, {new} AS new, {filled} "
        f"FROM t JOIN s ON {work.same_key('t', 's')} WHERE {gets} OR {old} IS NOT NULL OR {new} IS NOT NULL",
    )
    return _edit(work, rows)


def _edit(work: FillWork, rows: pa.Table) -> RowEdit:
    """Return the rows that get a value, and those whose note changes. Few rows have a note."""
    columns, changes = work.columns, rows.column(2).to_numpy().astype(np.bool_)
    notes = np.full(len(rows), None, dtype=object)
    noted = np.flatnonzero(pc.or_(rows.column(3).is_valid(), rows.column(4).is_valid()).to_numpy())
    if len(noted):
        some = rows.take(pa.array(noted))
        old, new = some.column(3).to_pylist(), some.column(4).to_pylist()
        lacks = [some.column(5 + i).is_null().to_pylist() for i in range(len(columns))]
        notes[noted] = [
            merged(o, n, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns)
            for o, n, *lacking in zip(old, new, *lacks, strict=True)
        ]
        changes[noted] |= np.array([note != o for note, o in zip(notes[noted], old, strict=True)], dtype=np.bool_)
    keep = np.flatnonzero(changes)
    left = rows.take(pa.array(keep))
    at = np.stack([left.column(i).to_numpy().astype(np.int64) for i in (0, 1)], axis=1)
    values = left.select(range(5, 5 + len(columns))).rename_columns(list(columns))
    if work.meta:
        values = values.append_column(work.meta, pa.array(notes[keep], pa.large_string()))
    return RowEdit(at, values)
