"""The PostgreSQL destination: a database, with the staged files in a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from instep.destinations.base import (
    CastSample,
    Commit,
    Fill,
    Filled,
    FillSize,
    InvalidValueCount,
    LoadOutcome,
    LoadState,
    Merge,
    Ref,
    RowLookup,
    RowUpdate,
    StagingTarget,
    TableSize,
    UndropReport,
)
from instep.destinations.connection_test import COMMIT, checks_of, scratch, scratch_file
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.postgres import ddl, keep, load, promote, rows
from instep.destinations.postgres import promote as _fill
from instep.destinations.postgres.ddl import CAPABILITIES, table_as_it_is
from instep.destinations.postgres.dependants import guards
from instep.destinations.postgres.ingest import remove_uncommitted_files
from instep.destinations.postgres.records import SCHEMA, dropped, every, find, not_ours, remove_dropped, require
from instep.destinations.postgres.server import PostgresServer, PostgresServerConfig
from instep.destinations.postgres.shape import arrow_schema, data_type, relation_bytes, relations, sql_type
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.destinations.sql.ddl import SqlDialect
from instep.destinations.sql.shape import as_it_is
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.guard import LayoutGuard
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.place import StorageFolder, remove
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class PostgresDestination:
    """See `destinations.base.Destination`."""

    kind = "postgres"
    capabilities = CAPABILITIES

    def __init__(self, config: PostgresServerConfig, shard: str = "") -> None:
        """`shard`: the only one of shared tables that it loads and reads."""
        self.config = config
        self.server = PostgresServer(config, (shard_column(config.prefix), shard) if shard else None)

    def part(self, shard: str) -> PostgresDestination:
        return PostgresDestination(self.config, shard)

    def whole(self, ref: Ref) -> SharedTable | None:
        with self.server.reading() as session:
            record = find(session, ref)
            if record is None or record.copy:
                return None
            return record.whole(table_as_it_is(session, record))

    @property
    def quarantine_days(self) -> int:
        return self.config.quarantine_days

    def spark_catalog(self) -> Mapping[str, str]:
        """Spark only writes the staged files."""
        return {}

    def test(self) -> list[Check]:

        return check_server(self)

    def tables(self) -> list[Ref]:
        with self.server.reading() as session:
            return sorted(every(session))

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
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

    def claim(self, ref: Ref, fence: int) -> None:
        load.claim(self.server, ref, fence)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        with self.server.reading() as session:
            record = find(session, ref)
        if record is None:
            return
        remove_uncommitted_files(self.server, record, runs.values())
        self.server.area.remove_uncommitted_files(record.place, runs, record.runs)

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        ddl.execute(self.server, ref, steps, after, commit)

    def ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as PostgreSQL's SQL."""
        return SqlDialect(sql_type).statements(steps)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        ddl.undrop_table(self.server, ref, table, commit)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        return keep.is_kept(self.server, ref, source_id)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        return keep.undrop_report(self.server, ref, column)

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        """Nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        return keep.forget(self.server, refs, fence, self.config.undo_days)

    def keep(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        return keep.keep(self.server, ref, place, commit)

    def purge(self, place: Ref, fence: int) -> None:
        keep.purge(self.server, place)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        return _fill.size(self.server, ref, columns)

    def fill(
        self,
        session: SparkSession | None,
        ref: Ref,
        fill: Fill,
        commit: Commit,
        told: Callable[[int, int], None],
        go_on: Callable[[], bool],
    ) -> Filled:
        """Fill the columns in one transaction; no checks are needed in between."""
        done = _fill.fill(self.server, ref, fill, commit)
        told(done.rows, done.bytes)
        return done

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        return promote.promote(self.server, ref, columns, extra, commit)

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        return rows.count_invalid_values(self.server, ref, column, kind)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        return rows.sample_cast(self.server, ref, column, kind, key, limit)

    def target(self, ref: Ref) -> StagingTarget:
        with self.server.reading() as session:
            record = require(session, ref)
        area, shape = self.server.area, record.waiting if record.pending else record
        place = area.folder(record.place)
        schema = with_shard(arrow_schema(shape), shape.within)
        types = {c.name: c.type for c in shape.table.columns} if shape.within else {}
        return StagingTarget(schema, f"{place}/data", f"{place}/quarantine", area.io, types)

    def room(self) -> StorageFolder:
        return StorageFolder(self.server.area.folder("_instep_runs"), self.server.area.io)

    def state(self, ref: Ref) -> LoadState | None:
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

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return load.append(self.server, ref, files, commit)

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        return load.overwrite(self.server, ref, files, commit)

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge: Merge, commit: Commit
    ) -> LoadOutcome:
        return load.merge(self.server, ref, files, merge, commit, self.config.prefix)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        return rows.lookup_rows(self.server, ref, keys)

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        return rows.update_rows(self.server, ref, met, change, commit)

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        return rows.read(self.server, ref, columns)

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        return rows.read(self.server, ref, limit=limit).read_all()


def check_server(destination: PostgresDestination) -> list[Check]:
    """Return one line for each thing that the server and the folder of staged files must allow, until the first that
    fails."""
    on = scratch(SCHEMA)
    make = f"GRANT CREATE ON DATABASE to {destination.config.user}, or make the schemas and give them to it"
    own, folder = "the table must belong to the user who loads it", "the folder of `staging` must allow new files"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("log in", "check host, port, user and password", lambda: destination.tables()),
            ("create a schema and a table", make, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
            ("stage a file and load it", folder, write),
            ("alter the table", own, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", own, lambda: destination.read(on.ref).read_all()),
            ("drop the table", own, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


def _drop(destination: PostgresDestination, ref: Ref, table: Table) -> None:
    """Nothing of it stays, neither parked nor on the disk."""
    folder = destination.target(ref).location.removesuffix("/data")
    destination.execute(ref, [step(ref, TableRemoved(table))], None, COMMIT)
    with destination.server.writing() as session:
        for one in dropped(session, ref):
            session.run(f"DROP TABLE {session.name(ref[0], one.place)}")
            remove_dropped(session, one)
    remove(folder, destination.server.area.io)
