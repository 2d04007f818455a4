"""Metadata for clients: types of connectors before they make connections, and the tables and columns of schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from instep.control.selection.schema_config import named
from instep.schema.catalog.catalog import Table
from instep.server.fivetran_api.http.envelope import not_found, page, success, window
from instep.server.fivetran_api.http.models import ConnectorTypeOut, ConnectorTypeWhole, NamedColumnOut, NamedOut
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Name, RequestContextDep, lists, route_options
from instep.server.fivetran_api.http.services import TYPES

router = APIRouter(prefix="/metadata")
_NAMES = {
    "postgres": "PostgreSQL",
    "postgres_rds": "Amazon RDS for PostgreSQL",
    "mysql": "MySQL",
    "mysql_rds": "Amazon RDS for MySQL",
    "maria": "MariaDB",
    "maria_rds": "Amazon RDS for MariaDB",
    "sqlite": "SQLite",
    "files": "Files",
    "jdbc": "JDBC",
    "connector_sdk": "Connector SDK",
}


@router.get("/connector-types", **lists(ConnectorTypeOut))
def types(request: Request, context: RequestContextDep) -> JSONResponse:
    seen = window(request)
    names = [name for name in sorted(TYPES) if name > seen.after][: seen.limit + 1]
    items, cursor = seen.cut(names, str)
    return page("Connector types retrieved successfully", list(map(_type, items)), cursor)


@router.get("/connector-types/{service}", **route_options(ConnectorTypeWhole))
def type_of(service: Name, context: RequestContextDep) -> JSONResponse:
    if service not in TYPES:
        raise not_found("ConnectorType", service)
    return success("", {**_type(service), "config": {"type": "object", "properties": {}}})


@router.get("/connectors/{id}/schemas", **lists(NamedOut))
@router.get("/connections/{id}/schemas", **lists(NamedOut))
def schemas(id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    namespace = context.naming(context.own_connection(id).name).namespace
    rows = {t.schema: _row(t.schema, t.schema, namespace) for t in _tables(context, id)}
    return _listed(request, list(rows.values()))


@router.get("/connectors/{id}/tables", **lists(NamedOut))
@router.get("/connections/{id}/tables", **lists(NamedOut))
def tables(id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    rows = [{**_row(t.path, t.name, t.alias), "parent_id": t.schema} for t in _tables(context, id)]
    return _listed(request, rows)


@router.get("/connectors/{id}/columns", **lists(NamedColumnOut))
@router.get("/connections/{id}/columns", **lists(NamedColumnOut))
def columns(id: Name, request: Request, context: RequestContextDep) -> JSONResponse:
    return _listed(request, [row for t in _tables(context, id) for row in _columns(t)])


def _columns(table: Table) -> Iterator[dict[str, Any]]:
    for column in table.live:
        yield {
            **_row(f"{table.path}.{column.name}", column.name, column.alias),
            "parent_id": table.path,
            "type_in_source": column.native or str(column.type),
            "type_in_destination": str(column.type),
            "is_primary_key": bool(column.key),
            "is_foreign_key": False,
        }


def _tables(context: RequestContext, id: str) -> list[Table]:
    context.own_connection(id)
    named_tables = named(context.place(id), context.naming(id)).tables
    return [named_tables[ref] for ref in sorted(named_tables)]


def _row(id: str, source: str, destination: str) -> dict[str, Any]:
    return {"id": id, "name_in_source": source, "name_in_destination": destination}


def _listed(request: Request, rows: list[dict[str, Any]]) -> JSONResponse:
    seen = window(request)
    remaining = sorted((row for row in rows if row["id"] > seen.after), key=lambda row: str(row["id"]))
    items, cursor = seen.cut(remaining, lambda row: str(row["id"]))
    return page("Metadata retrieved successfully", items, cursor)


def _type(service: str) -> dict[str, Any]:
    return {
        "id": service,
        "name": _NAMES[service],
        "type": "Database",
        "description": "",
        "icon_url": None,
        "icons": [],
        "link_to_docs": None,
        "connector_class": "standard",
        "service_status": "general_availability",
    }
