"""Rows by the partition that they belong to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from instep.errors import StageError
from instep.schema.catalog.partition import PartitionTerm
from instep.stage.transforms import transformed


@dataclass(frozen=True)
class Partitioning:
    """A partition spec: its number at the table, and a term for each of its fields. A field without a term is void:
    NULL in every file."""

    spec: int
    terms: tuple[PartitionTerm | None, ...]


@dataclass(frozen=True)
class Partition:
    """One partition of a spec: the values of its fields as Iceberg's metadata has them."""

    spec: int
    values: tuple[Any, ...] = field(repr=False)


def by_partition(rows: pa.Table, by: Partitioning) -> Iterator[tuple[Partition, pa.Table]]:
    """Yield the rows of each partition, in their order. Raises StageError for a row that belongs to none."""
    if not len(rows):
        return
    columns = [_values(rows, term) for term in by.terms]
    groups = _numbered(columns, len(rows))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    first = pa.array(order[starts])
    values = zip(*(c.take(first).to_pylist() for c in columns), strict=True)
    taken = rows if np.array_equal(order, np.arange(len(rows))) else rows.take(pa.array(order))
    for one, start, end in zip(values, starts, [*starts[1:], len(rows)], strict=True):
        yield Partition(by.spec, one), taken.slice(start, end - start)


def _values(rows: pa.Table, term: PartitionTerm | None) -> pa.Array:
    if term is None:
        return pa.nulls(len(rows), pa.int32())
    column = rows.column(term.column)
    whole = column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
    try:
        return transformed(whole, term.transform, term.width)
    except StageError as error:
        raise StageError(f"column {term.column}: {error.message}", hint=error.hint) from error


def _numbered(columns: Sequence[pa.Array], rows: int) -> Any:
    """Rows with equal values in all columns have the same number."""
    found = np.zeros(rows, np.int64)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices
        one = np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
        found = np.unique(found * (int(one.max()) + 1) + one, return_inverse=True)[1]
    return found
