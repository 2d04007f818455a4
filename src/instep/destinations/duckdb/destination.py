"""The DuckDB destination: one file, with its staged files in a folder beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from instep.destinations.base import LoadState, Ref, StagingTarget, TableSize
from instep.destinations.connection_test import COMMIT, check_writable, checks_of, scratch, scratch_file
from instep.destinations.duckdb import ddl
from instep.destinations.duckdb.ddl import CAPABILITIES, DuckDbDdl, DuckDbViews, not_views
from instep.destinations.duckdb.file import DatabaseFile, DuckDbConfig
from instep.destinations.duckdb.keep import DuckDbClones, DuckDbRetention
from instep.destinations.duckdb.load import DuckDbLoads
from instep.destinations.duckdb.records import (
    arrow_schema,
    as_it_is,
    comments,
    dropped,
    every,
    find,
    not_ours,
    remove_dropped,
    require,
    sql_type,
    twin,
)
from instep.destinations.duckdb.rows import DuckDbFills, DuckDbRows
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.destinations.sql.alter import SCHEMA
from instep.destinations.sql.ddl import SqlDialect
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.guard import Guards
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.object_store import is_object
from instep.stage.files.place import StorageFolder, local, remove

__all__ = ["CAPABILITIES", "DuckDbConfig", "DuckDbDestination"]


class DuckDbSchema(DuckDbDdl):
    """Tables as the file's records and its catalog describe them."""

    layouts = None

    def tables(self) -> list[Ref]:
        """Return all tables that are ours."""
        with self.file.reading() as session:
            return sorted(every(session)) if session else []

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        """Return the tables that exist; DestinationError for one that is not ours."""
        wanted = list(refs)
        with self.file.reading() as session:
            if session is None:
                return Catalog()
            records, there, recorded = every(session), not_views(session), comments(session)
        found = []
        for ref in wanted:
            record = records.get(ref)
            if (record is None or record.copy) and twin(ref, there):
                raise not_ours(ref)
            if record is not None and record.parts:
                raise is_shared(ref)
            if record is not None and ref in there:
                found.append(as_it_is(record, there[ref], recorded.get(ref)))
        return Catalog.of(found)

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        """Return the tables that exist and are not ours."""
        with self.file.reading() as session:
            if session is None:
                return {}
            records, there = every(session), not_views(session)
        ours = {ref for ref, record in records.items() if not record.copy and not record.parts}
        shared = {ref: str(is_shared(ref)) for ref, record in records.items() if record.parts}
        return {ref: shared.get(ref, str(not_ours(ref))) for ref in refs if ref not in ours and twin(ref, there)}

    def guards(self, refs: Iterable[Ref]) -> dict[Ref, Guards]:
        """Return nothing: nothing of others stands on a column."""
        return {}

    def state(self, ref: Ref) -> LoadState | None:
        """Return what the last load recorded."""
        with self.file.reading() as session:
            record = find(session, ref) if session else None
        return record.state if record else None

    def sizes(self, refs: Iterable[Ref]) -> dict[Ref, TableSize]:
        """Return rows as recorded; a file does not tell the bytes of one table: small ones share blocks."""
        with self.file.reading() as session:
            found = every(session) if session else {}
        part = self.file.part
        own = {ref: r.part(part[1], part[0]) if part else r for ref in refs if (r := found.get(ref)) is not None}
        return {ref: record.size(None) for ref, record in own.items() if record is not None and not record.copy}

    def render_ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as DuckDB's own SQL."""
        return SqlDialect(sql_type).statements(steps)


class DuckDbWrite(DuckDbLoads, DuckDbRows, DuckDbFills):
    """Rows of tables in the file."""

    def target(self, ref: Ref) -> StagingTarget:
        """Return where tasks write a table's files."""
        with self.file.reading() as session:
            if session is None:
                raise not_ours(ref)
            record = require(session, ref)
        shape, place = record.waiting if record.pending else record, self.area.folder(record.place)
        schema = with_shard(arrow_schema(shape), shape.within)
        types = {c.name: c.type for c in shape.table.columns} if shape.within else {}
        return StagingTarget(schema, f"{place}/data", f"{place}/quarantine", self.area.io, types=types)


