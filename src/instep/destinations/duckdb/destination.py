"""The DuckDB destination: one file, with its staged files in a folder beside it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import pyarrow as pa

from instep.destinations.base import Commit, Ref, SparkStart
from instep.destinations.connection_test import check_writable, has_space
from instep.destinations.duckdb.file import DatabaseFile
from instep.destinations.duckdb.session import DuckDbSession
from instep.destinations.duckdb.shape import CAPABILITIES, DIALECT
from instep.destinations.duckdb.staging import DuckDbStaging
from instep.destinations.duckdb.views import DuckDbViews
from instep.destinations.shared import shard_column
from instep.destinations.sql.database import SqlDatabase
from instep.destinations.sql.destination import CheckNames, SqlDestination
from instep.destinations.sql.lifecycle import SqlLifecycle
from instep.destinations.sql.record_tables import require_readable
from instep.destinations.sql.records import Record
from instep.destinations.sql.session import Dialect, SqlSession
from instep.destinations.sql.staged import StagingArea
from instep.model import Check
from instep.project.sections.models import DuckDbDestinationSection
from instep.project.sections.values import as_text
from instep.stage.files.object_store import is_object
from instep.stage.files.place import local

__all__ = ["CAPABILITIES", "DuckDbConfig", "DuckDbDestination"]
_FILE = "the file must be a DuckDB database that may be written to"
_NAMES = CheckNames(
    ("open the file", _FILE), ("create a table", _FILE), ("write a file", "the folder must allow new files"), _FILE
)


class DuckDbConfig(DuckDbDestinationSection):
    """A DuckDB file under the `name` that the project file has for it."""

    type: Literal["duckdb"] = "duckdb"
    name: str


class DuckDbDatabase(SqlDatabase):
    """The file as a connection has it."""

    kind: ClassVar[str] = "duckdb"
    dialect: ClassVar[Dialect] = DIALECT
    config: DuckDbConfig

    def __init__(self, config: DuckDbConfig, shard: str = "") -> None:
        self.config = config
        self.part = (shard_column(config.prefix), shard) if shard else None
        self.beside = Path(f"{Path(config.path).absolute()}.files")
        staged = config.staging and not is_object(config.staging)
        folders = [self.beside, *([local(config.staging)] if staged else [])]
        self.file = DatabaseFile(Path(config.path), config.lock_timeout, self.part, folders)

    @cached_property
    def area(self) -> StagingArea:
        """Return the folder and the schema that tasks write."""
        if not self.config.staging:
            return StagingArea(self.beside.as_uri())
        return StagingArea.of(self.config.staging, as_text(self.config.properties), self.config.name)

    def reading(self) -> AbstractContextManager[DuckDbSession]:
        return self.file.reading()

    def writing(self) -> AbstractContextManager[DuckDbSession]:
        return self.file.writing()

    def select(
        self, ref: Ref, sql: Callable[[SqlSession, Record], str], keys: tuple[str, pa.Table] | None = None
    ) -> tuple[Record, Iterator[pa.RecordBatch]]:
        """Run the query. The file stays open until the last batch is taken or the batches are discarded."""
        with ExitStack() as stack:
            session = stack.enter_context(self.reading())
            record = require_readable(session, ref)
            if keys:
                session.db.register(*keys)
            reader = session.batches(sql(session, record))
            closing = stack.pop_all()

        def batches() -> Iterator[pa.RecordBatch]:
            with closing:
                yield pa.record_batch([], names=[])
                yield from reader

        rows = batches()
        next(rows)  # what has not begun would not end either
        return record, rows

    def staging(self, record: Record, commit: Commit, spark: SparkStart | None = None) -> DuckDbStaging:
        name = f"staged-{commit.fence}-{record.place}-{uuid.uuid4().hex[:8]}"
        return DuckDbStaging(self, record, commit, self.beside / name)

    def remove_staged(self, record: Record, fences: Iterable[int]) -> None:
        for fence in fences:
            for folder in self.beside.glob(f"staged-{fence}-{record.place}-*"):
                shutil.rmtree(folder, ignore_errors=True)


class DuckDbLifecycle(SqlLifecycle):
    """The file itself, which is open only while something is done with it."""

    def __init__(self, database: DuckDbDatabase, test: Callable[[], list[Check]]) -> None:
        super().__init__(database, test)
        self.file, self.config, self.beside = database.file, database.config, database.beside

    @property
    def session(self) -> Callable[[], AbstractContextManager[None]]:
        """Opens the file once for all that is done until the end; others may have to wait for it."""
        return self.file.session

    @property
    def vacuum(self) -> Callable[[bool], tuple[int, int]]:
        """Gives back the space of what was deleted."""
        return self._vacuum

    def _vacuum(self, dry_run: bool) -> tuple[int, int]:
        before = self.file.bytes()
        if self.file.exists() and not dry_run:
            self.file.checkpoint()
        return before, self.file.bytes()

    def check_writable(self) -> None:
        """Raise ConnectError if this machine may not write the file, or the folder beside it."""
        beside = () if self.config.staging else (self.beside,)
        check_writable(self.config.name, self.file.path.parent, self.file.path, *beside)

    def has_space(self) -> bool:
        """Return whether the file can grow, and staged files can be written."""
        return has_space(self.file.path.parent) and super().has_space()


class DuckDbDestination(SqlDestination):
    """See `destinations.facets.Destination`."""

    def __init__(self, config: DuckDbConfig, shard: str = "") -> None:
        """Connect to the file; `shard` limits loading and reading to one shard of shared tables."""
        database = DuckDbDatabase(config, shard)
        super().__init__(database, lambda shard: DuckDbDestination(config, shard), _NAMES)
        self.config, self.file = config, database.file
        self.lifecycle = DuckDbLifecycle(database, self.test)
        self.views = DuckDbViews(database)

    def open(self) -> None:
        """Create the file if it does not exist."""
        with self.file.writing():
            return
