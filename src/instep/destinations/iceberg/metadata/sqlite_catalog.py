"""The catalog in a SQLite file, quicker than pyiceberg's own where many small tables are loaded again and again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError

from instep.destinations.iceberg.metadata.updates import applied, expected_result, no_metadata
from instep.stage.files.pyiceberg_code import load_file_io

CACHE_SIZE = 1_000
"""Parsed metadata files that are kept: they never change."""

_IS_TABLE = "catalog_name = ? AND table_namespace = ? AND (iceberg_type IS NULL OR iceberg_type <> 'VIEW')"
_POINTER = f"SELECT metadata_location FROM iceberg_tables WHERE {_IS_TABLE} AND table_name = ?"  # noqa: S608
_NAMES = f"SELECT table_name FROM iceberg_tables WHERE {_IS_TABLE}"  # noqa: S608
_MOVE = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)
_ADD = (
    "INSERT INTO iceberg_tables (metadata_location, previous_metadata_location, catalog_name, table_namespace, "
    "table_name, iceberg_type) VALUES (?, ?, ?, ?, ?, 'TABLE')"
)


class SqliteCatalog(SqlCatalog):
    """pyiceberg's catalog; a table whose pointer has not moved is not parsed again, and a pointer is read and moved
    without SQLAlchemy, which takes five times as long."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._parsed: dict[str, TableMetadata] = {}
        event.listen(self.engine, "connect", _relax)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table with the metadata that the catalog points to now; raises NoSuchTableError."""
        namespace, name = self._name(identifier)
        with self.database() as database:
            row = database.execute(_POINTER, (self.name, namespace, name)).fetchone()
        if row is None or not row[0]:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        metadata = self._metadata(row[0])
        io = self._load_file_io(metadata.properties, row[0])
        return Table((*Catalog.identifier_to_tuple(namespace), name), metadata, row[0], io, self)

    def table_names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's tables; none for a namespace that does not exist."""
        with self.database() as database:
            return [row[0] for row in database.execute(_NAMES, (self.name, namespace))]

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Move the table's pointer from the metadata that meet the requirements, or makes it. Raises
        CommitFailedException if they do not meet them, or another commit was faster."""
        try:
            now = self.load_table(table.name())
        except NoSuchTableError:
            now = None
        staged = self._update_and_stage_table(now, table.name(), requirements, updates)
        if now is None or staged.metadata != now.metadata:
            self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
            self._point(table.name(), now.metadata_location if now else None, staged.metadata_location)
            self._cache(staged.metadata_location, staged.metadata)
            now = staged
        location = now.metadata_location
        return CommitTableResponse(metadata=now.metadata, metadata_location=location)  # type: ignore[call-arg]

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        now = current_table.metadata if current_table else None
        for requirement in requirements:
            requirement.validate(now)
        before = current_table.metadata_location if current_table else ""
        metadata = expected_result(updates, now, before) or applied(now or no_metadata(), updates, before)
        version = self._parse_metadata_version(before) + 1 if before else 0
        place = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(version)
        return StagedTable(table_identifier, metadata, place, self._load_file_io(metadata.properties, place), self)

    def _point(self, identifier: Identifier, now: str | None, to: str) -> None:
        row = (to, now, self.name, *self._name(identifier))
        try:
            with self.database() as database, database:
                moved = database.execute(_MOVE, (*row, now)).rowcount if now else database.execute(_ADD, row).rowcount
        except sqlite3.IntegrityError:
            moved = 0
        if not moved:
            raise CommitFailedException(f"another process was faster: {'.'.join(identifier)}")

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Take a connection of SQLAlchemy's pool, which nobody else uses meanwhile; raises the errors of SQLite, also
        those of opening the file."""
        try:
            pooled = self.engine.raw_connection()
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise error.orig from error
            raise
        try:
            connection = pooled.driver_connection
            assert isinstance(connection, sqlite3.Connection)
            yield connection
        finally:
            pooled.close()

    @staticmethod
    def _name(identifier: str | Identifier) -> tuple[str, str]:
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        return namespace, Catalog.table_name_from(identifier)

    def _metadata(self, location: str) -> TableMetadata:
        if location not in self._parsed:
            file = load_file_io(properties=self.properties, location=location).new_input(location)
            self._cache(location, FromInputFile.table_metadata(file))
        return self._parsed[location]

    def _cache(self, location: str, metadata: TableMetadata) -> None:
        if len(self._parsed) >= CACHE_SIZE:
            self._parsed.clear()
        self._parsed[location] = metadata

    @staticmethod
    def _empty_table_metadata() -> TableMetadata:
        return no_metadata()


def _relax(connection: Any, _: Any) -> None:
    """Relax SQLite's syncing: in WAL mode a commit survives the process without one.

    The metadata file that the commit points to is not synced either; after a power cut an older pointer is right
    where a newer one could point to nothing.
    """
    connection.execute("PRAGMA synchronous=NORMAL")
