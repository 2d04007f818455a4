"""JSON Schemas of streams as column types. Pure.

A declared type is the widest that all branches of a property allow: a union with objects or lists is JSON, any other
union is text. A property that may only be null has no type yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from instep.schema.catalog.types import (
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Timestamp,
    TimestampTz,
)

Schema = Mapping[str, Any]
_DEEPEST = 8
_BRANCHES = ("oneOf", "anyOf", "allOf")
_WITHOUT_ZONE = "timestamp_without_timezone"


def properties(schema: Any) -> dict[str, Schema]:
    """Return the properties of a stream's schema by name; those of its branches count as well."""
    schemas: dict[str, Schema] = {}
    for one in _parts(schema, schema, 0):
        own = one.get("properties")
        for name, value in own.items() if isinstance(own, Mapping) else ():
            schemas.setdefault(str(name), value if isinstance(value, Mapping) else {})
    return schemas


def required(schema: Any) -> frozenset[str]:
    """Return the names that each record has to have."""
    named = schema.get("required") if isinstance(schema, Mapping) else None
    return frozenset(name for name in named or () if isinstance(name, str)) if isinstance(named, list) else frozenset()


def column_type(schema: Schema, root: Any = None) -> DataType | None:
    """Return the type of a property's values; None if it may only be null. `root` is the stream's whole schema."""
    kinds: dict[DataType, None] = {}
    bare = 0
    for part in _parts(schema, schema if root is None else root, 0):
        names = _type_names(part)
        bare += not names and not any(branch in part for branch in _BRANCHES)
        for name in names - {"null"}:
            kinds[_kind(name, part)] = None
    if not kinds:
        return Json() if bare else None
    if len(kinds) == 1:
        return next(iter(kinds))
    if Json() in kinds:
        return Json()
    numbers = {Int(64), Float(64), Decimal(38, 0)}
    if kinds.keys() <= numbers:
        return Float(64) if Float(64) in kinds else Decimal(38, 0)
    return String()


def is_object(schema: Schema) -> bool:
    """Return whether a property is an object whose properties are known, and nothing else but null."""
    return _type_names(schema) - {"null"} == {"object"} and bool(properties(schema))


def _parts(schema: Any, root: Any, depth: int) -> Iterator[Schema]:
    """Yield a schema and its branches, with references within the root followed."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _parts(_target(reference, root), root, depth + 1)
        return
    yield schema
    for branch in _BRANCHES:
        branches = schema.get(branch)
        for part in branches if isinstance(branches, list) else ():
            yield from _parts(part, root, depth + 1)


def _target(reference: str, root: Any) -> Any:
    place = root
    for name in reference.removeprefix("#").strip("/").split("/"):
        place = place.get(name) if isinstance(place, Mapping) else None
    return place if place is not None else {}


def _type_names(schema: Schema) -> set[str]:
    named = schema.get("type")
    if isinstance(named, str):
        return {named}
    if isinstance(named, list):
        return {name for name in named if isinstance(name, str)}
    return {"object"} if isinstance(schema.get("properties"), Mapping) else set()


def _kind(name: str, schema: Schema) -> DataType:
    airbyte = schema.get("airbyte_type")
    if airbyte in ("big_integer", "big_number"):  # texts of any length, or numbers: exact only as integers
        return Decimal(38, 0) if airbyte == "big_integer" else String()
    match name:
        case "boolean":
            return Boolean()
        case "integer":
            return Int(64)
        case "number":
            return Int(64) if airbyte == "integer" else Float(64)
        case "string":
            return _text(schema, airbyte)
    return Json()


def _text(schema: Schema, airbyte: Any) -> DataType:
    match schema.get("format"):
        case "date":
            return Date()
        case "date-time" | "datetime":
            return Timestamp() if airbyte == _WITHOUT_ZONE else TimestampTz()
    if airbyte in ("timestamp_with_timezone", _WITHOUT_ZONE):
        return Timestamp() if airbyte == _WITHOUT_ZONE else TimestampTz()
    return Binary() if schema.get("contentEncoding") == "base64" else String()
