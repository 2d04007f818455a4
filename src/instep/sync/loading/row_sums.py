# ruff: noqa: S608 - columns are numbered
"""Rows of one side of a table, folded by tasks: sums of their hashes by bucket, or keys and hashes of some buckets.

Rows with the same key are in the same bucket on both sides, so that equal sums need no row to be looked at again. A
bucket is a range of a whole number that the key begins with, or a hash of the key; without a key, of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.stage.conform import Conformer
from instep.stage.duckdb_memory import duckdb_version, in_duckdb
from instep.stage.fold import MEMORY, slices
from instep.stage.key_hashes import hashable
from instep.stage.quarantine_hashes import QuarantineHashes
from instep.stage.spec import StageSpec
from instep.stage.task import refused_records

if TYPE_CHECKING:
    import duckdb

BUCKETS = 1 << 14
_NONE = np.iinfo(np.int64)


@dataclass(frozen=True)
class Buckets:
    """Division of rows: `width` whole numbers that follow one another are one bucket, 0: by hash."""

    width: int = 0
    number: int = BUCKETS

    @classmethod
    def of(cls, rows: int, *, by_range: bool) -> Buckets:
        """Return buckets for about so many rows: few for a small table, whose sums then are small, too."""
        number = BUCKETS
        while number > 64 and number * 64 > rows:
            number //= 4
        width = 1
        while by_range and width * number < rows:
            width *= 2
        return cls(width if by_range else 0, number)

    def sql(self, columns: Sequence[str]) -> str:
        """Return the number of a row's bucket by its key columns."""
        if not self.width:
            return f"(hash({', '.join(columns)}) % {self.number})::INTEGER"
        number = f"coalesce({columns[0]}, 0)::BIGINT"
        return f"((({number} // {self.width}) % {self.number} + {self.number}) % {self.number})::INTEGER"


@dataclass(frozen=True)
class SideShape:
    """The rows of one side as a task makes them."""

    columns: int
    """The number of columns that are compared; they come first."""
    key: tuple[int, ...]
    """Places of the key's columns."""
    buckets: Buckets
    spec: StageSpec | None = field(default=None, repr=False)
    """Conforms the rows of the source; None: they are the destination's."""
    hashes: QuarantineHashes | None = field(default=None, repr=False)
    """Makes hashes of values that do not fit, if they are wanted."""
    current: bool | None = None
    """The value of the column behind the others in rows that count; None: there is no such column."""

    @cached_property
    def names(self) -> list[str]:
        """The columns that are compared, as they are called in DuckDB."""
        return [f"c{at}" for at in range(self.columns)]

    @property
    def bucket(self) -> str:
        """The bucket of a row, as SQL."""
        return self.buckets.sql([self.names[at] for at in self.key] or self.names)

    @property
    def row_condition(self) -> str:
        """The condition of rows that count, as SQL."""
        return "true" if self.current is None else f"coalesce(mark, false) = {str(self.current).lower()}"

    def rows(self, batches: Iterable[pa.RecordBatch], unfit: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the columns that are compared; what does not fit is added to `unfit`, as hashes."""
        names = self.names if self.current is None else [*self.names, "mark"]
        conformer = Conformer(self.spec) if self.spec is not None else None
        names_read = [c.name for c in self.spec.columns if c.source is not None] if self.spec is not None else []
        for batch in batches:
            if conformer is None:
                yield pa.RecordBatch.from_arrays(batch.columns, names=names)
                continue
            conformed = conformer.conform(batch)
            refused = refused_records(batch, conformer.spec)
            if self.hashes is not None and (conformed.quarantined or refused):
                unfit.append(self.hashes.batch([*conformed.quarantined, *refused]))
            yield pa.RecordBatch.from_arrays(conformed.batch.select(names_read).columns, names=names)


@dataclass(frozen=True)
class FoldResult:
    """The result of one task: sums, rows, or hashes of values that do not fit."""

    sums: RowSums | None = None
    rows: bytes = field(default=b"", repr=False)
    columns: tuple[int, ...] = ()
    """Sums of each column's hashes, of the rows in `rows`."""
    unfit: tuple[pa.RecordBatch, ...] = field(default=(), repr=False)
    version: str = field(default_factory=duckdb_version)


@dataclass(frozen=True)
class RowSums:
    """Sums by bucket: rows, the sum of their hashes, and the least and greatest number that the key begins with."""

    counts: npt.NDArray[np.int64]
    sums: npt.NDArray[np.uint64]
    low: npt.NDArray[np.int64]
    high: npt.NDArray[np.int64]

    @classmethod
    def nothing(cls, buckets: Buckets) -> RowSums:
        """Return the sums of no rows."""
        n = buckets.number
        return cls(np.zeros(n, np.int64), np.zeros(n, np.uint64), np.full(n, _NONE.max), np.full(n, _NONE.min))

    def __add__(self, other: RowSums) -> RowSums:
        """Return the sums of both together."""
        return RowSums(
            self.counts + other.counts,
            self.sums + other.sums,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )

    @property
    def rows(self) -> int:
        """The number of these rows."""
        return int(self.counts.sum())

    def range(self, buckets: Sequence[int]) -> tuple[int, int] | None:
        """Return the least and the greatest number of rows in these buckets; None without rows."""
        low, high = int(self.low[buckets].min()), int(self.high[buckets].max())
        return (low, high) if low <= high else None

    def share(self, buckets: Sequence[int]) -> float:
        """Return about which part of all rows is in these buckets."""
        return float(self.counts[buckets].sum() / max(1, self.rows))

    def differing(self, other: RowSums) -> list[int]:
        """Return the buckets in which the two sides differ."""
        return np.flatnonzero((self.counts != other.counts) | (self.sums != other.sums)).tolist()


@dataclass(frozen=True)
class SumRows:
    """Fold: the sums of a task's rows."""

    shape: SideShape

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FoldResult]:
        """Yield hashes of what does not fit while rows are read, and the sums in the end."""
        shape, total = self.shape, RowSums.nothing(self.shape.buckets)
        ends = ", min(k)::BIGINT AS low, max(k)::BIGINT AS high" if shape.buckets.width else ""
        first = f", {shape.names[shape.key[0]]} AS k" if shape.buckets.width else ""
        with in_duckdb(MEMORY, lossless=True) as db:
            for unfit in _slices(db, shape, batches):
                hashed = f"hash(hash({', '.join(hashable(db, shape.names))}))"
                query = (
                    f"SELECT b, count(*)::BIGINT AS n, (sum(h) % 18446744073709551616)::UBIGINT AS h{ends} FROM "
                    f"(SELECT {shape.bucket} AS b, {hashed} AS h{first} FROM coming WHERE {shape.row_condition})"
                    " GROUP BY b"
                )
                arrays = db.execute(query).fetchnumpy()
                at = np.asarray(arrays["b"], np.int64)
                total.counts[at] += np.asarray(arrays["n"], np.int64)
                total.sums[at] += np.asarray(arrays["h"], np.uint64)
                if shape.buckets.width:
                    low, high = np.ma.filled(arrays["low"], _NONE.max), np.ma.filled(arrays["high"], _NONE.min)
                    total.low[at] = np.minimum(total.low[at], low)
                    total.high[at] = np.maximum(total.high[at], high)
                if unfit:
                    yield FoldResult(unfit=tuple(unfit))
        yield FoldResult(total)


