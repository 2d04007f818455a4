"""Tables and staged files for destination tests: what tasks would have written, written here."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.destinations.base import Commit, Ref
from instep.destinations.facets import Destination
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import TableAdded
from instep.schema.planning.step import step
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile

PREFIX = "_instep_"
SYSTEM = (
    Column(f"{PREFIX}synced", parse("timestamptz")),
    Column(f"{PREFIX}deleted", parse("boolean")),
    Column(f"{PREFIX}meta", parse("json")),
)
SPARK = (
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # sockets of pyspark's collect()
)
_numbers = itertools.count(1)


def column(name: str, kind: str, **more: Any) -> Column:
    """An accepted column at the destination: its source name is its own, its source id made from it."""
    return Column(name, parse(kind), **{"id": f"#{name}", "alias": name, **more})


def table(*columns: Column, name: str = "orders", **more: Any) -> Table:
    """A destination table with its system columns."""
    return Table("shop", name, (*columns, *SYSTEM), **{"id": f"oid-{name}", "alias": f"public.{name}", **more})


ID = column("id", "int64", key=1)
ORDERS = table(ID, column("name", "string(20)"), column("amount", "decimal(10,2)"))
REF = ORDERS.ref


def create(destination: Destination, wanted: Table = ORDERS, commit: Commit | None = None) -> Ref:
    destination.schema.execute(wanted.ref, [step(wanted.ref, TableAdded(wanted))], wanted, commit or Commit("run-1", 1))
    return wanted.ref


def write(path: Path, rows: pa.Table, **options: Any) -> tuple[int, bytes]:
    """(size, footer) of a Parquet file."""
    footers: list[Any] = []
    path.parent.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(path, rows.schema, metadata_collector=footers, **options) as writer:
        writer.write_table(rows)
    sink = io.BytesIO()
    footers[0].write_metadata_file(sink)
    return path.stat().st_size, sink.getvalue()


def stage(
    destination: Destination, ref: Ref, rows: Sequence[dict[str, Any]], *, only: Iterable[str] = (), chunk: int = 0
) -> StagedFile:
    """A staged file with these rows; columns that a row lacks are NULL, `deleted` is false."""
    target = destination.write.target(ref)
    schema = pa.schema([target.schema.field(c) for c in only]) if only else target.schema
    blank = {f"{PREFIX}deleted": False} if f"{PREFIX}deleted" in schema.names else {}
    return stage_table(destination, ref, pa.Table.from_pylist([{**blank, **r} for r in rows], schema=schema), chunk)


def stage_table(
    destination: Destination, ref: Ref, rows: pa.Table, chunk: int = 0, group: int | None = None, **options: Any
) -> StagedFile:
    """`group`: rows of a row group."""
    target = destination.write.target(ref)
    made, footers, sink = (
        StorageFolder(target.location, target.io).create(f"part-{os.getpid()}-{next(_numbers)}.parquet"),
        list[Any](),
        io.BytesIO(),
    )
    with pq.ParquetWriter(made.sink, rows.schema, metadata_collector=footers, **options) as writer:
        writer.write_table(rows, group)
    footers[0].write_metadata_file(sink)
    return StagedFile("0", chunk, made.uri, rows.num_rows, made.finish(), sink.getvalue())


def rows_of(destination: Destination, ref: Ref = REF, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """The rows as tuples in key order; without system columns unless they are asked for."""
    read = destination.write.read(ref).read_all()
    names = list(columns) or [n for n in read.column_names if not n.startswith(PREFIX)]
    return sorted(zip(*(read.column(n).to_pylist() for n in names), strict=True), key=repr)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session on the pinned jars."""
    from instep.spark.session import start, stop
    from instep.spark.settings import SparkSettings

    session = start(SparkSettings(master="local[2]", driver_memory="1g"))
    yield session
    stop(session)


def with_spark(test: Any) -> Any:
    """Marks a test that needs the session `spark`."""
    for mark in SPARK:
        test = mark(test)
    return test
