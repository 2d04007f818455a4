"""Schema configs on the wire: the tree that is answered, and the bodies that patch it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from instep.control.selection.schema_config import ColumnConfig, Lock, SchemaConfig, SchemaEntry, TableConfig
from instep.control.selection.schema_patch import ColumnPatch, ConfigPatch, SchemaPatch, TablePatch
from instep.server.fivetran_api.http.models import ColumnOut, SchemaOut, SchemasOut, TableOut
from instep.server.fivetran_api.http.request_body import Truth, Wire

Handling = Literal["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]
Mode = Literal["SOFT_DELETE", "HISTORY", "LIVE"]


class ColumnBody(Wire):
    answered = frozenset(ColumnOut.model_fields)
    enabled: Truth | None = None
    hashed: Truth | None = None
    is_primary_key: Truth | None = None

    def patch(self) -> ColumnPatch:
        return ColumnPatch(self.enabled, self.hashed, self.is_primary_key)


class TableBody(Wire):
    answered = frozenset(TableOut.model_fields)
    enabled: Truth | None = None
    sync_mode: Mode | None = None
    columns: dict[str, ColumnBody] = Field(default_factory=dict)

    def patch(self) -> TablePatch:
        return TablePatch(self.enabled, self.sync_mode, {name: c.patch() for name, c in self.columns.items()})


class SchemaBody(Wire):
    answered = frozenset(SchemaOut.model_fields)
    enabled: Truth | None = None
    tables: dict[str, TableBody] = Field(default_factory=dict)

    def patch(self) -> SchemaPatch:
        return SchemaPatch(self.enabled, {name: t.patch() for name, t in self.tables.items()})


class ConfigBody(Wire):
    answered = frozenset(SchemasOut.model_fields)
    schemas: dict[str, SchemaBody] = Field(default_factory=dict)
    schema_change_handling: Handling | None = None
    is_type_locked: Truth | None = None

    def patch(self) -> ConfigPatch:
        schemas = {name: s.patch() for name, s in self.schemas.items()}
        return ConfigPatch(schemas, self.schema_change_handling, self.is_type_locked)


def tree(config: SchemaConfig) -> dict[str, Any]:
    """Return the whole config; keys are the source's names."""
    return {
        "enable_new_by_default": config.handling == "ALLOW_ALL",
        "schema_change_handling": config.handling,
        "schemas": {schema.name: _schema(schema) for schema in config.schemas},
    }


def columns(found: tuple[ColumnConfig, ...]) -> dict[str, Any]:
    return {column.name: _column(column) for column in found}


def _schema(schema: SchemaEntry) -> dict[str, Any]:
    return {
        "name_in_destination": schema.destination,
        "enabled": schema.enabled,
        "tables": {table.name: _table(table) for table in schema.tables},
    }


def _table(table: TableConfig) -> dict[str, Any]:
    mode: Mapping[str, Any] = {"sync_mode": table.sync_mode} if table.sync_mode else {}
    return {
        "name_in_destination": table.destination,
        "enabled": table.enabled,
        **mode,
        "enabled_patch_settings": _settings(table.lock),
        "supports_columns_config": table.readable,
        "supports_history_mode": table.sync_mode is not None,
        "columns": columns(table.columns),
    }


def _column(column: ColumnConfig) -> dict[str, Any]:
    return {
        "name_in_destination": column.destination,
        "enabled": column.enabled,
        "hashed": column.hashed,
        "is_primary_key": column.key,
        "enabled_patch_settings": _settings(column.lock),
    }


def _settings(lock: Lock | None) -> dict[str, Any]:
    if lock is None:
        return {"allowed": True}
    why = {"reason": lock.text} if lock.reason == "OTHER" else {}
    return {"allowed": False, "reason_code": lock.reason, **why}
