"""What `destination test` is made of: a scratch table is created, written, altered and dropped; what fails is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref, StagingTarget
from instep.errors import InstepError
from instep.model import Check
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Int, String
from instep.schema.changes.describe import ColumnAdded, TableAdded
from instep.schema.planning.step import Step, step
from instep.stage.files.place import StorageFolder
from instep.stage.spec import StagedFile

COMMIT = Commit("test", 1)
Attempt = tuple[str, str, Callable[[], Any]]
"""What is tried, what to do where it fails, how it is tried."""


@dataclass(frozen=True)
class Scratch:
    """A table with a column, `wider` by another one after the step `widened`."""

    ref: Ref
    table: Table
    wider: Table
    added: Step
    widened: Step


def scratch(namespace: str) -> Scratch:
    """Return a table of a name that nobody has."""
    ref = (namespace, f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    widened = step(ref, ColumnAdded(ref, wider.columns[1], 1))
    return Scratch(ref, table, wider, step(ref, TableAdded(table)), widened)


def scratch_file(target: StagingTarget) -> StagedFile:
    """Return one row for the scratch table, where tasks write."""
    made = StorageFolder(target.location, target.io).create("scratch.parquet")
    footers, footer = list[Any](), pa.BufferOutputStream()
    rows = pa.table({"id": pa.array([1], pa.int64())}, schema=target.schema)
    pq.write_table(rows, made.sink, metadata_collector=footers)
    size = made.finish()
    footers[0].write_metadata_file(footer)
    return StagedFile("test", 0, made.uri, 1, size, footer.getvalue().to_pybytes())


def checks_of(
    attempts: Iterable[Attempt],
    failures: type[Exception] | tuple[type[Exception], ...] = OSError,
    cleared: Callable[[str], str] = str,
) -> list[Check]:
    """Return a line an attempt, until the first that fails, by an error of ours or by `failures`, whose text is
    `cleared`."""
    found: list[Check] = []
    for name, hint, attempt in attempts:
        try:
            attempt()
        except InstepError as error:
            return [*found, Check(name, False, error.message, error.hint or hint)]
        except failures as error:
            return [*found, Check(name, False, cleared(f"{type(error).__name__}: {error}"), hint)]
        found.append(Check(name, True))
    return found
