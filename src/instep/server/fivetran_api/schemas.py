"""Schema configs: read, reload, patch, drop columns, read tables again.

Schema configs on the wire: the tree that is answered, and the bodies that patch it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import Field

from instep.control.queue import key_of
from instep.control.resync import droppable
from instep.control.selection.schema_config import (
    ColumnConfig,
    Lock,
    SchemaConfig,
    SchemaEntry,
    TableConfig,
    schema_config,
    table_columns,
)
from instep.control.selection.schema_patch import (
    ColumnPatch,
    ConfigPatch,
    NotListed,
    SchemaPatch,
    TablePatch,
    patched,
    precreated,
    switched,
)
from instep.control.selection.selections import SwitchedConnection, check_salt, switch
from instep.events import SelectionChanged
from instep.server.fivetran_api.http.envelope import Refusal, success
from instep.server.fivetran_api.http.models import ColumnOut, ColumnsOut, SchemaOut, SchemasOut, TableOut
from instep.server.fivetran_api.http.ports import Item
from instep.server.fivetran_api.http.request_body import RequestBody, Truth, fields_of, parse
from instep.server.fivetran_api.http.request_context import RequestContext
from instep.server.fivetran_api.http.route import Body, Name, RequestContextDep, of_reload, route_options

Handling = Literal["ALLOW_ALL", "ALLOW_COLUMNS", "BLOCK_ALL"]
Mode = Literal["SOFT_DELETE", "HISTORY", "LIVE"]


class ColumnBody(RequestBody):
    answered = frozenset(ColumnOut.model_fields)
    enabled: Truth | None = None
    hashed: Truth | None = None
    is_primary_key: Truth | None = None

    def patch(self) -> ColumnPatch:
        return ColumnPatch(self.enabled, self.hashed, self.is_primary_key)


class TableBody(RequestBody):
    answered = frozenset(TableOut.model_fields)
    enabled: Truth | None = None
    sync_mode: Mode | None = None
    columns: dict[str, ColumnBody] = Field(default_factory=dict)

    def patch(self) -> TablePatch:
        return TablePatch(self.enabled, self.sync_mode, {name: c.patch() for name, c in self.columns.items()})


class SchemaBody(RequestBody):
    answered = frozenset(SchemaOut.model_fields)
    enabled: Truth | None = None
    tables: dict[str, TableBody] = Field(default_factory=dict)

    def patch(self) -> SchemaPatch:
        return SchemaPatch(self.enabled, {name: t.patch() for name, t in self.tables.items()})


class ConfigBody(RequestBody):
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


def columns(configs: tuple[ColumnConfig, ...]) -> dict[str, Any]:
    return {column.name: _column(column) for column in configs}


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


router = APIRouter(prefix="/connections/{id}/schemas")
_DEPTH = 8
"""A config is named by its columns: schemas, schema, tables, table, columns, column, field."""


class ReloadBody(RequestBody):
    exclude_mode: Literal["PRESERVE", "INCLUDE", "EXCLUDE"] = "PRESERVE"


class DropTableBody(RequestBody):
    columns: list[str] = Field(default_factory=list)


class DropSchemaBody(RequestBody):
    tables: dict[str, DropTableBody] = Field(default_factory=dict)


class DropBody(RequestBody):
    schemas: dict[str, DropSchemaBody] = Field(default_factory=dict)


@router.get("", **route_options(SchemasOut))
def retrieve(id: Name, context: RequestContextDep) -> JSONResponse:
    context.connection(id)
    return _whole(context, id, "")


@router.post("", **route_options(dict[str, Any], takes=ConfigBody))
def create(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Store the choices for the objects that the first detection will find, and return them as they were sent.
    Without a worker, or with an unreachable source, the first sync detects."""
    item, parsed = context.own_connection(id), parse(ConfigBody, body)
    patch = parsed.patch()
    chosen, store, who = precreated(patch), context.ports.store, context.caller.name
    with store.transaction():
        place, salt = _with_salt(context.place(id), item, patch)
        if place.known.tables:
            raise Refusal(409, f"Connection '{id}' has a schema config already.", hint="PATCH it")
        for table in chosen:
            if table.hashed:
                check_salt(place, table.path)
        handling = {} if patch.handling is None else {"schema_change_handling": patch.handling, "policy": None}
        _set(context, id, {**handling, **salt})
        store.connections.configure(id)
        store.switches.set(id, chosen, who)
        store.events.add(*(SelectionChanged(id, s.path, "on" if s.enabled else "off", who) for s in chosen))
        context.record(fields=fields_of(body, _DEPTH))
    with suppress(Refusal):
        context.run(id, "reload", {}, key="reload")
    return success(parsed.remark("Schema configuration has been created"), body)


