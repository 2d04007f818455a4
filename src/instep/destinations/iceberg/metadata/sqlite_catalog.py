"""The catalog in a SQLite file, quicker than pyiceberg's own where many small tables are loaded again and again."""

from __future__ import annotations

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
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError

from instep.destinations.iceberg.metadata.updates import applied, no_metadata
from instep.stage.files.pyiceberg_code import load_file_io

CACHE_SIZE = 1_000
"""Parsed metadata files that are kept: they never change."""

_POINTER = text(
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name "
    "AND (iceberg_type IS NULL OR iceberg_type <> 'VIEW')"
)
_NAMES = text(
    "SELECT table_name FROM iceberg_tables WHERE catalog_name = :catalog AND table_namespace = :namespace "
    "AND (iceberg_type IS NULL OR iceberg_type <> 'VIEW')"
)
_MOVE = text(
    "UPDATE iceberg_tables SET metadata_location = :to, previous_metadata_location = :now "
    "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name AND metadata_location = :now"
)
_ADD = text(
    "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type) "
    "VALUES (:catalog, :namespace, :name, :to, 'TABLE')"
)


class SqliteCatalog(SqlCatalog):
    """pyiceberg's catalog; a table whose pointer has not moved is not parsed again, and a pointer moves without the
    ORM, which takes three times as long."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._parsed: dict[str, TableMetadata] = {}
        event.listen(self.engine, "connect", _relax)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Return the table with the metadata that the catalog points to now; raises NoSuchTableError."""
        row = self._row(identifier)
        with self.engine.connect() as database:
            location = database.execute(_POINTER, row).scalar()
        if not location:
            raise NoSuchTableError(f"Table does not exist: {row['namespace']}.{row['name']}")
        metadata = self._metadata(location)
        io = self._load_file_io(metadata.properties, location)
        return Table((*Catalog.identifier_to_tuple(row["namespace"]), row["name"]), metadata, location, io, self)

    def table_names(self, namespace: str) -> list[str]:
        """Return the names of a namespace's tables; none for a namespace that does not exist."""
        with self.engine.connect() as database:
            return [*database.execute(_NAMES, {"catalog": self.name, "namespace": namespace}).scalars()]

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Move the table's pointer from the metadata that meet the requirements, or makes it. Raises
        CommitFailedException if they do not meet them, or another commit was faster."""
        try:
            now = self.load_table(table.name())
        except NoSuchTableError:
            now = None
        made = self._update_and_stage_table(now, table.name(), requirements, updates)
        if now is None or made.metadata != now.metadata:
            self._write_metadata(made.metadata, made.io, made.metadata_location)
            self._point(self._row(table.name()), now.metadata_location if now else None, made.metadata_location)
            self._keep(made.metadata_location, made.metadata)
            now = made
        location = now.metadata_location
        return CommitTableResponse(metadata=now.metadata, metadata_location=location)  # type: ignore[call-arg]

    def _update_and_stage_table(
        self,
        current_table: Table | None,
        table_identifier: Identifier,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> StagedTable:
        if current_table is None:
            return super()._update_and_stage_table(None, table_identifier, requirements, updates)
        now = current_table.metadata
        for requirement in requirements:
            requirement.validate(now)
        made = applied(now, updates, current_table.metadata_location)
        version = self._parse_metadata_version(current_table.metadata_location) + 1
        place = load_location_provider(made.location, made.properties).new_table_metadata_file_location(version)
        return StagedTable(table_identifier, made, place, self._load_file_io(made.properties, place), self)

    def _point(self, row: dict[str, str], now: str | None, to: str) -> None:
        try:
            with self.engine.begin() as database:
                moved = database.execute(_MOVE if now else _ADD, {**row, "now": now, "to": to}).rowcount
        except IntegrityError:
            moved = 0
        if not moved:
            raise CommitFailedException(f"another process was faster: {row['namespace']}.{row['name']}")

    def _row(self, identifier: str | Identifier) -> dict[str, str]:
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        return {"catalog": self.name, "namespace": namespace, "name": Catalog.table_name_from(identifier)}

    def _metadata(self, location: str) -> TableMetadata:
        if location not in self._parsed:
            file = load_file_io(properties=self.properties, location=location).new_input(location)
            self._keep(location, FromInputFile.table_metadata(file))
        return self._parsed[location]

    def _keep(self, location: str, metadata: TableMetadata) -> None:
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
