"""Accepted types as Spark has them, and as tasks hand their values over."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

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
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Unknown,
    Uuid,
)

if TYPE_CHECKING:
    from pyspark.sql import types

_INTS = {8: "ByteType", 16: "ShortType", 32: "IntegerType", 64: "LongType"}


def spark_type(kind: DataType) -> types.DataType:
    """Return the type of a DataFrame's column. Times of day, UUIDs and JSON are text, as in a Delta table."""
    from pyspark.sql import types

    match kind:
        case Boolean():
            return types.BooleanType()
        case Int(bits):
            data_type: types.DataType = getattr(types, _INTS[bits])()
            return data_type
        case Float(bits):
            return types.FloatType() if bits == 32 else types.DoubleType()
        case Decimal(precision, scale):
            return types.DecimalType(precision, scale)
        case Binary():
            return types.BinaryType()
        case Date():
            return types.DateType()
        case Timestamp():
            return types.TimestampNTZType()
        case TimestampTz():
            return types.TimestampType()
        case Array(element):
            return types.ArrayType(spark_type(element))
        case Struct(fields):
            return types.StructType([types.StructField(f.name, spark_type(f.type)) for f in fields])
        case String() | Time() | Uuid() | Json() | Unknown():
            return types.StringType()
    assert_never(kind)


def schema_of(schema: pa.Schema) -> types.StructType:
    """Return the schema of a DataFrame of these rows. Times without a zone stay so: Spark would move them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type that Spark reads as `spark_type`."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(spark_type(kind))
