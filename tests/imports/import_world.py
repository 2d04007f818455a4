"""Exports of Airbyte and Fivetran in the forms that their documentation gives, small, and made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instep.control.imports import translated
from instep.operations.values import ImportedProduct
from instep.project.imports.documents import ExportDocument
from instep.project.imports.imported_project import ImportedProject, project_text
from instep.project.load import load
from instep.project.project import Project

MASK = "**********"
PG = {
    "host": "db.example",
    "port": 5432,
    "database": "shop",
    "username": "reader",
    "password": MASK,
    "schemas": ["public"],
    "ssl_mode": {"mode": "prefer"},
    "tunnel_method": {"tunnel_method": "NO_TUNNEL"},
    "replication_method": {"method": "Standard"},
}
CDC = {"method": "CDC", "plugin": "pgoutput", "replication_slot": "airbyte_slot", "publication": "airbyte_pub"}
DUCK = {"destination_path": "/local/lake.duckdb", "schema": "main"}
ORDERS = {
    "name": "orders",
    "namespace": "public",
    "syncMode": "incremental_deduped_history",
    "cursorField": ["updated_at"],
    "primaryKey": [["id"]],
}


def source(configuration: Mapping[str, Any] = PG, kind: str = "postgres", **more: Any) -> dict[str, Any]:
    return {"sourceId": "s-1", "name": "Shop", "sourceType": kind, "configuration": dict(configuration), **more}


def destination(configuration: Mapping[str, Any] = DUCK, kind: str = "duckdb", **more: Any) -> dict[str, Any]:
    return {
        "destinationId": "d-1",
        "name": "Lake",
        "destinationType": kind,
        "configuration": dict(configuration),
        **more,
    }


def connection(*streams: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "connectionId": "c-1",
        "name": "Shop to Lake",
        "sourceId": "s-1",
        "destinationId": "d-1",
        "status": "active",
        "schedule": {"scheduleType": "manual"},
        "namespaceDefinition": "destination",
        "nonBreakingSchemaUpdatesBehavior": "ignore",
        "configurations": {"streams": [dict(one) for one in streams or (ORDERS,)]},
        **more,
    }


def airbyte(*items: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An export: what is not given is a PostgreSQL source, a DuckDB file, and one connection."""
    sources = [one for one in items if "sourceId" in one and "destinationId" not in one]
    destinations = [one for one in items if "destinationId" in one and "sourceId" not in one]
    connections = [one for one in items if "sourceId" in one and "destinationId" in one]
    return {
        "sources": {"data": sources or [source()]},
        "destinations": {"data": destinations or [destination()]},
        "connections": {"data": connections or [connection()]},
        **more,
    }


def documents(*data: Any, names: tuple[str, ...] = ()) -> list[ExportDocument]:
    """Documents as they are read from files, `export.json` and so on."""
    titles = (*names, *(f"export{at or ''}" for at in range(len(names), len(data))))
    return [
        ExportDocument(f"{name}.json", name, json.loads(json.dumps(one)))
        for name, one in zip(titles, data, strict=True)
    ]


def imported(
    *data: Any, product: ImportedProduct = "airbyte", names: tuple[str, ...] = (), **more: Any
) -> ImportedProject:
    return translated(product, documents(*data, names=names), **more)


def the_connection(found: ImportedProject) -> dict[str, Any]:
    [section] = found.sections["connections"].values()
    return dict(section)


def the_table(found: ImportedProject, path: str = "public.orders") -> dict[str, Any]:
    return {key: one for key, one in the_connection(found)["tables"][path].items() if key != "enabled"}


def loaded(found: ImportedProject, folder: Path) -> Project:
    """The project as it is written and read, with every variable set."""
    folder.joinpath("instep.yml").write_text(project_text(found), encoding="utf-8")
    return load(folder, {one.variable: f"value of {one.variable}" for one in found.secrets})
