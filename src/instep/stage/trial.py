"""A cast tried out: what does not fit, and what comes back as another value."""

from __future__ import annotations

import pyarrow as pa

from instep.schema.types import DataType
from instep.stage.cast import cast


def differing(values: pa.Array, old: DataType, new: DataType, target: pa.DataType) -> tuple[set[int], set[int]]:
    """Positions of the values of type `old` that do not fit `new` (held as the Arrow type `target`), and of those
    that are another value when they are cast there and back. NULL is neither."""
    there = cast(values, old, target, new)
    misfits = set(there.misfits)
    back = cast(there.values, new, values.type, old)
    pairs = enumerate(zip(values.to_pylist(), back.values.to_pylist(), strict=True))
    return misfits, {i for i, (before, after) in pairs if before != after and i not in misfits}
