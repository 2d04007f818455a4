"""Casts of values that a destination holds: all of them, or tried without writing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from instep.destinations.base import CastSample, InvalidValueCount
from instep.errors import IllegalChange
from instep.schema.catalog.types import DataType, String
from instep.stage.casts.cast import cast


def differing(values: pa.Array, old: DataType, new: DataType, target: pa.DataType) -> tuple[set[int], set[int]]:
    """Positions of the values of type `old` that do not fit `new` (held as the Arrow type `target`), and of those
    that are another value when they are cast there and back. NULL is neither."""
    there = cast(values, old, target, new)
    invalid_values = set(there.invalid_values)
    back = cast(there.values, new, values.type, old)
    pairs = enumerate(zip(values.to_pylist(), back.values.to_pylist(), strict=True))
    return invalid_values, {i for i, (before, after) in pairs if before != after and i not in invalid_values}


def cast_all(name: str, values: pa.Array, old: DataType, new: DataType, target: pa.DataType) -> pa.Array:
    """Return the values of column `name` as `new`, held as the Arrow type `target`; IllegalChange if one does not
    fit."""
    done = cast(values, old, target, new)
    if done.invalid_values:
        reason = next(iter(done.invalid_values.values()))
        raise IllegalChange(
            f"column {name!r}: values do not fit {new} ({reason})",
            hint="load the whole table again with `instep sync --full`: invalid values are kept in quarantine there",
        )
    return done.values


def invalid_values_in(
    parts: Iterable[pa.Array], old: DataType, new: DataType, target: pa.DataType
) -> InvalidValueCount:
    """Return how many values of type `old` do not fit `new` (held as the Arrow type `target`), and the first of
    them."""
    count, example = 0, ""
    for values in parts:
        done = cast(values, old, target, new)
        odd = [*done.invalid_values, *_too_long(done.values, new)]
        if odd and not example:
            example = str(values[odd[0]].as_py())
        count += len(odd)
    return InvalidValueCount(count, example)


def _too_long(values: pa.Array, kind: DataType) -> list[int]:
    """Return where a text is longer than its type says: no cast minds, readers may."""
    if not isinstance(kind, String) or kind.length is None:
        return []
    found: list[int] = pc.indices_nonzero(pc.greater(pc.utf8_length(values), kind.length)).to_pylist()
    return found


def tried(
    sample: pa.Table, column: str, key: Sequence[str], old: DataType, new: DataType, target: pa.DataType
) -> CastSample:
    """Return what a cast there and back makes of the sampled values of `column`; `sample` has the key's columns too."""
    values = sample.column(column).combine_chunks()
    invalid_values, changed = differing(values, old, new, target)
    odd = min(invalid_values | changed, default=None)
    row = {} if odd is None else sample.select(list(key)).slice(odd, 1).to_pylist()[0]
    return CastSample(len(values) - values.null_count, len(invalid_values), len(changed), row)
