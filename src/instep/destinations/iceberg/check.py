"""`destination test` of a lake."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import HERE, Ref
from instep.destinations.connection_test import COMMIT, checks_of, scratch
from instep.destinations.iceberg.evolve.ddl import execute
from instep.destinations.iceberg.metadata.catalog import Lake
from instep.destinations.iceberg.metadata.files import arrow_schema
from instep.destinations.iceberg.write.load import IcebergLoads, load_ours
from instep.model import Check
from instep.stage.spec import StagedFile


def check_lake(lake: Lake) -> list[Check]:
    """Return a check of each thing that a lake must allow, up to the first that fails."""
    on = scratch(lake.staging)
    hint = "the warehouse must allow writing and deleting files"
    grants = "the catalog's user needs to create, alter and drop tables"
    attempts = [
        ("open the catalog", "see the catalog's settings", lambda: lake.catalog.list_namespaces()),
        ("create a table", grants, lambda: execute(lake, on.ref, [on.added], on.table, COMMIT, HERE)),
        ("write a file", hint, lambda: IcebergLoads(lake).append(on.ref, [_scratch_file(lake, on.ref)], COMMIT)),
        ("alter the table", grants, lambda: execute(lake, on.ref, [on.widened], on.wider, COMMIT, HERE)),
        ("read it back", hint, lambda: load_ours(lake, on.ref)[0].scan().to_arrow()),
        ("drop the table", grants, lambda: lake.drop_table(on.ref)),
    ]
    return checks_of(attempts, Exception, lake.redacted)


def _scratch_file(lake: Lake, ref: Ref) -> StagedFile:
    table, _ = load_ours(lake, ref)
    schema, path, footers = arrow_schema(table.schema()), f"{table.location()}/data/scratch.parquet", list[Any]()
    with (
        table.io.new_output(path).create(overwrite=True) as stream,
        pq.ParquetWriter(stream, schema, metadata_collector=footers) as writer,
    ):
        writer.write_table(pa.table({"id": pa.array([1], pa.int64())}, schema=schema))
    sink = pa.BufferOutputStream()
    footers[0].write_metadata_file(sink)
    return StagedFile("test", 0, path, 1, len(table.io.new_input(path)), bytes(sink.getvalue()))