@dataclass(frozen=True)
class ReturnRows:
    """Fold: keys (k0, k1, ...) and hashes (h) of a task's rows in these buckets (None: in all), as Arrow streams."""

    shape: SideShape
    only: Sequence[int] | None = None
    columns: bool = True
    """True if the sums of each column are wanted, too."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[FoldResult]:
        """Yield one result for every slice of rows."""
        shape = self.shape
        keys = [f"{shape.names[at]} AS k{n}" for n, at in enumerate(shape.key)]
        buckets = pa.table({"b": pa.array(self.only or [], pa.int32())})
        among = f" AND {shape.bucket} IN (SELECT b FROM buckets)" if self.only is not None else ""
        with in_duckdb(MEMORY, lossless=True) as db:
            db.register("buckets", buckets)
            for unfit in _slices(db, shape, batches):
                compared = hashable(db, shape.names)
                hashes = [f"hash({value}) AS h{at}" for at, value in enumerate(compared)] if self.columns else []
                values = ", ".join([*keys, f"hash({', '.join(compared)}) AS h", *hashes])
                rows = db.sql(f"SELECT {values} FROM coming WHERE {shape.row_condition}{among}").to_arrow_table()
                first = len(keys) + 1
                sums = tuple(_sum(rows.column(first + at)) for at in range(len(hashes)))
                yield FoldResult(None, as_stream(rows.select(range(first))), sums, tuple(unfit))


def _slices(
    db: duckdb.DuckDBPyConnection, shape: SideShape, batches: Iterator[pa.RecordBatch]
) -> Iterator[list[pa.RecordBatch]]:
    """Register a slice of rows after the other as `coming`, and yield what of it does not fit."""
    unfit = list[pa.RecordBatch]()
    for rows in slices(shape.rows(batches, unfit)):
        db.register("coming", rows)
        yield unfit
        db.unregister("coming")
        unfit.clear()


def _sum(values: pa.ChunkedArray) -> int:
    return int(np.sum(values.to_numpy(), dtype=np.uint64)) if len(values) else 0


def as_stream(rows: pa.Table) -> bytes:
    """Return rows as bytes that travel."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())
