"""`destination test`: a scratch table is created, written, altered and dropped; what fails is named."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from instep.destinations.base import Commit, Ref
from instep.destinations.postgres.records import SCHEMA, dropped, remove_dropped
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
    from instep.destinations.postgres.destination import PostgresDestination

_COMMIT = Commit("test", 1)


def check_server(destination: PostgresDestination) -> list[Check]:
    """One line for each thing that the server and the folder of staged files must allow, until the first that fails."""
    ref = (SCHEMA, f"test_{uuid.uuid4().hex[:12]}")
    table = Table(*ref, (Column("id", Int(64)),))
    wider = Table(*ref, (*table.columns, Column("note", String())))
    added, new = step(ref, ColumnAdded(ref, wider.columns[1], 1)), step(ref, TableAdded(table))
    make = f"GRANT CREATE ON DATABASE to {destination.config.user}, or make the schemas and give them to it"
    own, folder = "the table must belong to the user who loads it", "the folder of `staging` must allow new files"
    tries: list[tuple[str, str, Callable[[], Any]]] = [
        ("log in", "check host, port, user and password", lambda: destination.tables()),
        ("create a schema and a table", make, lambda: destination.execute(ref, [new], table, _COMMIT)),
        (
            "stage a file and load it",
            folder,
            lambda: destination.append(ref, [_scratch_file(destination, ref)], _COMMIT),
        ),
        ("alter the table", own, lambda: destination.execute(ref, [added], wider, _COMMIT)),
        ("read it back", own, lambda: destination.read(ref).read_all()),
        ("drop the table", own, lambda: _drop(destination, ref, table)),
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


def _scratch_file(destination: PostgresDestination, ref: Ref) -> StagedFile:
    target = destination.target(ref)
    path = f"{target.location}/scratch.parquet"
    local(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}, schema=target.schema), local(path))
    return StagedFile("test", 0, path, 1, local(path).stat().st_size, b"")


def _drop(destination: PostgresDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.target(ref).location.removesuffix("/data")
    destination.execute(ref, [step(ref, TableRemoved(table))], None, _COMMIT)
    with destination.server.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, {})
