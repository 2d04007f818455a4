"""`destination test` of a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.destinations.base import Ref
from instep.destinations.postgres.records import SCHEMA, dropped, remove_dropped
from instep.destinations.scratch import COMMIT, checks_of, scratch, scratch_file
from instep.model import Check
from instep.schema.change import TableRemoved
from instep.schema.step import step
from instep.schema.table import Table
from instep.stage.place import remove

if TYPE_CHECKING:
    from instep.destinations.postgres.destination import PostgresDestination


def check_server(destination: PostgresDestination) -> list[Check]:
    """One line for each thing that the server and the folder of staged files must allow, until the first that fails."""
    on = scratch(SCHEMA)
    make = f"GRANT CREATE ON DATABASE to {destination.config.user}, or make the schemas and give them to it"
    own, folder = "the table must belong to the user who loads it", "the folder of `staging` must allow new files"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of([
        ("log in", "check host, port, user and password", lambda: destination.tables()),
        ("create a schema and a table", make, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
        ("stage a file and load it", folder, write),
        ("alter the table", own, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
        ("read it back", own, lambda: destination.read(on.ref).read_all()),
        ("drop the table", own, lambda: _drop(destination, on.ref, on.table)),
    ])  # fmt: skip


def _drop(destination: PostgresDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.target(ref).location.removesuffix("/data")
    destination.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    with destination.server.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, destination.server.area.io)
