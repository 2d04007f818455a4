"""Columns that have one value in all rows that a task writes, said by the metadata of their fields."""

from __future__ import annotations

import pyarrow as pa

_CONSTANT = b"instep.constant"


def with_value(field: pa.Field, value: str) -> pa.Field:
    """The field with this value in every row."""
    return field.with_metadata({**(field.metadata or {}), _CONSTANT: value.encode()})


def value_of(field: pa.Field) -> str | None:
    """The value of every row, if it is one and the same."""
    found = (field.metadata or {}).get(_CONSTANT)
    return None if found is None else found.decode()
