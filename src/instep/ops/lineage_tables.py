"""The tables of one connection as OpenLineage is told of them: where they are, their schema, and what it comes from."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from instep.model import TableRun
from instep.ops.datasets import destination_table, source_table
from instep.ops.openlineage import Dataset, Field, column_lineage, facet, schema
from instep.project.project import Project
from instep.schema.selection import column_is_on, hashed
from instep.schema.switch import with_switches
from instep.schema.table import Catalog, Table
from instep.store.store import Store


class LineageTables:
    """As one version of the accepted schema has them; none before the first."""

    def __init__(self, project: Project, store: Store, connection: str, version: int | None) -> None:
        self._project, self._source = project, project.source_of(connection)
        self._destination, self._namespace = project.destination_of(connection), project.namespace_of(connection)
        self._version = version
        self.catalog = store.accepted.catalog(connection, version) if version else Catalog()
        seen, switches = store.discoveries.get(connection), store.switches.of(connection)
        self._selection = with_switches(
            project.selection(connection), switches, self.catalog, seen.identity if seen else ""
        )

    @classmethod
    def at(cls, project: Project, store: Store, connection: str, moment: datetime) -> LineageTables:
        """Raises InstepError for a connection that is not in the project any more."""
        versions = store.accepted.history(connection)
        return cls(
            project.of(connection), store, connection, next((v.version for v in versions if v.at <= moment), None)
        )

    def pair(self, done: TableRun) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The input and the output of a table that was loaded."""
        table = self.catalog.get(done.table)
        if table is None or not table.alias:
            return None
        fields = self._fields(table)
        read = schema([(f.column.name, f.column) for f in fields])
        counts = facet("outputStatistics", rowCount=done.inserted + done.updated, size=done.bytes)
        target = self.target(table).document(self.described(table))
        return self._origin(table).document(read), {**target, "outputFacets": counts}

    def target(self, table: Table) -> Dataset:
        """Where a table that has a name at the destination is."""
        return destination_table(self._project, self._destination, (self._namespace, table.alias))

    def described(self, table: Table) -> dict[str, Any]:
        """The facets of a table at the destination."""
        fields = self._fields(table)
        said = schema([(f.name, f.column) for f in fields]) | column_lineage(self._origin(table), fields)
        return said | self.version()

    def version(self) -> dict[str, Any]:
        return facet("version", datasetVersion=str(self._version))

    def _origin(self, table: Table) -> Dataset:
        return source_table(self._project, self._source, table.ref)

    def _fields(self, table: Table) -> list[Field]:
        on = [c for c in table.live if column_is_on(self._selection, table, c)[0]]
        return [Field(c, hashed(self._selection, table.ref, c.name)) for c in on]
