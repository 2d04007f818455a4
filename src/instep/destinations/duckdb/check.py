"""`destination test` of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.destinations.base import Ref
from instep.destinations.duckdb.records import SCHEMA, dropped, remove_dropped
from instep.destinations.scratch import COMMIT, checks_of, scratch, scratch_file
from instep.model import Check
from instep.schema.change import TableRemoved
from instep.schema.step import step
from instep.schema.table import Table
from instep.stage.place import remove

if TYPE_CHECKING:
    from instep.destinations.duckdb.destination import DuckDbDestination


def check_file(destination: DuckDbDestination) -> list[Check]:
    """One line for each thing that the file and the folder beside it must allow, until the first that fails."""
    on = scratch(SCHEMA)
    file, folder = "the file must be a DuckDB database that may be written to", "the folder must allow new files"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of([
        ("open the file", file, lambda: _open(destination)),
        ("create a table", file, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
        ("write a file", folder, write),
        ("alter the table", file, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
        ("read it back", file, lambda: destination.read(on.ref).read_all()),
        ("drop the table", file, lambda: _drop(destination, on.ref, on.table)),
    ])  # fmt: skip


def _open(destination: DuckDbDestination) -> None:
    with destination.file.writing():
        return


def _drop(destination: DuckDbDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.target(ref).location.removesuffix("/data")
    destination.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    with destination.file.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, destination.area.io)