class DuckDbLifecycle(DuckDbRetention):
    """The file itself."""

    savepoints = None

    def __init__(self, destination: DuckDbDestination) -> None:
        super().__init__(destination.config, destination.file)
        self.destination = destination

    @property
    def clones(self) -> DuckDbClones:
        return DuckDbClones(self.config, self.file)

    def session(self) -> AbstractContextManager[None]:
        """Open the file once for all that is done until the end; others may have to wait for it."""
        return self.file.session()

    def vacuum(self, dry_run: bool) -> tuple[int, int]:
        """Give back the space of what was deleted."""
        before = self.file.bytes()
        if self.file.exists() and not dry_run:
            self.file.checkpoint()
        return before, self.file.bytes()

    def spark_catalog(self) -> Mapping[str, str]:
        """Return nothing: Spark only writes the staged files."""
        return {}

    def spark_table(self, ref: Ref) -> None:
        """Return nothing: Spark does not read it."""

    def test(self) -> list[Check]:
        """Try a scratch table."""
        return check_file(self.destination)

    def check_writable(self) -> None:
        """Raise ConnectError if this machine may not write the file, or the folder beside it."""
        beside = () if self.config.staging else (self.beside,)
        check_writable(self.config.name, self.file.path.parent, self.file.path, *beside)

    def deferred_create(self) -> AbstractContextManager[None]:
        """Do nothing: a table is there once it is made."""
        return nullcontext()

    def shared_storage(self) -> StorageFolder:
        """Return a folder for files of no table."""
        return StorageFolder(self.area.folder("_instep_runs"), self.area.io)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        """Delete what runs that are over staged for a claimed table and never committed."""
        with self.file.reading() as session:
            record = find(session, ref) if session else None
        if record is not None:
            self.area.remove_uncommitted_files(record.place, runs, record.runs)


class DuckDbSharing:
    """Several connections' rows in one table."""

    why_none, layouts = "", False

    def __init__(self, destination: DuckDbDestination) -> None:
        self.destination = destination

    def part(self, shard: str) -> DuckDbDestination:
        """Return the destination as one shard loads and reads it."""
        return DuckDbDestination(self.destination.config, shard)

    def whole(self, ref: Ref) -> SharedTable | None:
        """Return a table with its shards."""
        with self.destination.file.reading() as session:
            record = find(session, ref) if session else None
            if session is None or record is None or record.copy:
                return None
            return record.whole(ddl.table_as_it_is(session, record))


class DuckDbDestination:
    """See `destinations.facets.Destination`."""

    kind = "duckdb"
    capabilities = CAPABILITIES
    maintenance = shard = None

    def __init__(self, config: DuckDbConfig, shard: str = "") -> None:
        """`shard`: the only one of shared tables that it loads and reads."""
        self.config, self.quarantine_days = config, config.quarantine_days
        part = (shard_column(config.prefix), shard) if shard else None
        beside = Path(f"{Path(config.path).absolute()}.files")
        folders = [beside, *([local(config.staging)] if config.staging and not is_object(config.staging) else [])]
        self.file = DatabaseFile(Path(config.path), config.lock_timeout, part, folders)
        self.schema = DuckDbSchema(config, self.file)
        self.write = DuckDbWrite(config, self.file)
        self.lifecycle = DuckDbLifecycle(self)
        self.views = DuckDbViews(config, self.file)
        self.sharing = DuckDbSharing(self)


def check_file(destination: DuckDbDestination) -> list[Check]:
    """Return one line for each thing that the file and the folder beside it must allow, until the first that fails."""
    on = scratch(SCHEMA)
    file, folder = "the file must be a DuckDB database that may be written to", "the folder must allow new files"

    def write() -> None:
        destination.write.append(on.ref, [scratch_file(destination.write.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("open the file", file, lambda: _open(destination)),
            ("create a table", file, lambda: destination.schema.execute(on.ref, [on.added], on.table, COMMIT)),
            ("write a file", folder, write),
            ("alter the table", file, lambda: destination.schema.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", file, lambda: destination.write.read(on.ref).read_all()),
            ("drop the table", file, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


def _open(destination: DuckDbDestination) -> None:
    with destination.file.writing():
        return


def _drop(destination: DuckDbDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.write.target(ref).location.removesuffix("/data")
    destination.schema.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    with destination.file.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, destination.write.area.io)
