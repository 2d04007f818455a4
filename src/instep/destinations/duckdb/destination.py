"""The DuckDB destination: one file, with its staged files in a folder beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
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
from instep.destinations.duckdb import ddl, keep, load, promote, rows
from instep.destinations.duckdb import promote as _fill
from instep.destinations.duckdb import views as _views
from instep.destinations.duckdb.ddl import CAPABILITIES
from instep.destinations.duckdb.file import DatabaseFile
from instep.destinations.duckdb.records import SCHEMA, dropped, every, find, not_ours, remove_dropped, require, twin
from instep.destinations.duckdb.shape import arrow_schema, as_it_is, comments, sql_type
from instep.destinations.duckdb.views import not_views
from instep.destinations.overflow import OverflowColumn, Promoted
from instep.destinations.shared import SharedTable, is_shared, shard_column, with_shard
from instep.destinations.sql.ddl import SqlDialect
from instep.destinations.sql.staged import Files, StagingArea
from instep.destinations.writable import check_writable
from instep.model import Check
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.types import DataType
from instep.schema.changes.describe import TableRemoved
from instep.schema.planning.aliases import View
from instep.schema.planning.plan import Step
from instep.schema.planning.step import step
from instep.stage.files.object_store import is_object
from instep.stage.files.place import StorageFolder, local, remove
from instep.stage.spec import StagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class DuckDbConfig:
    """`path` of the file; what is staged for it and held in quarantine goes into `<path>.files`, or where `staging`
    says: a folder, or a place in S3 that `properties` reach (which may hold credentials). One who finds the
    file held by another process waits `lock_timeout` seconds. `undo_days`: how long what was dropped is kept."""

    name: str
    path: str
    prefix: str = "_instep_"
    lock_timeout: float = 10
    quarantine_days: int = 30
    undo_days: float = 7
    staging: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)


class DuckDbDestination:
    """See `destinations.base.Destination`."""

    kind = "duckdb"
    capabilities = CAPABILITIES
    why_no_views = ""

    def __init__(self, config: DuckDbConfig, shard: str = "") -> None:
        """`shard`: the only one of shared tables that it loads and reads. What belongs to the file is `beside` it."""
        self.config = config
        part = (shard_column(config.prefix), shard) if shard else None
        self.beside = Path(f"{Path(config.path).absolute()}.files")
        folders = [self.beside, *([local(config.staging)] if config.staging and not is_object(config.staging) else [])]
        self.file = DatabaseFile(Path(config.path), config.lock_timeout, part, folders)

    def check_writable(self) -> None:
        beside = () if self.config.staging else (self.beside,)
        check_writable(self.config.name, self.file.path.parent, self.file.path, *beside)

    def part(self, shard: str) -> DuckDbDestination:
        return DuckDbDestination(self.config, shard)

    def whole(self, ref: Ref) -> SharedTable | None:
        with self.file.reading() as session:
            record = find(session, ref) if session else None
            if session is None or record is None or record.copy:
                return None
            return record.whole(ddl.table_as_it_is(session, record))

    def kept_open(self) -> AbstractContextManager[None]:
        return self.file.kept_open()

    @property
    def quarantine_days(self) -> int:
        return self.config.quarantine_days

    def spark_catalog(self) -> Mapping[str, str]:
        """Spark only writes the staged files."""
        return {}

    def test(self) -> list[Check]:

        return check_file(self)

    def tables(self) -> list[Ref]:
        with self.file.reading() as session:
            return sorted(every(session)) if session else []

    def inspect(self, refs: Iterable[Ref]) -> Catalog:
        wanted = list(refs)
        with self.file.reading() as session:
            if session is None:
                return Catalog()
            records, there, said = every(session), not_views(session), comments(session)
        found = []
        for ref in wanted:
            record = records.get(ref)
            if (record is None or record.copy) and twin(ref, there):
                raise not_ours(ref)
            if record is not None and record.parts:
                raise is_shared(ref)
            if record is not None and ref in there:
                found.append(as_it_is(record, there[ref], said.get(ref)))
        return Catalog.of(found)

    def foreign(self, refs: Iterable[Ref]) -> dict[Ref, str]:
        with self.file.reading() as session:
            if session is None:
                return {}
            records, there = every(session), not_views(session)
        ours = {ref for ref, record in records.items() if not record.copy and not record.parts}
        shared = {ref: str(is_shared(ref)) for ref, record in records.items() if record.parts}
        return {ref: shared.get(ref, str(not_ours(ref))) for ref in refs if ref not in ours and twin(ref, there)}

    def claim(self, ref: Ref, fence: int) -> None:
        load.claim(self.file, ref, fence)

    def remove_uncommitted_files(self, ref: Ref, runs: Mapping[str, int]) -> None:
        with self.file.reading() as session:
            record = find(session, ref) if session else None
        if record is None:
            return
        self.area.remove_uncommitted_files(record.place, runs, record.runs)

    @cached_property
    def area(self) -> StagingArea:
        if not self.config.staging:
            return StagingArea(self.beside.as_uri())
        made = StagingArea.of(self.config.staging, self.config.properties)
        return replace(made, uri=f"{made.uri}/{self.config.name}")

    def _here(self, commit: Commit, *groups: Sequence[StagedFile]) -> AbstractContextManager[list[Files]]:
        """Staged files where DuckDB reads them without an extension."""
        return self.area.here(self.beside / f"staged-{commit.fence}", *groups)

    def execute(self, ref: Ref, steps: Sequence[Step], after: Table | None, commit: Commit) -> None:
        ddl.execute(self.file, ref, steps, after, commit)

    def ddl(self, steps: Sequence[Step]) -> list[str]:
        """Return the steps as DuckDB's own SQL."""
        return SqlDialect(sql_type).statements(steps)

    def undrop_table(self, ref: Ref, table: Table, commit: Commit) -> None:
        ddl.undrop_table(self.file, ref, table, commit)

    def dropped(self, ref: Ref, source_id: str | None) -> bool:
        return keep.is_kept(self.file, ref, source_id)

    def undrop_report(self, ref: Ref, column: str) -> UndropReport:
        return keep.undrop_report(self.file, ref, column)

    def refill(self, ref: Ref, column: str, commit: Commit) -> int:
        """Nothing: a dropped column waits in its table and keeps its values through updates and full loads."""
        return 0

    def forget(self, refs: Iterable[Ref], fence: int) -> list[str]:
        return keep.forget(self.file, refs, fence, self.config.undo_days)

    def vacuum(self, *, dry_run: bool) -> tuple[int, int]:
        before = self.file.bytes()
        if self.file.exists() and not dry_run:
            self.file.checkpoint()
        return before, self.file.bytes()

    def keep(self, ref: Ref, place: Ref, commit: Commit) -> int | None:
        return keep.keep(self.file, ref, place, commit)

    def purge(self, place: Ref, fence: int) -> None:
        keep.purge(self.file, place)

    def fill_size(self, ref: Ref, columns: Mapping[str, int]) -> FillSize:
        return _fill.size(self.file, ref, columns)

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
        with self._here(commit, fill.values) as (here,):
            done = _fill.fill(self.file, ref, replace(fill, values=tuple(here)), commit)
        told(done.rows, done.bytes)
        return done

    def views(self) -> dict[Ref, View]:
        with self.file.reading() as session:
            return _views.views(session) if session else {}

    def put_view(self, view: View, fence: int) -> None:
        _views.put_view(self.file, view, fence)

    def drop_view(self, ref: Ref) -> None:
        _views.drop_view(self.file, ref)

    def promote(self, ref: Ref, columns: Mapping[str, OverflowColumn], extra: str, commit: Commit) -> Promoted:
        return promote.promote(self.file, ref, columns, extra, commit)

    def count_invalid_values(self, ref: Ref, column: str, kind: DataType) -> InvalidValueCount:
        return rows.count_invalid_values(self.file, ref, column, kind)

    def sample_cast(self, ref: Ref, column: str, kind: DataType, key: Sequence[str], limit: int) -> CastSample:
        return rows.sample_cast(self.file, ref, column, kind, key, limit)

    def target(self, ref: Ref) -> StagingTarget:
        with self.file.reading() as session:
            if session is None:
                raise not_ours(ref)
            record = require(session, ref)
        shape, place = record.waiting if record.pending else record, self.area.folder(record.place)
        schema = with_shard(arrow_schema(shape), shape.within)
        types = {c.name: c.type for c in shape.table.columns} if shape.within else {}
        return StagingTarget(schema, f"{place}/data", f"{place}/quarantine", self.area.io, types=types)

    def room(self) -> StorageFolder:
        return StorageFolder(self.area.folder("_instep_runs"), self.area.io)

    def state(self, ref: Ref) -> LoadState | None:
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

    def append(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        with self._here(commit, files) as (here,):
            return load.append(self.file, ref, here, commit)

    def overwrite(self, ref: Ref, files: Sequence[StagedFile], commit: Commit) -> LoadOutcome:
        with self._here(commit, files) as (here,):
            return load.overwrite(self.file, ref, here, commit)

    def merge(
        self, spark: SparkSession | None, ref: Ref, files: Sequence[StagedFile], merge: Merge, commit: Commit
    ) -> LoadOutcome:
        with self._here(commit, files, merge.keys, merge.asked) as (here, keys, asked):
            by = replace(merge, keys=tuple(keys), asked=tuple(asked))
            return load.merge(self.file, ref, here, by, commit, self.config.prefix)

    def lookup_rows(self, ref: Ref, keys: pa.Table) -> RowLookup:
        return rows.lookup_rows(self.file, ref, keys)

    def update_rows(self, ref: Ref, met: RowLookup, change: RowUpdate, commit: Commit) -> LoadOutcome:
        return rows.update_rows(self.file, ref, met, change, commit)

    def read(self, ref: Ref, columns: Sequence[str] = ()) -> pa.RecordBatchReader:
        return rows.read(self.file, ref, columns)

    def first_rows(self, ref: Ref, limit: int) -> pa.Table:
        return rows.read(self.file, ref, limit=limit).read_all()


def check_file(destination: DuckDbDestination) -> list[Check]:
    """Return one line for each thing that the file and the folder beside it must allow, until the first that fails."""
    on = scratch(SCHEMA)
    file, folder = "the file must be a DuckDB database that may be written to", "the folder must allow new files"

    def write() -> None:
        destination.append(on.ref, [scratch_file(destination.target(on.ref))], COMMIT)

    return checks_of(
        [
            ("open the file", file, lambda: _open(destination)),
            ("create a table", file, lambda: destination.execute(on.ref, [on.added], on.table, COMMIT)),
            ("write a file", folder, write),
            ("alter the table", file, lambda: destination.execute(on.ref, [on.widened], on.wider, COMMIT)),
            ("read it back", file, lambda: destination.read(on.ref).read_all()),
            ("drop the table", file, lambda: _drop(destination, on.ref, on.table)),
        ]
    )


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
