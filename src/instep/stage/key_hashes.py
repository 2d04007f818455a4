# ruff: noqa: S608 - columns are numbered
"""The number of rows that share their key with another one: tasks hash the keys, and equal hashes are counted.

A key is two hashes of 64 bits, of the same values in another form and order, so that two keys are not taken for one.
Values are equal as DuckDB compares them: a collation of the source that takes `a` and `A` for one says nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.errors import StageError
from instep.stage.duckdb_memory import duckdb_version, in_duckdb
from instep.stage.fold import MEMORY, Fold, Scan, slices


@dataclass(frozen=True)
class KeyTotals:
    """Counts of duplicate and NULL keys."""

    rows: int = 0
    duplicates: int = 0
    """Rows that another one has the key of."""
    nulls: int = 0
    """Rows with NULL in it."""


Side = tuple[Scan, Fold]
"""Rows, and what hashes their keys (a) and their values (b, c)."""
Hashes = npt.NDArray[np.int64]


class KeyCounter(Protocol):
    """Counter of hashed keys: an engine."""

    def count_keys(self, scan: Scan, hashes: Fold) -> KeyTotals: ...


HASHED = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("absent", pa.bool_())])
"""A key as two hashes, and whether NULL is in it."""


@dataclass(frozen=True)
class HashKeys:
    """Fold: the keys of a task's rows, as batches of HASHED. All of the columns that are read are the key's."""

    version: str = field(default_factory=duckdb_version)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each slice of rows. Raises StageError where another DuckDB hashes."""
        if self.version != duckdb_version():
            raise StageError(
                f"keys cannot be counted: workers have version {duckdb_version()} of DuckDB, the driver {self.version}",
                hint="give every worker the same environment as the driver",
            )
        with in_duckdb(MEMORY) as db:
            for rows in slices(map(_plain, batches)):
                db.register("coming", rows)
                yield from db.sql(_hashes(rows.schema)).to_arrow_table().combine_chunks().to_batches()
                db.unregister("coming")


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns named by position; an extension type becomes its storage."""
    columns = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])


def _hashes(schema: pa.Schema) -> str:
    others = [other_form(f, f.name) for f in reversed(list(schema))]
    absent = " OR ".join(f"{name} IS NULL" for name in schema.names)
    return f"SELECT {hashed_key(schema.names)} AS a, {hashed_key(others)} AS b, {absent} AS absent FROM coming"


def hashed_key(values: Sequence[str]) -> str:
    """Return the hash of values in SQL, as a number with a sign."""
    return f"(hash({', '.join(values)})::HUGEINT - 9223372036854775808)::BIGINT"


def other_form(column: pa.Field, name: str) -> str:
    """Return SQL for the value in a form that hashes differently; numbers of 64 bits have a hash of their own each."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return str(name)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return f"hex({name})"
    return f"{name}::VARCHAR || '~'"


def count_keys(engine: KeyCounter, rows: Scan | Iterable[pa.RecordBatch]) -> KeyTotals:
    """Count rows by their key, whose columns alone are read."""
    if isinstance(rows, Scan):
        return engine.count_keys(rows, HashKeys())
    return key_totals(HashKeys()(iter(rows)))


def key_totals(hashed: Iterable[pa.RecordBatch]) -> KeyTotals:
    """Count hashed keys in DuckDB, which spills to the disk."""
    with in_duckdb() as db:
        db.execute("CREATE TEMP TABLE hashed (a BIGINT, b BIGINT, absent BOOLEAN)")
        for batch in hashed:
            db.register("coming", pa.Table.from_batches([batch]))
            db.execute("INSERT INTO hashed SELECT * FROM coming")
            db.unregister("coming")
        [found] = db.execute(
            "SELECT coalesce(sum(n), 0), coalesce(sum(n - 1) FILTER (NOT absent), 0), coalesce(sum(n) FILTER (absent), "
            "0) FROM (SELECT absent, count(*) AS n FROM hashed GROUP BY a, b, absent)"
        ).fetchall()
    return KeyTotals(*map(int, found))


def differing(left: Iterable[pa.RecordBatch], right: Iterable[pa.RecordBatch], most: int) -> Hashes | None:
    """Return the hashes of keys that one of two sides has alone, or with other values; None if they are more than
    `most`. DuckDB compares them, and spills to the disk."""
    with in_duckdb() as db:
        db.execute("CREATE TEMP TABLE sides (a BIGINT, b BIGINT, c BIGINT, side TINYINT)")
        for side, batches in ((1, left), (-1, right)):
            for batch in batches:
                db.register("coming", pa.Table.from_batches([batch]))
                db.execute(f"INSERT INTO sides SELECT a, b, c, {side} FROM coming")
                db.unregister("coming")
        found = db.execute(
            "SELECT DISTINCT a FROM (SELECT a FROM sides GROUP BY a, b, c HAVING sum(side) <> 0) LIMIT ?", [most + 1]
        ).fetchnumpy()["a"]
    return np.sort(np.asarray(found, np.int64)) if len(found) <= most else None
