"""The PostgreSQL destination: a database, with the staged files in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from instep.destinations.base import LoadState, Ref, StagingTarget, TableSize
from instep.destinations.connection_test import COMMIT, checks_of, scratch, scratch_file
from instep.destinations.postgres.ddl import CAPABILITIES, PostgresDdl, table_as_it_is
from instep.destinations.postgres.dependants import guards
from instep.destinations.postgres.ingest import remove_uncommitted_files
from instep.destinations.postgres.keep import PostgresClones, PostgresRetention
from instep.destinations.postgres.load import PostgresLoads
from instep.destinations.postgres.records import dropped, every, find, not_ours, remove_dropped, require
from instep.destinations.postgres.rows import PostgresFills, PostgresRows
from instep.destinations.postgres.server import PostgresServer, PostgresServerConfig
from instep.destinations.postgres.shape import arrow_schema, data_type, relation_bytes, relations, sql_type
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.destinations.sql.alter import SCHEMA
from instep.destinations.sql.ddl import SqlDialect
from instep.destinations.sql.shape import as_it_is
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.guard import LayoutGuard
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.place import StorageFolder, remove


class PostgresSchema(PostgresDdl):
    """Tables as the database's records and its catalog describe them."""

    layouts = None

    def tables(self) -> list[Ref]:
        """Return all tables that are ours."""
        with self.server.reading() as session:
            return sorted(every(session))

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables that exist; DestinationError for one that is not ours."""
        wanted = list(refs)
        with self.server.reading() as session:
            records, there = every(session), relations(session, wanted)
        found = []
        for ref in wanted:
            record = records.get(ref)
            if (record is None or record.copy) and ref in there:
                raise not_ours(ref)
            if record is not None and record.parts:
                raise is_shared(ref)
            if record is not None and ref in there:
                found.append(as_it_is(record, there[ref].columns, there[ref].comment, data_type))
        return Catalog.of(found)

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        """Return the tables that exist and are not ours."""
        wanted = list(refs)
        with self.server.reading() as session:
            records, there = every(session), relations(session, wanted)
        ours = {ref for ref, record in records.items() if not record.copy and not record.parts}
        shared = {ref: str(is_shared(ref)) for ref, record in records.items() if record.parts}
        return {ref: shared.get(ref, str(not_ours(ref))) for ref in wanted if ref not in ours and ref in there}

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, dict[str, tuple[LayoutGuard, ...]]]:
        """Return the columns that views, foreign keys and functions of others need."""
        with self.server.reading() as session:
            return guards(session, list(refs))

    def state(self, ref: Ref) -> LoadState | None:
        """Return what the last load recorded."""
        with self.server.reading() as session:
            record = find(session, ref)
        return record.state if record else None

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return rows as recorded, and the bytes of the relation with its indexes; of one shard those are not known."""
        wanted, part = list(refs), self.server.part
        with self.server.reading() as session:
            found, taken = every(session), {} if part else relation_bytes(session, wanted)
        own = {ref: r.part(part[1], part[0]) if part else r for ref in wanted if (r := found.get(ref)) is not None}
        return {ref: r.size(taken.get(ref)) for ref, r in own.items() if r is not None and not r.copy}

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as PostgreSQL's SQL."""
        return SqlDialect(sql_type).statements(steps)


class PostgresWrite(PostgresLoads, PostgresRows, PostgresFills):
    """Rows of tables in the database."""

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write a table's files."""
        with self.server.reading() as session:
            record = require(session, ref)
        area, shape = self.server.area, record.waiting if record.pending else record
        place = area.folder(record.place)
        schema = with_shard(arrow_schema(shape), shape.within)
        types = {c.name: c.type for c in shape.table.columns} if shape.within else {}
        return StagingTarget(schema, f"{place}/data", f"{place}/quarantine", area.io, types)


class PostgresLifecycle(PostgresRetention):
    """The database itself."""

    session = vacuum = savepoints = None

    def __init__(self, destination: PostgresDestination) -> None:
        super().__init__(destination.server)
        self.destination = destination

    @property
    def clones(self) -> PostgresClones:
        return PostgresClones(self.server)

    def spark_catalog(self) -> Mapping[str, str]:
        """Return nothing: Spark only writes the staged files."""
        return {}

    def spark_table(self, ref: Ref) -> None:
        """Return nothing: Spark does not read it."""

    def test(self) -> list[Check]:
        """Try a scratch table."""
        return check_server(self.destination)

    def check_writable(self) -> None:
        """Do nothing: it is the server that writes."""

    def deferred_create(self) -> AbstractContextManager[None]:
        """Do nothing: a table is there once it is made."""
        return nullcontext()

    def shared_storage(self) -> StorageFolder:
        """Return a folder for files of no table."""
        return StorageFolder(self.server.area.folder("_instep_runs"), self.server.area.io)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what runs that are over staged for a claimed table and never committed."""
        with self.server.reading() as session:
            record = find(session, ref)
        if record is None:
            return
        remove_uncommitted_files(self.server, record, runs.values())
        self.server.area.remove_uncommitted_files(record.place, runs, record.runs)


class PostgresSharing:
    """Several connections' rows in one table."""

    why_none, layouts = "", False

    def __init__(self, destination: PostgresDestination) -> None:
        self.destination = destination

    def part(self, shard: str) -> PostgresDestination:
        """Return the destination as one shard loads and reads it."""
        return PostgresDestination(self.destination.config, shard)

    def whole(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards."""
        with self.destination.server.reading() as session:
            record = find(session, ref)
            if record is None or record.copy:
                return None
            return record.whole(table_as_it_is(session, record))


class PostgresDestination:
    """See `destinations.facets.Destination`."""

    kind = "postgres"
    capabilities = CAPABILITIES
    maintenance = views = shard = None

    def __init__(self, config: PostgresServerConfig, shard: str = "") -> None:
        """`shard`: the only one of shared tables that it loads and reads."""
        self.config, self.quarantine_days = config, config.quarantine_days
        self.server = PostgresServer(config, (shard_column(config.prefix), shard) if shard else None)
        self.schema = PostgresSchema(self.server)
        self.write = PostgresWrite(self.server)
        self.lifecycle = PostgresLifecycle(self)
        self.sharing = PostgresSharing(self)


def check_server(destination: PostgresDestination) -> list[Check]:
    """Return one line for each thing that the server and the folder of staged files must allow, until the first that
    fails."""
    on = scratch(SCHEMA)
    make = f"GRANT CREATE ON DATABASE to {destination.config.user}, or make the schemas and give them to it"
    own, folder = "the table must belong to the user who loads it", "the folder of `staging` must allow new files"

    def write() -> None:
        destination.write.append(on.ref, [scratch_file(destination.write.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("log in", "check host, port, user and password", lambda: destination.schema.tables()),
            (
                "create a schema and a table",
                make,
                lambda: destination.schema.execute(on.ref, [on.added], on.table, COMMIT),
            ),
            ("stage a file and load it", folder, write),
            ("alter the table", own, lambda: destination.schema.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", own, lambda: destination.write.read(on.ref).read_all()),
            ("drop the table", own, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


def _drop(destination: PostgresDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.write.target(ref).location.removesuffix("/data")
    destination.schema.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    with destination.server.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, destination.server.area.io)
