"""The world of the stateful test over a real SQLite file and a real Iceberg lake, filled by Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from instep.destinations.base import Ref
from instep.destinations.iceberg.destination import IcebergConfig, IcebergDestination
from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import DataType, Int, String
from instep.sources.sqlite.catalog import quoted
from instep.sources.sqlite.source import SqliteSource
from instep.sync.loading.engine import Engine, OnSpark
from memory.database import MemoryTable
from memory.held import BY_HAND
from memory.world import World


@dataclass(frozen=True)
class Seen:
    """A table of the lake as the promises look at it; columns are known by their names."""

    table: Table
    rows: list[dict[str, Any]]
    pending: Table | None = None

    @property
    def ids(self) -> dict[str, str]:
        return {c.name: c.name for c in self.table.columns}


class Lake(IcebergDestination):
    @property
    def held(self) -> dict[Ref, Seen]:
        ours = self.schema.tables()
        copies = self.schema.foreign(ours)
        found = self.schema.inspect([ref for ref in ours if ref not in copies]).tables
        return {t.ref: Seen(t, self.write.read(t.ref).read_all().to_pylist()) for t in found}


@dataclass
class LakeWorld(World):
    """The database of this process is written to a file before each look at it."""

    session: SparkSession = field(kw_only=True)

    def __post_init__(self) -> None:
        self.written: dict[str, MemoryTable] = {}
        super().__post_init__()

    @property
    def file(self) -> Path:
        return self.folder / "shop.db"

    def make_destination(self) -> Any:
        return Lake(IcebergConfig.resolved(name="lake", warehouse=str(self.folder / "lake")))

    def make_source(self) -> Any:
        self.write()
        return WatchedFile(SqliteSource(SqliteSourceSection.resolved(type="sqlite", path=str(self.file))), self.read)

    def engine(self) -> Engine:
        return OnSpark(lambda: self.session)

    def change_by_hand(self, ref: Ref, column: str) -> None:
        with self.destination.lake.catalog.load_table(ref).update_schema(allow_incompatible_changes=True) as update:
            if column == BY_HAND:
                update.add_column(column, StringType())
            else:
                update.delete_column(column)

    def write(self) -> None:
        """What has changed in the database since it was written last."""
        now = self.database.tables
        with closing(sqlite3.connect(self.file)) as connection, connection:
            for name in [n for n, old in self.written.items() if now.get(n) != old]:
                connection.execute(f"DROP TABLE {quoted(name)}")
            for name in [n for n, table in now.items() if self.written.get(n) != table]:
                _create(connection, now[name])
        self.written = dict(now)


def _create(connection: sqlite3.Connection, held: MemoryTable) -> None:
    table = held.table
    key = ", ".join(map(quoted, table.key))
    columns = [_declared(c) for c in table.columns] + ([f"PRIMARY KEY ({key})"] if key else [])
    connection.execute(f"CREATE TABLE {quoted(table.name)} ({', '.join(columns)})")
    marks = ", ".join("?" for _ in table.columns)
    rows = [[str(v) if isinstance(v, Decimal) else v for v in row] for row in held.rows]
    connection.executemany(f"INSERT INTO {quoted(table.name)} VALUES ({marks})", rows)  # noqa: S608


def _declared(column: Column) -> str:
    return f"{quoted(column.name)} {_type(column.type)}{'' if column.nullable else ' NOT NULL'}"


def _type(kind: DataType) -> str:
    match kind:
        case Int():
            return "BIGINT"
        case String(length):
            return "TEXT" if length is None else f"VARCHAR({length})"
    return str(kind).upper()


class WatchedFile:
    """The source, which notes whose rows are asked for."""

    def __init__(self, source: SqliteSource, read: list[str]) -> None:
        self._source, self._read = source, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    @contextmanager
    def snapshot(self) -> Iterator[Any]:
        with self._source.snapshot() as snapshot:
            yield _WatchedSnapshot(snapshot, self._read)


class _WatchedSnapshot:
    def __init__(self, snapshot: Any, read: list[str]) -> None:
        self._snapshot, self._read = snapshot, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._snapshot, name)

    def chunks(self, read: Any, *rest: Any, **more: Any) -> Any:
        self._read.append(read.source.name)
        return self._snapshot.chunks(read, *rest, **more)
