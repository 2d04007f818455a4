"""`destination test`: a scratch table is created, written, altered and dropped; what fails is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref
from instep.destinations.iceberg.catalog import Lake
from instep.destinations.iceberg.ddl import execute
from instep.destinations.iceberg.files import arrow_schema
from instep.destinations.iceberg.load import append, load_ours
from instep.errors import InstepError
from instep.model import Check
from instep.schema.change import ColumnAdded, TableAdded
from instep.schema.step import step
from instep.schema.table import Column, Table
from instep.schema.types import Int, String
from instep.stage.spec import StagedFile

_COMMIT = Commit("test", 1)


def check_lake(lake: Lake) -> list[Check]:
    """One line for each thing a lake must allow, until the first that fails."""
    ref = (lake.staging, f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    added = step(ref, ColumnAdded(ref, wider.columns[1], 1))
    hint = "the warehouse must allow writing and deleting files"
    grants = "the catalog's user needs to create, alter and drop tables"
    tries: list[tuple[str, str, Callable[[], Any]]] = [
        ("open the catalog", "see the catalog's settings", lambda: lake.catalog.list_namespaces()),
        ("create a table", grants, lambda: execute(lake, ref, [step(ref, TableAdded(table))], table, _COMMIT)),
        ("write a file", hint, lambda: append(lake, ref, [_scratch_file(lake, ref)], _COMMIT)),
        ("alter the table", grants, lambda: execute(lake, ref, [added], wider, _COMMIT)),
        ("read it back", hint, lambda: load_ours(lake, ref)[0].scan().to_arrow()),
        ("drop the table", grants, lambda: lake.drop_table(ref)),
    ]
    checks: list[Check] = []
    for name, advice, attempt in tries:
        checks.append(_try(lake, name, advice, attempt))
        if not checks[-1].ok:
            break
    return checks


def _try(lake: Lake, name: str, hint: str, attempt: Callable[[], Any]) -> Check:
    try:
        attempt()
    except InstepError as error:
        return Check(name, False, error.message, error.hint or hint)
    except Exception as error:
        return Check(name, False, lake.redacted(f"{type(error).__name__}: {error}"), hint)
    return Check(name, True)


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
