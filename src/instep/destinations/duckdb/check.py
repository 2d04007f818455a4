"""`destination test`: a scratch table is created, written, altered and dropped; what fails is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref
from instep.destinations.duckdb.records import SCHEMA, dropped, remove_dropped
from instep.destinations.sql.staged import local
from instep.errors import InstepError
from instep.model import Check
from instep.schema.change import ColumnAdded, TableAdded, TableRemoved
from instep.schema.step import step
from instep.schema.table import Column, Table
from instep.schema.types import Int, String
from instep.stage.place import remove
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from instep.destinations.duckdb.destination import DuckDbDestination

_COMMIT = Commit("test", 1)


def check_file(destination: DuckDbDestination) -> list[Check]:
    """One line for each thing that the file and the folder beside it must allow, until the first that fails."""
    ref = (SCHEMA, f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    added, new = step(ref, ColumnAdded(ref, wider.columns[1], 1)), step(ref, TableAdded(table))
    file, folder = "the file must be a DuckDB database that may be written to", "the folder must allow new files"
    tries: list[tuple[str, str, Callable[[], Any]]] = [
        ("open the file", file, lambda: _open(destination)),
        ("create a table", file, lambda: destination.execute(ref, [new], table, _COMMIT)),
        ("write a file", folder, lambda: destination.append(ref, [_scratch_file(destination, ref)], _COMMIT)),
        ("alter the table", file, lambda: destination.execute(ref, [added], wider, _COMMIT)),
        ("read it back", file, lambda: destination.read(ref).read_all()),
        ("drop the table", file, lambda: _drop(destination, ref, table)),
    ]
    checks: list[Check] = []
    for name, advice, attempt in tries:
        checks.append(_try(name, advice, attempt))
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


def _open(destination: DuckDbDestination) -> None:
    with destination.file.writing():
        return


def _scratch_file(destination: DuckDbDestination, ref: Ref) -> StagedFile:
    target = destination.target(ref)
    path = f"{target.location}/scratch.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}, schema=target.schema), local(path))
    return StagedFile("test", 0, path, 1, local(path).stat().st_size, b"")


def _drop(destination: DuckDbDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.target(ref).location.removesuffix("/data")
    destination.execute(ref, [step(ref, TableRemoved(table))], None, _COMMIT)
    with destination.file.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, {})
