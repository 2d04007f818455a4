"""A database with transactions as a destination: schema, rows, cursor and fence of a table change in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from instep.destinations.base import Ref
from instep.destinations.connection_test import COMMIT, checks_of, scratch, scratch_file
from instep.destinations.facets import Destination, LifecycleFacet, ViewsFacet
from instep.destinations.shared import SharedTable
from instep.destinations.sql.database import SqlDatabase
from instep.destinations.sql.fills import SqlFills
from instep.destinations.sql.lifecycle import SqlLifecycle
from instep.destinations.sql.loads import SqlLoads
from instep.destinations.sql.record_tables import drop_for_good, dropped, find
from instep.destinations.sql.rows import SqlRows
from instep.destinations.sql.schema import SqlSchema
from instep.destinations.sql.session import SCHEMA
from instep.destinations.sql.tables import table_as_it_is
from instep.model import Check
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.hazard import Capabilities
from instep.schema.planning.step import step
from instep.stage.files.place import remove


class SqlWrite(SqlLoads, SqlRows, SqlFills):
    """See `destinations.facets.WriteFacet`."""


class SqlSharing:
    """Several connections' rows in one table; `part` returns the destination as one shard loads and reads it."""

    why_none, layouts = "", False

    def __init__(self, database: SqlDatabase, part: Callable[[str], Destination]) -> None:
        self.database, self.part = database, part

    def shared_table(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards."""
        with self.database.reading() as session:
            record = find(session, ref)
            if record is None or record.copy:
                return None
            return record.whole(table_as_it_is(session, record))


@dataclass(frozen=True)
class CheckNames:
    """The names of the steps of a connection test, each with a hint for when it fails."""

    open: tuple[str, str]
    create: tuple[str, str]
    write: tuple[str, str]
    alter: str
    """The hint for when the table cannot be altered, read or dropped."""


class SqlDestination:
    """See `destinations.facets.Destination`."""

    maintenance = shard = None
    views: ViewsFacet | None = None
    lifecycle: LifecycleFacet

    def __init__(self, database: SqlDatabase, part: Callable[[str], Destination], names: CheckNames) -> None:
        self.database, self.names = database, names
        self.quarantine_days = database.config.quarantine_days
        self.schema = SqlSchema(database)
        self.write = SqlWrite(database)
        self.lifecycle = SqlLifecycle(database, self.test)
        self.sharing = SqlSharing(database, part)

    @property
    def kind(self) -> str:
        return self.database.kind

    @property
    def capabilities(self) -> Capabilities:
        return self.database.dialect.capabilities

    def test(self) -> list[Check]:
        """Return one line for each thing that the database and the folder of staged files must allow, until the first
        that fails."""
        on, names, execute = scratch(SCHEMA), self.names, self.schema.execute

        def write() -> None:
            self.write.append(on.ref, [scratch_file(self.write.target(on.ref))], COMMIT)

        return checks_of(
            [
                (*names.open, self.open),
                (*names.create, lambda: execute(on.ref, [on.added], on.table, COMMIT)),
                (*names.write, write),
                ("alter the table", names.alter, lambda: execute(on.ref, [on.widened], on.wider, COMMIT)),
                ("read it back", names.alter, lambda: self.write.read(on.ref).read_all()),
                ("drop the table", names.alter, lambda: self._drop(on.ref, on.table)),
            ]
        )

    def open(self) -> None:
        """Raise ConnectError or Conflict if the database cannot be reached."""
        self.schema.tables()

    def _drop(self, ref: Ref, table: Table) -> None:
        """Drop the table with its parked copy and its files."""
        folder = self.write.target(ref).location.removesuffix("/data")
        self.schema.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
        with self.database.writing() as session:
            for waiting in dropped(session, ref):
                drop_for_good(session, waiting)
        remove(folder, self.database.area.io)
