"""Documents of OpenLineage (version 2-0-2 of its schema): what they say of runs, tables and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from instep import __version__
from instep.schema.catalog.catalog import Column

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
    """The same parts are the same run for ever: events that are sent twice are one."""
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
    """Each column of an output comes from one of the input."""
    return facet("columnLineage", fields={f.name: {"inputFields": [_origin(source, f)]} for f in fields})


def _origin(source: Dataset, field: LineageField) -> dict[str, Any]:
    how = {"type": "DIRECT", "subtype": "TRANSFORMATION" if field.hashed else "IDENTITY", "masking": field.hashed}
    return {"namespace": source.namespace, "name": source.name, "field": field.column.name, "transformations": [how]}