@router.patch("", **route_options(SchemasOut, takes=ConfigBody))
def modify(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(ConfigBody, body)
    return _patch(context, id, parsed.patch(), body, parsed.remark("Schema configuration has been modified"))


@router.post("/reload", **route_options(SchemasOut, takes=ReloadBody, needs_body=False))
def reload(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    """Detect the source's schema; then, on request, switch all schemas and tables on or off."""
    context.own_connection(id)
    parsed = parse(ReloadBody, body)
    mode = parsed.exclude_mode
    context.allow(of_reload(mode))
    context.run(id, "reload", {}, key="reload", recorded=True)
    if mode != "PRESERVE":
        with context.write(body):
            place = context.place(id)
            switch(place, switched(place, mode == "INCLUDE"), context.caller.name)
    return _whole(context, id, parsed.remark("Schema configuration has been reloaded"))


@router.post("/drop-columns", **route_options(takes=DropBody))
def drop_columns(id: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(DropBody, body)
    schemas = parsed.schemas
    requested = {(s, t): tuple(table.columns) for s, schema in schemas.items() for t, table in schema.tables.items()}
    if not any(requested.values()):
        raise Refusal(400, "The body names no column.")
    return _drop(context, id, requested, parsed)


@router.patch("/{schema}", **route_options(SchemasOut, takes=SchemaBody))
def modify_schema(id: Name, schema: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(SchemaBody, body)
    return _patch(context, id, ConfigPatch({schema: parsed.patch()}), body, parsed.remark("Schema has been updated"))


@router.patch("/{schema}/tables/{table}", **route_options(SchemasOut, takes=TableBody))
def modify_table(id: Name, schema: Name, table: Name, context: RequestContextDep, body: Body) -> JSONResponse:
    parsed = parse(TableBody, body)
    patch = ConfigPatch({schema: SchemaPatch(tables={table: parsed.patch()})})
    return _patch(context, id, patch, body, parsed.remark("Table has been updated"))


@router.patch("/{schema}/tables/{table}/columns/{column}", **route_options(SchemasOut, takes=ColumnBody))
def modify_column(
    id: Name, schema: Name, table: Name, column: Name, context: RequestContextDep, body: Body
) -> JSONResponse:
    parsed = parse(ColumnBody, body)
    patch = ConfigPatch({schema: SchemaPatch(tables={table: TablePatch(columns={column: parsed.patch()})})})
    return _patch(context, id, patch, body, parsed.remark("Column has been updated"))


@router.get("/{schema}/tables/{table}/columns", **route_options(ColumnsOut))
def retrieve_columns(id: Name, schema: Name, table: Name, context: RequestContextDep) -> JSONResponse:
    """Return the columns as the source has them now, or, if the caller may not ask for a detection, as last
    detected."""
    context.own_connection(id)
    if context.may("operator"):
        context.run(id, "reload", {}, key="reload")
    configs = table_columns(context.place(id), context.naming(id), (schema, table))
    if configs is None:
        raise NotListed(f"connection {id} has no table {schema}.{table}", hint="see the schema config for its tables")
    return success("Source table columns config retrieved", {"columns": columns(configs)})


@router.delete("/{schema}/tables/{table}/columns/{column}", **route_options())
def drop_column(id: Name, schema: Name, table: Name, column: Name, context: RequestContextDep) -> JSONResponse:
    return _drop(context, id, {(schema, table): (column,)}, DropBody())


def _whole(context: RequestContext, id: str, message: str) -> JSONResponse:
    config = None
    if context.connection(id).kind == "connection":
        config = schema_config(context.place(id), context.naming(id))
    if config is None:
        raise Refusal(
            404,
            f"Connection '{id}' has no schema config yet.",
            code="NotFound_SchemaConfig",
            hint="it is made by the first sync, or by POST schemas/reload",
        )
    return success(message, tree(config))


def _patch(context: RequestContext, id: str, patch: ConfigPatch, body: Any, message: str) -> JSONResponse:
    """Apply a patch; everything is checked before anything is changed."""
    item = context.own_connection(id)
    with context.ports.store.transaction():
        place, salt = _with_salt(context.place(id), item, patch)
        config = schema_config(place, context.naming(id))
        if config is not None:
            with context.write(body, depth=_DEPTH):
                made = patched(place, config, patch)
                _set(context, id, {**made.settings, **salt})
                switch(place, made.steps, context.caller.name)
    return _whole(context, id, message)


def _with_salt(
    place: SwitchedConnection, item: Item, patch: ConfigPatch
) -> tuple[SwitchedConnection, dict[str, object]]:
    """Return the place with a salt, where the first column is hashed or switched off, and the setting that makes it so:
    no client has a word for one. A column that is off and turns out to be of the key is kept hashed. To be called in
    the transaction that keeps it, so that there is one for good."""
    if place.salted or item.in_file or not _hides(patch):
        return place, {}
    return replace(place, salted=True), {"salt": secrets.token_urlsafe(32)}


def _hides(patch: ConfigPatch) -> bool:
    tables = (table for schema in patch.schemas.values() for table in schema.tables.values())
    return any(column.hashed or column.enabled is False for table in tables for column in table.columns.values())


def _set(context: RequestContext, id: str, settings: dict[str, object]) -> None:
    if settings:
        context.ports.objects.change("connection", id, settings, context.caller.name)


def _drop(
    context: RequestContext, id: str, requested: dict[tuple[str, str], tuple[str, ...]], body: DropBody
) -> JSONResponse:
    """Queue a sync that drops these columns; naming them is the consent. With four_eyes it waits for a second person
    who names the same columns."""
    context.own_connection(id)
    paths = droppable(context.place(id), requested)
    if paths:
        if context.ports.project(id).model.four_eyes:
            from instep.sync.two_people import dropping

            context.agree(dropping(id, paths))
        key = f"drop {key_of({'drop_columns': sorted(paths)})}"
        with context.ports.store.transaction():
            job = context.ports.jobs.enqueue(id, "sync", {"drop_columns": paths}, key=key, who=context.caller.name)
            context.record(job=job.id, drop_columns=paths)
    return success(body.remark("Columns have been marked to be dropped by the next sync"))
