"""Which types order their values alike: what a cursor has read says nothing once its column orders otherwise."""

from __future__ import annotations

from instep.schema.types import DataType, Date, Decimal, Int, Timestamp, TimestampTz

_ALIKE: tuple[tuple[type, ...], ...] = ((Int, Decimal), (Date, Timestamp), (TimestampTz,))
ORDERED = tuple(kind for kinds in _ALIKE for kind in kinds)
"""The types that a cursor may have."""


def same_order(before: DataType, after: DataType) -> bool:
    """Whether values of both compare alike, in text form too: 9 is before 10 as a number and after it as text."""
    return before == after or any(isinstance(before, kinds) and isinstance(after, kinds) for kinds in _ALIKE)
