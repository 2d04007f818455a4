"""Iceberg schemas as table metadata spells them (JSON), and what they may become.

Nothing here needs pyiceberg: `plan` reads and checks schemas without importing it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from instep.destinations.types import from_iceberg_primitive, iceberg_primitive
from instep.errors import IllegalChange, SchemaError
from instep.schema.catalog.catalog import fold_case
from instep.schema.catalog.types import Array, DataType, Field, Json, Struct, parse

Type = Any
"""A primitive's name, or a dict with type list, struct or map."""
METADATA_COLUMNS = frozenset(
    {
        "_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number",
        "_change_type", "_change_ordinal", "_commit_snapshot_id",
    }
)  # fmt: skip
"""Columns that engines find in every table: a column of the table's own under such a name hides what MERGE needs."""


@dataclass(frozen=True)
class IcebergField:
    """A top-level column of an Iceberg table."""

    id: int
    name: str
    type: Type
    required: bool = False
    doc: str | None = None


def fields_of(schema: Mapping[str, Any]) -> tuple[IcebergField, ...]:
    """Return the columns of a schema in metadata form."""
    return tuple(
        IcebergField(f["id"], f["name"], f["type"], f.get("required", False), f.get("doc")) for f in schema["fields"]
    )


def schema_of(fields: Sequence[IcebergField], schema_id: int, identifiers: Sequence[int] = ()) -> dict[str, Any]:
    """Return a schema in metadata form; refuses names that some reader of the table could not tell apart."""
    _check_names([f.name for f in fields], "the table")
    columns = [{"id": f.id, "name": f.name, "type": f.type, "required": f.required, "doc": f.doc} for f in fields]
    return {"type": "struct", "schema-id": schema_id, "identifier-field-ids": [*identifiers], "fields": columns}


def _check_names(names: Sequence[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not name or "." in name:
            raise SchemaError(f"column {name!r} of {where} has no name that Iceberg can hold", hint="give it an alias")
        if (twin := seen.setdefault(fold_case(name), name)) is not name:
            raise SchemaError(
                f"columns {twin!r} and {name!r} of {where} differ in case only",
                hint="give one of them an alias: Spark could not read the table",
            )


def iceberg_type(kind: DataType, ids: Iterator[int]) -> Type:
    """Return the stored form of `kind`, with fresh ids for its nested fields."""
    if isinstance(kind, Array):
        at = next(ids)
        return {"type": "list", "element-id": at, "element": iceberg_type(kind.element, ids), "element-required": False}
    if isinstance(kind, Struct):
        _check_names([f.name for f in kind.fields], str(kind))
        at_fields = [(next(ids), f) for f in kind.fields]
        return {"type": "struct", "fields": [_nested(i, f.name, iceberg_type(f.type, ids)) for i, f in at_fields]}
    return iceberg_primitive(kind)


def _nested(field_id: int, name: str, kind: Type) -> dict[str, Any]:
    return {"id": field_id, "name": name, "type": kind, "required": False}


def data_type(stored: Type) -> DataType:
    """Return the type that a stored form is read as; a map, and what we have no type for, is json."""
    if isinstance(stored, str):
        form = from_iceberg_primitive(stored)
        return Json() if form is None else parse(form)
    if stored["type"] == "list":
        return Array(data_type(stored["element"]))
    if stored["type"] == "struct":
        return Struct(tuple(Field(f["name"], data_type(f["type"])) for f in stored["fields"]))
    return Json()


def is_stored_as(stored: Type, kind: DataType) -> bool:
    """Return whether `stored` is the form in which `kind` is kept (ids aside)."""
    if isinstance(stored, str):
        return not isinstance(kind, Array | Struct) and stored == iceberg_primitive(kind)
    if stored["type"] == "list":
        return isinstance(kind, Array) and is_stored_as(stored["element"], kind.element)
    if stored["type"] == "struct" and isinstance(kind, Struct):
        return [f["name"] for f in stored["fields"]] == [f.name for f in kind.fields] and all(
            is_stored_as(f["type"], g.type) for f, g in zip(stored["fields"], kind.fields, strict=True)
        )
    return False


def promote_stored(stored: Type, kind: DataType, ids: Iterator[int], column: str) -> Type:
    """Return `stored` widened to hold `kind`, ids unchanged; raises IllegalChange where Iceberg has no such
    promotion."""
    if is_stored_as(stored, kind):
        return stored
    if isinstance(stored, str):
        if not isinstance(kind, Array | Struct) and _promotes(stored, promoted := iceberg_primitive(kind)):
            return promoted
    elif stored["type"] == "list" and isinstance(kind, Array):
        return {**stored, "element": promote_stored(stored["element"], kind.element, ids, column)}
    elif stored["type"] == "struct" and isinstance(kind, Struct):
        return _promote_struct(stored, kind, ids, column)
    raise IllegalChange(
        f"column {column!r}: Iceberg cannot turn {data_type(stored)} into {kind} in place",
        hint="the column has to be rewritten: add a new column, fill it, drop the old one",
    )


def _promote_struct(stored: Mapping[str, Any], kind: Struct, ids: Iterator[int], column: str) -> Type:
    _check_names([f.name for f in kind.fields], str(kind))
    now = {f["name"]: f for f in stored["fields"]}
    if gone := now.keys() - {f.name for f in kind.fields}:
        raise IllegalChange(
            f"column {column!r}: the field {min(gone)!r} of the struct cannot be taken away in place",
            hint="the column has to be rewritten",
        )
    fields = [
        {**now[f.name], "type": promote_stored(now[f.name]["type"], f.type, ids, f"{column}.{f.name}")}
        if f.name in now
        else _nested(next(ids), f.name, iceberg_type(f.type, ids))
        for f in kind.fields
    ]
    return {**stored, "fields": fields}


def _promotes(before: str, after: str) -> bool:
    """Return whether Iceberg itself has this promotion, whatever a library would let through."""
    if (before, after) in {("int", "long"), ("float", "double")}:
        return True
    if not (before.startswith("decimal(") and after.startswith("decimal(")):
        return False
    (p1, s1), (p2, s2) = (map(int, form[8:-1].split(",")) for form in (before, after))
    return s1 == s2 and p2 >= p1


def highest_id(fields: Sequence[IcebergField]) -> int:
    """Return the highest field id in use, nested ones included; 0 for no field."""
    return max((max(f.id, _highest(f.type)) for f in fields), default=0)


def _highest(stored: Type) -> int:
    if isinstance(stored, str):
        return 0
    if stored["type"] == "list":
        return max(int(stored["element-id"]), _highest(stored["element"]))
    return max((max(f["id"], _highest(f["type"])) for f in stored.get("fields", ())), default=0)
