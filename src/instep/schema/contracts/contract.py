"""The accepted schema as a data contract.

The document follows the Open Data Contract Standard 3.1. It holds no times, so that it changes only when the schema
does. `name` is the source's name of a table or column, `physicalName` a table's path there, `physicalType` a column's
native type. What the standard has no place for stands under `customProperties`.

The accepted schema as a document to review: what readers of the destination depend on, in a fixed order.

It holds no times and no version numbers, so that equal schemas are equal documents on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
)

API_VERSION = "v3.1.0"
TYPE, HASHED, RETAINED, CURSOR, MODE = "instepType", "hashed", "retained", "cursor", "syncMode"
"""Custom properties that a contract is read by."""

Logical = Literal["string", "date", "timestamp", "time", "number", "integer", "object", "array", "boolean"]


@dataclass(frozen=True)
class ContractTerms:
    """Terms of a document beside its catalog."""

    id: str
    name: str
    version: str
    hashed: Callable[[Table, Column], bool]
    """Test whether a column is hashed."""
    mode: Callable[[Table], str]
    """Mode in which a table is synced."""
    destination: Callable[[Table], str]


def contract_document(catalog: Catalog, terms: ContractTerms) -> dict[str, Any]:
    """Return the contract of an accepted catalog, JSON-ready, in a fixed order."""
    tables = sorted(catalog.tables, key=lambda t: t.ref)
    names = Counter(t.name for t in tables)
    return {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": terms.id,
        "name": terms.name,
        "version": terms.version,
        "status": "active",
        "schema": [_object(t, t.name if names[t.name] == 1 else t.path, terms) for t in tables],
    }


def _object(table: Table, name: str, terms: ContractTerms) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "physicalName": table.path, "logicalType": "object"}
    out["physicalType"] = table.kind
    if table.comment:
        out["description"] = table.comment
    out["properties"] = [_property(table, c, terms) for c in table.columns]
    more = {
        "destinationTable": terms.destination(table),
        MODE: terms.mode(table),
        CURSOR: table.cursor,
        "sourceTableId": table.id,
        "generation": table.generation or None,
        RETAINED: table.retained or None,
    }
    return {**out, **_custom(more)}


def _property(table: Table, column: Column, terms: ContractTerms) -> dict[str, Any]:
    out: dict[str, Any] = {"name": column.name, **logical(column.type)}
    if column.native:
        out["physicalType"] = column.native
    if column.comment:
        out["description"] = column.comment
    out["required"] = not column.nullable and not column.retained
    if column.key:
        out |= {"primaryKey": True, "primaryKeyPosition": column.key}
    if table.key == (column.name,):
        out["unique"] = True
    is_hashed = terms.hashed(table, column)
    if is_hashed:
        out["classification"] = "restricted"
    alias = column.alias if column.alias != column.name else None
    more = {
        TYPE: str(column.type),
        "sourceColumnId": column.id,
        "destinationName": alias or None,
        HASHED: is_hashed or None,
        RETAINED: column.retained or None,
        "note": column.note or None,
    }
    return {**out, **_custom(more)}


def _custom(values: Mapping[str, Any]) -> dict[str, Any]:
    properties = [{"property": name, "value": value} for name, value in values.items() if value is not None]
    return {"customProperties": properties} if properties else {}


def logical(kind: DataType) -> dict[str, Any]:
    """Return `logicalType` with its options, the items of an array and the fields of a struct."""
    match kind:
        case Array(element):
            return {"logicalType": "array", "items": {"name": "item", **logical(element)}}
        case Struct(fields):
            return {"logicalType": "object", "properties": [{"name": f.name, **logical(f.type)} for f in fields]}
    name, options = plain(kind)
    return {"logicalType": name, **({"logicalTypeOptions": options} if options else {})}


def plain(kind: DataType) -> tuple[Logical, dict[str, Any]]:
    """Return `logicalType` and its options alone."""
    match kind:
        case Boolean():
            return "boolean", {}
        case Int(bits):
            return "integer", {"format": f"i{bits}"}
        case Float(bits):
            return "number", {"format": f"f{bits}"}
        case Decimal():
            return "number", {}
        case Date():
            return "date", {}
        case Time():
            return "time", {}
        case Timestamp() | TimestampTz():
            return "timestamp", {"timezone": isinstance(kind, TimestampTz)}
        case Json() | Struct():
            return "object", {}
        case Uuid() | Binary():
            return "string", {"format": "uuid" if isinstance(kind, Uuid) else "binary"}
        case String(length) if length is not None:
            return "string", {"maxLength": length}
        case Array():
            return "array", {}
    return "string", {}


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
