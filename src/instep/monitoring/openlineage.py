"""Documents of OpenLineage (version 2-0-2 of its schema): what they say of runs, tables and columns.

What tables are called for OpenLineage: by where they are, so that others' events about them meet ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from instep import __version__
from instep.errors import ProjectError
from instep.model import TableRun
from instep.project.project import Project
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.selection.overrides import with_switches
from instep.schema.selection.selection import column_is_on, hashed
from instep.store.store import Store

State = Literal["START", "COMPLETE", "FAIL", "ABORT"]
Lifecycle = Literal["ALTER", "CREATE", "DROP", "OVERWRITE", "RENAME"]
PRODUCER = f"urn:instep:{__version__}"
SPEC = "https://openlineage.io/spec"
_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "lifecycleStateChange": "1-0-1/LifecycleStateChangeDatasetFacet",
    "version": "1-0-1/DatasetVersionDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
}
"""The version of each facet that is written here."""


@dataclass(frozen=True)
class Dataset:
    """A table as OpenLineage names it: `namespace` is where it is, `name` is what it is called there."""

    namespace: str
    name: str

    def document(self, facets: Mapping[str, Any]) -> dict[str, Any]:
        return {"namespace": self.namespace, "name": self.name, "facets": dict(facets)}


@dataclass(frozen=True)
class LineageField:
    """One column of an output: `column` as it is accepted, and whether its values are hashed on their way."""

    column: Column
    hashed: bool = False

    @property
    def name(self) -> str:
        return self.column.alias or self.column.name


def run_id(*parts: str) -> str:
    """Return a run id; equal parts always give the same id, so that events sent twice count once."""
    return str(uuid5(NAMESPACE_URL, "instep:" + "/".join(parts)))


def event(
    state: State,
    at: datetime,
    run: Mapping[str, Any],
    job: Mapping[str, Any],
    inputs: Sequence[Mapping[str, Any]] = (),
    outputs: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return one RunEvent."""
    document = {"run": dict(run), "job": dict(job), "inputs": list(inputs), "outputs": list(outputs)}
    return {"eventType": state, **_event("RunEvent", at), **document}


def dataset_event(at: datetime, dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return one DatasetEvent: what is true of a dataset, whoever made it so."""
    return {**_event("DatasetEvent", at), "dataset": dict(dataset)}


def _event(kind: str, at: datetime) -> dict[str, Any]:
    url = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/{kind}"
    return {"eventTime": at.astimezone(UTC).isoformat(), "producer": PRODUCER, "schemaURL": url}


def facet(name: str, /, **content: Any) -> dict[str, dict[str, Any]]:
    """Return one facet, by its name."""
    path = _FACETS[name]
    url = f"{SPEC}/facets/{path}.json#/$defs/{path.partition('/')[2]}"
    return {name: {"_producer": PRODUCER, "_schemaURL": url, **content}}


def schema(columns: Sequence[tuple[str, Column]]) -> dict[str, Any]:
    """Return names with the accepted types, in order. Comments are not told: they may hold what is nobody's
    business."""
    fields = [
        {"name": name, "type": str(column.type), "ordinal_position": place}
        for place, (name, column) in enumerate(columns, 1)
    ]
    return facet("schema", fields=fields)


def column_lineage(source: Dataset, fields: Sequence[LineageField]) -> dict[str, Any]:
    """Return the facet that maps each column of an output to one of the input."""
    return facet("columnLineage", fields={f.name: {"inputFields": [_origin(source, f)]} for f in fields})


def _origin(source: Dataset, field: LineageField) -> dict[str, Any]:
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION" if field.hashed else "IDENTITY", "masking": field.hashed}
    return {"namespace": source.namespace, "name": source.name, "field": field.column.name, "transformations": [how]}


Ref = tuple[str, str]


def source_table(project: Project, source: str, ref: Ref) -> Dataset:
    kind = project.model.sources[source].type
    try:
        settings = project.source(source)
    except ProjectError:  # a reference that this process has no value for
        return Dataset(f"{kind}:{source}", ".".join(filter(None, ref)))
    return _of(kind, source, dict(settings), ref)


def destination_table(project: Project, destination: str, ref: Ref) -> Dataset:
    kind = project.model.destinations[destination].type
    try:
        settings = project.destination(destination)
    except ProjectError:
        return Dataset(f"{kind}:{destination}", ".".join(ref))
    return _of(kind, destination, dict(settings), ref)


def _of(kind: str, name: str, settings: Mapping[str, Any], ref: Ref) -> Dataset:
    """Return a dataset named by host, database and path, without credentials."""
    path = ".".join(filter(None, ref))
    match kind:
        case "postgres":
            return Dataset(f"postgres://{settings['host']}:{settings['port']}", f"{settings['database']}.{path}")
        case "mysql" | "mariadb":
            return Dataset(f"mysql://{settings['host']}:{settings['port']}", path or str(settings["database"]))
        case "sqlite" | "duckdb":
            return Dataset(f"{kind}:{settings['path']}", path)
        case "files":
            return _place(str(settings["path"]), ref[1:])
        case "iceberg" | "delta" if "://" in str(settings["warehouse"]) or str(settings["warehouse"]).startswith("/"):
            return _place(str(settings["warehouse"]), ref)
    return Dataset(f"{kind}:{name}", path)


def _place(root: str, parts: tuple[str, ...]) -> Dataset:
    """Return a dataset below a folder or a bucket."""
    url = urlsplit(root) if "://" in root else None
    if url is None:
        return Dataset("file", "/".join((root.rstrip("/"), *parts)))
    where = url.netloc.rpartition("@")[2]
    return Dataset(f"{url.scheme}://{where}", "/".join(filter(None, (url.path.strip("/"), *parts))))


class LineageTables:
    """Tables of one version of the accepted schema; none before the first."""

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
        """Raise InstepError for a connection that is no longer in the project."""
        versions = store.accepted.history(connection)
        return cls(
            project.of(connection), store, connection, next((v.version for v in versions if v.at <= moment), None)
        )

    def pair(self, done: TableRun) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Return the input and the output of a table that was loaded."""
        table = self.catalog.get(done.table)
        if table is None or not table.alias:
            return None
        fields = self._fields(table)
        read = schema([(f.column.name, f.column) for f in fields])
        counts = facet("outputStatistics", rowCount=done.inserted + done.updated, size=done.bytes)
        target = self.target(table).document(self.described(table))
        return self._origin(table).document(read), {**target, "outputFacets": counts}

    def target(self, table: Table) -> Dataset:
        """Return where a table that has a name at the destination is."""
        return destination_table(self._project, self._destination, (self._namespace, table.alias))

    def described(self, table: Table) -> dict[str, Any]:
        """Return the facets of a table at the destination."""
        fields = self._fields(table)
        facets = schema([(f.name, f.column) for f in fields]) | column_lineage(self._origin(table), fields)
        return facets | self.version()

    def version(self) -> dict[str, Any]:
        return facet("version", datasetVersion=str(self._version))

    def _origin(self, table: Table) -> Dataset:
        return source_table(self._project, self._source, table.ref)

    def _fields(self, table: Table) -> list[LineageField]:
        on = [c for c in table.live if column_is_on(self._selection, table, c)[0]]
        return [LineageField(c, hashed(self._selection, table.ref, c.name)) for c in on]
