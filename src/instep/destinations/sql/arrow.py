"""What values are in files that a database takes in, and when they are read from it."""

from __future__ import annotations

import pyarrow as pa

from instep.schema.catalog.types import (
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Timestamp,
    TimestampTz,
    Uuid,
)

_INTS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


def plain_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a type without parts; what has no other is text."""
    match kind:
        case Boolean():
            return pa.bool_()
        case Int(bits):
            return _INTS[bits]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case Float(bits):
            return pa.float64() if bits == 64 else pa.float32()
        case Binary():
            return pa.large_binary()
        case Date():
            return pa.date32()
        case Timestamp():
            return pa.timestamp("us")
        case TimestampTz():
            return pa.timestamp("us", "UTC")
        case Uuid():
            return pa.uuid()
    return pa.large_string()
