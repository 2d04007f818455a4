# ruff: noqa: S608 - columns are numbered
"""Which rows of a table lack a value that was staged, and what becomes of their notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa

from instep.destinations.base import Fill
from instep.destinations.delta.rewrite import RowEdit
from instep.destinations.delta.rows import as_table, run
from instep.destinations.rows import merged


@dataclass(frozen=True)
class FillWork:
    """One fill, as tasks take it: columns are those of both sides, and none is only compared."""

    how: Fill
    brief: frozenset[str] = frozenset()

    @cached_property
    def edits(self) -> tuple[str, ...]:
        """What a row gets."""
        return (*self.how.columns, self.how.meta)

    @cached_property
    def compared(self) -> tuple[str, ...]:
        """What is read of the table."""
        return (*self.how.key, *self.edits)

    @property
    def carried(self) -> tuple[str, ...]:
        """What is read of staged files."""
        return self.compared

    def same_key(self, a: str, b: str) -> str:
        return " AND ".join(f"{a}.c{i} = {b}.c{i}" for i in range(len(self.how.key)))


def filled_rows(
    db: duckdb.DuckDBPyConnection, work: FillWork, staged: pa.RecordBatchReader, table: pa.RecordBatchReader
) -> RowEdit:
    """Return what becomes of rows that get a value or another note."""
    first, columns = len(work.how.key), list(work.how.columns)
    places = range(first, first + len(columns))
    meta = first + len(columns)
    gets = " OR ".join(f"(t.c{i} IS NULL AND s.c{i} IS NOT NULL)" for i in places)
    noted = f"t.c{meta} IS NOT NULL OR s.c{meta} IS NOT NULL"
    values = ", ".join(f"coalesce(t.c{i}, s.c{i}) AS v{i}" for i in places)
    db.register("staged", staged)
    run(db, "CREATE TEMP TABLE s AS SELECT * FROM staged")
    db.register("t", table)
    rows = as_table(
        db,
        f"SELECT t.f, t.p, ({gets}) AS gets, t.c{meta} AS old, s.c{meta} AS new, {values} "
        f"FROM t JOIN s ON {work.same_key('t', 's')} WHERE {gets} OR {noted}",
    )
    return _edit(work.how.meta, columns, rows)


def _edit(note: str, columns: Sequence[str], rows: pa.Table) -> RowEdit:
    lacks = [rows.column(5 + i).is_null().to_pylist() for i in range(len(columns))]
    old, new = rows.column(3).to_pylist(), rows.column(4).to_pylist()
    notes = [
        merged(o, n, {c for c, lack in zip(columns, lacking, strict=True) if lack}, columns) if o or n else None
        for o, n, *lacking in zip(old, new, *lacks, strict=True)
    ]
    gets = rows.column(2).to_pylist()
    keep = np.flatnonzero([bool(g) or note != o for g, note, o in zip(gets, notes, old, strict=True)])
    left = rows.take(pa.array(keep))
    at = np.stack([left.column(i).to_numpy().astype(np.int64) for i in (0, 1)], axis=1)
    meta = pa.array([notes[i] for i in keep], pa.large_string())
    values = left.select(range(5, 5 + len(columns))).rename_columns(list(columns)).append_column(note, meta)
    return RowEdit(at, values)
