"""Group rows by the partition that they belong to.

Iceberg's partition transforms over whole Arrow columns.

The values are those that Iceberg keeps in its metadata: dates as days and times as microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.errors import StageError
from instep.schema.catalog.layout import PartitionTerm


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
    sorted_rows = rows if np.array_equal(order, np.arange(len(rows))) else rows.take(pa.array(order))
    for value, start, end in zip(values, starts, [*starts[1:], len(rows)], strict=True):
        yield Partition(by.spec, value), sorted_rows.slice(start, end - start)


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
    """Return a number per row; rows with equal values in all columns have the same one."""
    numbers = np.zeros(rows, np.int64)
    for column in columns:
        codes = column.dictionary_encode(null_encoding="encode").indices
        coded = np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)
        numbers = np.unique(numbers * (int(coded.max()) + 1) + coded, return_inverse=True)[1]
    return numbers


Ints = npt.NDArray[Any]
_UNIT = {"year": "Y", "month": "M", "day": "D", "hour": "h"}
_C1, _C2, _MIX = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), (np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35))
_INT = 2**31


def transformed(values: pa.Array, transform: str, width: int = 0) -> pa.Array:
    """Return one partition value a row, NULL for NULL. Raises StageError for a value that has none."""
    plain = _stored(values)
    if transform == "identity":
        return plain
    if transform == "bucket":
        return _bucket(plain, width)
    if transform == "truncate":
        return _truncate(plain, width)
    return _since_1970(plain, "D" if pa.types.is_date(values.type) else "us", transform)


def _stored(values: pa.Array) -> pa.Array:
    """Return the values as Iceberg's metadata stores them."""
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.view(pa.int64())
    if pa.types.is_large_string(kind):
        return values.cast(pa.string())
    return values


def _numbers(values: pa.Array, kind: type[np.signedinteger[Any]] = np.int64) -> Ints:
    """Return the numbers with NULL as 0: the caller masks them."""
    return np.asarray(pc.fill_null(values, 0).to_numpy(zero_copy_only=False)).astype(kind)


def _masked(numbers: Ints, like: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.array(numbers, kind, mask=np.asarray(like.is_null()) if like.null_count else None)


def _since_1970(values: pa.Array, unit: str, transform: str) -> pa.Array:
    numbers = _numbers(values).astype(f"datetime64[{unit}]").astype(f"datetime64[{_UNIT[transform]}]")
    whole = numbers.astype(np.int64)
    if len(whole) and not -_INT <= whole.min() <= whole.max() < _INT:
        raise StageError(
            f"a time is too far from 1970 to count its {transform}s", hint="partition by day, month or year"
        )
    return _masked(whole.astype(np.int32), values, pa.int32())


def _truncate(values: pa.Array, width: int) -> pa.Array:
    kind = values.type
    if pa.types.is_string(kind):
        return pc.utf8_slice_codeunits(values, 0, width)
    if pa.types.is_integer(kind):
        own: Any = np.int32 if kind.bit_width <= 32 else np.int64
        numbers = _numbers(values, own)
        with np.errstate(over="ignore"):
            return _masked(numbers - np.mod(numbers, own(width)), values, kind)
    try:
        return _by_value(values, lambda v: _cut(v, width), kind)
    except pa.ArrowInvalid as error:
        why = f"a value has no multiple of {width} below it in {kind}"
        raise StageError(why, hint="take a smaller width") from error


def _cut(value: Any, width: int) -> Any:
    number = _unscaled(value)
    cut = number - number % width
    digits = tuple(map(int, str(abs(cut))))
    return Decimal((int(cut < 0), digits, value.as_tuple().exponent))


def _unscaled(value: Any) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _by_value(values: pa.Array, change: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """Convert the values, each different one once."""
    encoded = values.dictionary_encode()
    converted = pa.array([None if v is None else change(v) for v in encoded.dictionary.to_pylist()], kind)
    return converted.take(encoded.indices)


def _bucket(values: pa.Array, count: int) -> pa.Array:
    if not pa.types.is_integer(values.type):
        return _by_value(values, lambda v: (mmh3.hash(_bytes(v)) & (_INT - 1)) % count, pa.int32())
    hashes = _hash(_numbers(values)) & np.uint32(_INT - 1)
    return _masked((hashes % np.uint32(count)).astype(np.int32), values, pa.int32())


def _bytes(value: Any) -> bytes:
    """Return the bytes to hash: a decimal as the shortest big-endian form of its unscaled number."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    number = _unscaled(value)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _hash(numbers: Ints) -> Ints:
    """Return the Murmur3 hash (32 bits, x86, seed 0) of each number as eight little-endian bytes."""
    bits = numbers.astype(np.int64).view(np.uint64)
    state = np.zeros(len(bits), np.uint32)
    for part in ((bits & np.uint64(0xFFFFFFFF)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)):
        state ^= _rotated(part * _C1, 15) * _C2
        state = _rotated(state, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    state ^= np.uint32(8)
    for shift, factor in ((16, _MIX[0]), (13, _MIX[1])):
        state ^= state >> np.uint32(shift)
        state *= factor
    return state ^ (state >> np.uint32(16))


def _rotated(values: Ints, by: int) -> Ints:
    turned: Ints = (values << np.uint32(by)) | (values >> np.uint32(32 - by))
    return turned
