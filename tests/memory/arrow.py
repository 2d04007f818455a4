"""The Arrow types that values of this process's databases have."""

from __future__ import annotations

import pyarrow as pa

from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Struct,
    Timestamp,
    TimestampTz,
    Uuid,
)


def arrow_type(kind: DataType) -> pa.DataType:
    """What a type is stored as: whole numbers have 32 or 64 bits, whatever has no type of its own is text."""
    match kind:
        case Boolean():
            return pa.bool_()
        case Int(bits):
            return pa.int64() if bits == 64 else pa.int32()
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
        case Array(element):
            return pa.large_list(pa.field("element", arrow_type(element)))
        case Struct(fields):
            return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in fields])
    return pa.large_string()
