# ruff: noqa: S608 - columns are numbered
"""The number of rows that share their key with another one, and of those whose values are other ones than before: tasks
hash keys and values, and equal hashes are counted.

A key is two hashes of 64 bits, of the same values in another form and order, so that two keys are not taken for one.
Values are equal as DuckDB compares them: a collation of the source that takes `a` and `A` for one says nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.errors import StageError
from instep.stage.duckdb_memory import duckdb_version, in_duckdb
from instep.stage.fold import MEMORY, Fold, Scan, slices

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class KeyTotals:
    """Counts of duplicate and NULL keys."""

    rows: int = 0
    duplicates: int = 0
    """Rows whose key another row has."""
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
        check_version(self.version)
        with in_duckdb(MEMORY) as db:
            for rows in slices(map(_plain, batches)):
                db.register("coming", rows)
                yield from (
                    db.sql(f"SELECT {key_hashes(rows.schema)} FROM coming")
                    .to_arrow_table()
                    .combine_chunks()
                    .to_batches()
                )
                db.unregister("coming")


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with columns named by position; an extension type becomes its storage."""
    columns = [c.storage if isinstance(c, pa.ExtensionArray) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{at}" for at in range(len(columns))])


def key_hashes(schema: pa.Schema) -> str:
    """Return the hashes of keys as columns of HASHED in SQL; all columns of the schema are the key's."""
    others = [other_form(f, f.name) for f in reversed(list(schema))]
    absent = " OR ".join(f"{name} IS NULL" for name in schema.names)
    return f"{hashed_key(schema.names)} AS a, {hashed_key(others)} AS b, {absent} AS absent"


def check_version(version: str) -> None:
    """Raise StageError where another DuckDB hashes than the driver's."""
    if version != duckdb_version():
        raise StageError(
            f"rows cannot be compared: workers have version {duckdb_version()} of DuckDB, the driver {version}",
            hint="give every worker the same environment as the driver",
        )


def hashable(db: duckdb.DuckDBPyConnection, names: Sequence[str]) -> list[str]:
    """Return the columns of `coming` that are compared, as SQL whose hash tells different values apart."""
    kinds = db.sql(f"SELECT {', '.join(names)} FROM coming LIMIT 0").types
    return [_hashed(name, kind) for name, kind in zip(names, kinds, strict=True)]


def _hashed(value: str, kind: Any, depth: int = 0) -> str:
    """Return a value, or a hash of a nested one: `hash` skips the NULLs, the lengths and the ends of what is in it."""
    if kind.id in ("list", "array"):
        element = f"e{depth}"
        each = f"hash({_hashed(element, dict(kind.children)['child'], depth + 1)})"
        return f"hash({value} IS NULL, len({value}), list_transform({value}, lambda {element}: {each}))"
    if kind.id == "struct":
        fields = (
            f"hash({_hashed(f'struct_extract_at({value}, {at})', child, depth)})"
            for at, (_, child) in enumerate(kind.children, 1)
        )
        return f"hash({value} IS NULL, {', '.join(fields)})"
    return value


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
        [totals] = db.execute(
            "SELECT coalesce(sum(n), 0), coalesce(sum(n - 1) FILTER (NOT absent), 0), coalesce(sum(n) FILTER (absent), "
            "0) FROM (SELECT absent, count(*) AS n FROM hashed GROUP BY a, b, absent)"
        ).fetchall()
    return KeyTotals(*map(int, totals))


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
        arrays = db.execute(
            "SELECT DISTINCT a FROM (SELECT a FROM sides GROUP BY a, b, c HAVING sum(side) <> 0) LIMIT ?", [most + 1]
        ).fetchnumpy()["a"]
    return np.sort(np.asarray(arrays, np.int64)) if len(arrays) <= most else None


@dataclass(frozen=True)
class ColumnTotals:
    """Counts by column: rows that have a value, and rows whose key both sides have but whose values differ."""

    filled: tuple[int, ...]
    differing: tuple[int, ...]

    @classmethod
    def of(cls, values: Sequence[int | None], columns: int) -> ColumnTotals:
        """Return the totals of an answer: first those that are filled, then those that differ."""
        numbers = [int(value or 0) for value in values]
        return cls(tuple(numbers[:columns]), tuple(numbers[columns:]))


@dataclass(frozen=True)
class HashColumns:
    """Fold: hashes of the texts of keys (a, b) and of values (v0, v1, ...; NULL for none), by the places of their
    columns among those that are read. Values of two types are the same if their texts are."""

    key: tuple[int, ...]
    values: tuple[int, ...]
    version: str = field(default_factory=duckdb_version)

    @property
    def names(self) -> list[str]:
        """The columns of the results."""
        return ["a", "b", *(f"v{n}" for n in range(len(self.values)))]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one batch for each slice of rows. Raises StageError where another DuckDB hashes."""
        check_version(self.version)
        key = [f"c{at}::VARCHAR" for at in self.key]
        other = [f"{text} || '~'" for text in reversed(key)]
        hashes = [hashed_key(some) if some else "0::BIGINT" for some in (key, other)]
        hashes += [f"if(c{at} IS NULL, NULL, {hashed_key([f'c{at}::VARCHAR'])})" for at in self.values]
        sql = ", ".join(f"{hashed} AS {name}" for hashed, name in zip(hashes, self.names, strict=True))
        with in_duckdb(MEMORY, lossless=True) as db:
            for rows in slices(batches):
                db.register("coming", rows.rename_columns([f"c{at}" for at in range(rows.num_columns)]))
                yield from db.sql(f"SELECT {sql} FROM coming").to_arrow_table().combine_chunks().to_batches()
                db.unregister("coming")


@dataclass(frozen=True)
class ColumnSides:
    """Two sides of a table, the values of `then` beside the first ones of `now`."""

    now: HashColumns
    then: HashColumns

    def sql(self, now: str, then: str) -> str:
        """Return the totals of hashed rows in SQL that DuckDB and Spark share, by the names of both sides."""
        filled = [f"count(n.v{at})" for at in range(len(self.now.values))]
        differ = [f"t.a IS NOT NULL AND n.v{at} IS DISTINCT FROM t.v{at}" for at in range(len(self.then.values))]
        sums = ", ".join([*filled, *(f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)" for condition in differ)])
        joined = f" LEFT JOIN {then} t ON n.a = t.a AND n.b = t.b" if differ else ""
        return f"SELECT {sums} FROM {now} n{joined}"


def count_columns(now: Iterable[pa.RecordBatch], then: Iterable[pa.RecordBatch], sides: ColumnSides) -> ColumnTotals:
    """Count values of hashed rows in DuckDB, which spills to the disk."""
    with in_duckdb() as db:
        for name, fold, batches in (("after_rows", sides.now, now), ("before_rows", sides.then, then)):
            columns = ", ".join(f"{column} BIGINT" for column in fold.names)
            db.execute(f"CREATE TEMP TABLE {name} ({columns})")
            for batch in batches:
                db.register("coming", pa.Table.from_batches([batch]))
                db.execute(f"INSERT INTO {name} SELECT * FROM coming")
                db.unregister("coming")
        [totals] = db.execute(sides.sql("after_rows", "before_rows")).fetchall()
    return ColumnTotals.of(totals, len(sides.now.values))
