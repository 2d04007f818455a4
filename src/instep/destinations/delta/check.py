"""`destination test`: a scratch table is created, written, altered and dropped; what fails is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref
from instep.destinations.delta.files import local
from instep.errors import InstepError
from instep.model import Check
from instep.schema.change import ColumnAdded, TableAdded, TableRemoved
from instep.schema.step import step
from instep.schema.table import Column, Table
from instep.schema.types import Int, String
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from instep.destinations.delta.destination import DeltaDestination

_COMMIT = Commit("test", 1)


def check_warehouse(destination: DeltaDestination) -> list[Check]:
    """One line for each thing that the folder must allow, until the first that fails."""
    ref = ("instep_test", f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    added, new = step(ref, ColumnAdded(ref, wider.columns[1], 1)), step(ref, TableAdded(table))
    folder = "the folder must allow new files and links to them"
    tries: list[tuple[str, Callable[[], Any]]] = [
        ("create a table", lambda: destination.execute(ref, [new], table, _COMMIT)),
        ("write a file", lambda: destination.append(ref, [_scratch_file(destination, ref)], _COMMIT)),
        ("alter the table", lambda: destination.execute(ref, [added], wider, _COMMIT)),
        ("read it back", lambda: destination.read(ref).read_all()),
        ("drop the table", lambda: _drop(destination, ref, table)),
    ]
    checks: list[Check] = []
    for name, attempt in tries:
        checks.append(_try(name, folder, attempt))
        if not checks[-1].ok:
            break
    return checks


def _try(name: str, hint: str, attempt: Callable[[], Any]) -> Check:
    try:
        attempt()
    except InstepError as error:
        return Check(name, False, error.message, error.hint or hint)
    except OSError as error:
        return Check(name, False, f"{type(error).__name__}: {error}", hint)
    return Check(name, True)


def _scratch_file(destination: DeltaDestination, ref: Ref) -> StagedFile:
    target = destination.target(ref)
    path = f"{target.location}/scratch.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    footers: list[Any] = []
    rows, footer = pa.table({"id": pa.array([1], pa.int64())}, schema=target.schema), pa.BufferOutputStream()
    pq.write_table(rows, local(path), metadata_collector=footers)
    footers[0].write_metadata_file(footer)
    return StagedFile("test", 0, path, 1, local(path).stat().st_size, footer.getvalue().to_pybytes())


def _drop(destination: DeltaDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays on the disk."""
    destination.execute(ref, [step(ref, TableRemoved(table))], None, _COMMIT)
    for one in destination.warehouse.waiting():
        if one.ref == ref:
            destination.warehouse.delete(one.folder)
