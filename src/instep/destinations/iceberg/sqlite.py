"""The catalog in a SQLite file, quicker than pyiceberg's own where many small tables are loaded again and again."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Identifier
from sqlalchemy import event, text

from instep.destinations.iceberg.commit import no_metadata

KEPT = 1_000
"""Parsed metadata files that are kept: they never change."""

_POINTER = text(
    "SELECT metadata_location FROM iceberg_tables "
    "WHERE catalog_name = :catalog AND table_namespace = :namespace AND table_name = :name "
    "AND (iceberg_type IS NULL OR iceberg_type <> 'VIEW')"
)


class SqliteCatalog(SqlCatalog):
    """pyiceberg's catalog; a table whose pointer has not moved is not parsed again."""

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self._parsed: dict[str, TableMetadata] = {}
        event.listen(self.engine, "connect", _relax)

    def load_table(self, identifier: str | Identifier) -> Table:
        """The table with the metadata that the catalog points to now; raises NoSuchTableError."""
        namespace = Catalog.namespace_to_string(Catalog.namespace_from(identifier))
        name = Catalog.table_name_from(identifier)
        with self.engine.connect() as database:
            wanted = {"catalog": self.name, "namespace": namespace, "name": name}
            location = database.execute(_POINTER, wanted).scalar()
        if not location:
            raise NoSuchTableError(f"Table does not exist: {namespace}.{name}")
        metadata = self._metadata(location)
        io = self._load_file_io(metadata.properties, location)
        return Table((*Catalog.identifier_to_tuple(namespace), name), metadata, location, io, self)

    def _metadata(self, location: str) -> TableMetadata:
        if location not in self._parsed:
            if len(self._parsed) >= KEPT:
                self._parsed.clear()
            file = load_file_io(properties=self.properties, location=location).new_input(location)
            self._parsed[location] = FromInputFile.table_metadata(file)
        return self._parsed[location]

    @staticmethod
    def _empty_table_metadata() -> TableMetadata:
        return no_metadata()


def _relax(connection: Any, _: Any) -> None:
    """In WAL mode a commit survives the process without a sync of its own: the metadata file that it points to has
    none either, and after a power cut an older pointer is right where a newer one could point to nothing."""
    connection.execute("PRAGMA synchronous=NORMAL")
