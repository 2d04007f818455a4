"""The accepted schema as a document to review: what readers of the destination depend on, in a fixed order.

It holds no times and no version numbers, so that equal schemas are equal documents on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.schema.catalog.catalog import Catalog, Column, Table

FORMAT_VERSION = 1


def lock_document(connection: str, catalog: Catalog) -> dict[str, Any]:
    """Return the document of a connection's accepted catalog, JSON-ready."""
    tables = sorted(catalog.tables, key=lambda t: t.ref)
    return {"format_version": FORMAT_VERSION, "connection": connection, "tables": [_table(t) for t in tables]}


def _table(table: Table) -> dict[str, Any]:
    out: dict[str, Any] = {"schema": table.schema, "name": table.name, "destination": table.alias}
    if table.kind != "table":
        out["kind"] = table.kind
    if table.retained:
        out["retained"] = True
    if table.key:
        out["key"] = list(table.key)
    if table.cursor:
        out["cursor"] = table.cursor
    out["columns"] = [_column(c) for c in table.columns]
    return out


def _column(column: Column) -> dict[str, Any]:
    out: dict[str, Any] = {"name": column.name, "type": str(column.type)}
    if column.alias != column.name:
        out["destination"] = column.alias
    if not column.nullable:
        out["nullable"] = False
    if column.retained:
        out["retained"] = True
    return out


def without_retained(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document without what was kept after its removal: what a first look at the source can lead to."""
    tables = [t for t in document["tables"] if not t.get("retained")]
    live = [{**t, "columns": [c for c in t["columns"] if not c.get("retained")]} for t in tables]
    return {**document, "tables": live}
