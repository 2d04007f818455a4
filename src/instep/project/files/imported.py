"""A connector's schema config (a tree of schemas, tables and columns) as keys of a connection in instep.yml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, model_validator

from instep.project.sections.names import exact
from instep.project.sections.policies import Handling
from instep.project.sections.values import Section

SALT = "${env:INSTEP_SALT}"


class Node(Section):
    """Fields of all levels. The name at the destination is this product's own, and is not taken over."""

    enabled: bool = True
    name_in_destination: str = ""
    enabled_patch_settings: dict[str, Any] = Field(default_factory=dict)


class ColumnNode(Node):
    hashed: bool = False
    is_primary_key: bool = False


class TableNode(Node):
    columns: dict[str, ColumnNode] = Field(default_factory=dict)
    sync_mode: str = ""
    supports_columns_config: bool = True


class SchemaNode(Node):
    tables: dict[str, TableNode] = Field(default_factory=dict)


class SchemaConfigDocument(Section):
    """The document, also within the `data` of an answer."""

    schema_change_handling: Handling
    schemas: dict[str, SchemaNode] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _unwrapped(cls, data: Any) -> Any:
        inside = data.get("data") if isinstance(data, dict) and "schemas" not in data else None
        return inside if isinstance(inside, dict) else data


@dataclass
class ImportedKeys:
    """`keys` are those of a connection, ready to be written; `notes` say what is not as in the document."""

    keys: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def imported_keys(config: SchemaConfigDocument, primary: Mapping[str, tuple[str, ...]]) -> ImportedKeys:
    """Return the keys of a schema config; `primary` has the known primary keys, by `schema.table`."""
    out = ImportedKeys()
    tables = list(_tables(config))
    out.keys["schema_change_handling"] = config.schema_change_handling
    on = [exact(path) for schema, path, table in tables if schema.enabled and table.enabled]
    if config.schema_change_handling != "ALLOW_ALL" and on:
        out.keys["include"] = {"tables": on}
        out.notes.append("`include` excludes tables that were added since the export: remove it after the first sync")
    off = [f"{exact(name)}.*" for name, schema in config.schemas.items() if not schema.enabled]
    columns = [(path, table, n, c) for s, path, table in tables if s.enabled for n, c in table.columns.items()]
    hidden = [exact(f"{path}.{name}") for path, _, name, column in columns if not column.enabled]
    excluded = {"tables": off, "columns": hidden}
    if off or hidden:
        out.keys["exclude"] = {name: patterns for name, patterns in excluded.items() if patterns}
    hashed = [exact(f"{path}.{name}") for path, _, name, column in columns if column.enabled and column.hashed]
    unselected = [
        f"{p}.{n}" for p, _, n, c in columns if not c.enabled and (c.is_primary_key or n in primary.get(p, ()))
    ]
    out.notes += [
        f"{path} is in the primary key and cannot be switched off: it stays, as a salted hash" for path in unselected
    ]
    if hashed:
        out.keys["hash"] = hashed
    if hashed or unselected:
        out.keys["salt"] = SALT
        out.notes.append("set INSTEP_SALT in .env, to a long random text that never changes")
    out.keys["tables"] = dict(_settings(config, tables, out.notes))
    out.keys = {name: value for name, value in out.keys.items() if value}
    return out


def _tables(config: SchemaConfigDocument) -> Iterator[tuple[SchemaNode, str, TableNode]]:
    for name, schema in config.schemas.items():
        for below, table in schema.tables.items():
            yield schema, f"{name}.{below}", table


def _settings(
    config: SchemaConfigDocument, tables: list[tuple[SchemaNode, str, TableNode]], notes: list[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the explicit choices. Under BLOCK_ALL a column that is on is accepted by a rule."""
    for schema, path, table in tables:
        if table.enabled and not schema.enabled:
            notes.append(f"{path} is on in a schema that is off: it stays off")
            continue
        settings: dict[str, Any] = {"enabled": table.enabled}
        chosen = [exact(f"{path}.{name}") for name, column in table.columns.items() if column.enabled]
        if config.schema_change_handling == "BLOCK_ALL" and chosen and table.enabled:
            settings["rules"] = [{"on": ["column.added"], "match": chosen, "decide": "apply"}]
        yield exact(path), settings
