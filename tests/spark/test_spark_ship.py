"""What travels to workers elsewhere, and what lands in an Iceberg table that Spark itself reads."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import uuid
from dataclasses import replace
from decimal import Decimal as D
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from instep.schema.catalog.types import parse
from instep.spark.ship import package
from instep.stage.conform import conform
from instep.stage.files.writer import ChunkWriter
from instep.stage.spec import StageColumn, StageSpec, SystemColumns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SYNCED = 1_700_000_000_000_000
KEY = uuid.UUID("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "amount", DecimalType(12, 2)),
    NestedField(3, "code", UUIDType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "local", TimestampType()),
    NestedField(6, "at", TimestamptzType()),
    NestedField(7, "clock", StringType()),
    NestedField(8, "raw", BinaryType()),
    NestedField(9, "tags", ListType(20, StringType(), element_required=False)),
    NestedField(10, "yes", BooleanType()),
    NestedField(11, "_synced", TimestamptzType()),
)
TYPES = [
    "int64",
    "decimal(12,2)",
    "uuid",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "binary",
    "array(string)",
    "boolean",
]


def source() -> pa.RecordBatch:
    """As a database driver yields it: numbers as text, UUIDs as bytes, times as times."""
    when = dt.datetime(2024, 7, 1, 12, 0, 0, 1)
    return pa.record_batch(
        {
            "id": pa.array([1, 2]),
            "amount": pa.array(["1234567890.10", None]),
            "code": pa.array([KEY.bytes, None], pa.binary(16)),
            "day": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
            "local": pa.array([when, None], pa.timestamp("us")),
            "at": pa.array([when, None], pa.timestamp("us", "UTC")),
            "clock": pa.array([dt.time(1, 2, 3), None], pa.time64("us")),
            "raw": pa.array([b"\x00\xff", None]),
            "tags": pa.array([["a", None], None]),
            "yes": pa.array([True, None]),
        }
    )


@pytest.mark.spark
def test_spark_reads_what_a_task_wrote(spark_session: SparkSession, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/c.db"
    catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", SCHEMA)
    columns = tuple(
        StageColumn(f.name, parse(kind), parse(kind), f.name, key=int(f.name == "id"))
        for f, kind in zip(SCHEMA.fields, TYPES, strict=False)
    )
    location = f"{table.location()}/data"
    spec = StageSpec(
        "t",
        columns,
        SystemColumns(synced="_synced"),
        schema_to_pyarrow(table.schema()),
        location,
        location,
        "r",
        SYNCED,
    )
    writer = ChunkWriter(spec, 0, 0)
    writer.write(conform(source(), spec).batch)
    table.add_files([file.path for file in writer.close()])
    session = spark_session.newSession()
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        ".uri": uri.replace("sqlite:///", "jdbc:sqlite:"),
        ".jdbc.schema-version": "V1",
        ".warehouse": f"file://{tmp_path}/w",
    }.items():
        session.conf.set(f"spark.sql.catalog.lake{key}", value)
    first, second = session.sql(
        "SELECT amount, code, CAST(day AS STRING), CAST(local AS STRING), CAST(at AS STRING), clock, hex(raw), tags, "
        "yes, unix_micros(_synced) FROM lake.n.t ORDER BY id"
    ).collect()
    when = "2024-07-01 12:00:00.000001"
    expected = [
        D("1234567890.10"),
        str(KEY),
        "0001-01-01",
        when,
        when,
        "01:02:03.000000",
        "00FF",
        ["a", None],
        True,
        SYNCED,
    ]
    assert list(first) == expected
    assert list(second) == [None, None, "9999-12-31", *[None] * 6, SYNCED]
    assert table.scan(row_filter="amount > 1").to_arrow().num_rows == 1


def test_the_package_is_importable_from_its_zip(tmp_path: Path) -> None:
    file = package(tmp_path)
    script = "import instep.stage.task as t; print(t.__file__)"
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(file)}, capture_output=True, text=True)
    assert done.stdout.startswith(f"{file}/instep/stage/task.py"), done.stderr


def test_a_spec_travels_without_showing_credentials() -> None:
    import pickle

    spec = StageSpec(
        "t", (), SystemColumns(), pa.schema([]), "l", "q", "r", 0, io={"s3.secret-access-key": "hush"}, salt=b"salt"
    )
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert "hush" not in repr(spec)
    assert "salt" not in repr(replace(spec, salt=b"salt"))
