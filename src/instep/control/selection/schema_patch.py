"""Patches of a schema config: which switches they turn and which settings they change, checked as a whole first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from instep.control.selection.listing import Listed, listed
from instep.control.selection.schema_config import SchemaConfig, SyncMode, TableConfig
from instep.control.selection.selections import (
    SwitchedConnection,
    SwitchStep,
    SwitchTarget,
    existing_switches,
    switch_step,
)
from instep.errors import Blocked, InstepError, argument
from instep.operations.values import Verb
from instep.schema.catalog.catalog import Table
from instep.schema.selection.overrides import Handling, Switch, handling
from instep.suggest import did_you_mean


class NotListed(InstepError):
    """The schema config has no such schema, table or column."""


@dataclass(frozen=True)
class ColumnPatch:
    """A change of one column's selection; None leaves a field as it is."""

    enabled: bool | None = None
    hashed: bool | None = None
    is_primary_key: bool | None = None


@dataclass(frozen=True)
class TablePatch:
    enabled: bool | None = None
    sync_mode: SyncMode | None = None
    columns: Mapping[str, ColumnPatch] = field(default_factory=dict)


@dataclass(frozen=True)
class SchemaPatch:
    enabled: bool | None = None
    tables: Mapping[str, TablePatch] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfigPatch:
    schemas: Mapping[str, SchemaPatch] = field(default_factory=dict)
    handling: Handling | None = None
    type_locked: bool | None = None


@dataclass(frozen=True)
class Patched:
    """Result of a patch: switches to set, and a merge patch (None removes a key) of the connection's section
    of the project."""

    steps: tuple[SwitchStep, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def patched(place: SwitchedConnection, config: SchemaConfig, patch: ConfigPatch) -> Patched:
    """Apply `patch` to `config`, which is of this place, without saving anything. What is already so is left alone,
    but a column that was set stays listed. Raises NotListed, Blocked for what is locked, and InstepError for what
    cannot be set here."""
    work = _Patching(place, config)
    for name, schema in patch.schemas.items():
        work.schema(name, schema)
    work.handling(patch.handling)
    if patch.type_locked:
        raise InstepError(
            f"the types of connection {place.connection} cannot be locked by this setting",
            hint="write a rule of its policy: {on: [column.widened, column.retyped], decide: ignore}",
        )
    return Patched(tuple(work.steps), work.settings)


def switched(place: SwitchedConnection, on: bool) -> tuple[SwitchStep, ...]:
    """Return all schemas and tables switched on or off, where that may be; columns stay as they are."""
    verb: Verb = "on" if on else "off"
    switches = existing_switches(place)
    return tuple(_all(place, verb, [o for o in listed(place) if not o.column and o.enabled != on], switches))


def _all(
    place: SwitchedConnection, verb: Verb, objects: list[Listed], switches: Mapping[str, Switch]
) -> Iterator[SwitchStep]:
    for one in objects:
        table = place.known.get((one.schema, one.table)) if one.table else None
        if one.table and table is None:
            continue
        try:
            yield switch_step(place, verb, SwitchTarget(one.schema, table), switches.get(one.path))
        except Blocked:
            continue


class _Patching:
    def __init__(self, place: SwitchedConnection, config: SchemaConfig) -> None:
        self.place = place
        self.schemas = {s.name: s for s in config.schemas}
        self.switches = existing_switches(place)
        self.steps: list[SwitchStep] = []
        self.settings: dict[str, Any] = {}

    def schema(self, name: str, patch: SchemaPatch) -> None:
        entry = self.schemas.get(name)
        if entry is None:
            raise self.not_listed("schema", name, self.schemas)
        if patch.enabled is not None and patch.enabled != entry.enabled:
            self.turn("on" if patch.enabled else "off", SwitchTarget(name))
        tables = {t.name: t for t in entry.tables}
        for table, requested in patch.tables.items():
            if table not in tables:
                raise self.not_listed("table", f"{name}.{table}", [f"{name}.{t}" for t in tables])
            self.table(name, tables[table], requested)

    def table(self, schema: str, now: TableConfig, patch: TablePatch) -> None:
        table = self.place.known.get((schema, now.name))
        if patch.enabled is not None and (patch.enabled != now.enabled or self.is_open(table, now)):
            if table is None or now.lock:
                raise self.locked(f"{schema}.{now.name}", now.lock.text if now.lock else "")
            self.turn("on" if patch.enabled else "off", SwitchTarget(schema, table))
        if patch.sync_mode not in (None, now.sync_mode):
            self.sync_mode(schema, now, patch.sync_mode)
        if not patch.columns:
            return
        if table is None or not now.readable:
            raise InstepError(
                f"table {schema}.{now.name} does not support columns configuration: its columns are not known",
                hint="reload the schema config once the source lets the table be read",
            )
        touched = {c.name for c in now.columns}
        for name, requested in patch.columns.items():
            self.column(table, touched, name, requested)

    def is_open(self, table: Table | None, now: TableConfig) -> bool:
        """Return whether a policy would still decide about the table: what is said of it is a choice then."""
        accepted = self.place.accepted.get(table.ref) if table else None
        switch = self.switches.get(table.path) if table else None
        chosen = switch is not None and switch.enabled is not None
        return table is not None and not now.lock and not chosen and (accepted is None or accepted.retained)

    def sync_mode(self, schema: str, now: TableConfig, mode: SyncMode | None) -> None:
        path = f"{schema}.{now.name}" if schema else now.name
        if now.sync_mode is None:
            raise InstepError(
                f"table {path} has no key: its sync mode cannot be chosen",
                hint=f"set one: `instep table set-key {argument(path)}`",
            )
        settings = {"history": mode == "HISTORY"}
        more = {} if mode == "HISTORY" else {"deletes": "hard" if mode == "LIVE" else "soft"}
        self.settings.setdefault("tables", {})[path] = {**settings, **more}

    def column(self, table: Table, touched: Set[str], name: str, patch: ColumnPatch) -> None:
        column = table.by_name.get(name)
        if column is None:
            if name in touched:
                raise self.locked(f"{table.path}.{name}", "it is no longer at the source")
            raise self.not_listed("column", f"{table.path}.{name}", [f"{table.path}.{c.name}" for c in table.live])
        target = SwitchTarget(table.schema, table, column)
        if patch.enabled is not None:
            self.turn("on" if patch.enabled else "off", target)
        if patch.hashed is not None:
            self.turn("hash" if patch.hashed else "unhash", target)
        self.primary_key(table, name, patch.is_primary_key)

    def primary_key(self, table: Table, name: str, requested: bool | None) -> None:
        key = self.place.settings(table).key or table.key
        if requested is not None and requested != (name in key):
            raise InstepError(
                f"whether {table.path}.{name} is in the key cannot be set here",
                hint=f"`instep table set-key {argument(table.path)} COLUMN...` counts duplicates first",
            )

    def turn(self, verb: Verb, target: SwitchTarget) -> None:
        made = switch_step(self.place, verb, target, self.switches.get(target.path))
        self.switches[target.path] = made.switch
        self.steps.append(made)

    def handling(self, requested: Handling | None) -> None:
        policy = self.place.policy
        if requested is None or requested == handling(policy.preset):
            return
        if policy.rules or policy.overrides:
            what = f"policy {policy.name}" if policy.name else "its policy"
            raise Blocked(
                f"connection {self.place.connection}: {what} has rules of its own, which {requested} would replace",
                hint="change the policy itself, or take its rules out first",
            )
        self.settings |= {
            "policy": None,
            "detect_and_propagate_schema_changes": None,
            "schema_change_handling": requested,
        }

    def locked(self, path: str, why: str) -> Blocked:
        return Blocked(f"{path} is locked: {why or 'it is no longer at the source'}", hint="reload the schema config")

    def not_listed(self, what: str, path: str, every: Any) -> NotListed:
        return NotListed(
            f"connection {self.place.connection} has no {what} {path}",
            hint=did_you_mean(path, every, "reload the schema config if it is new at the source"),
        )


def precreated(patch: ConfigPatch) -> list[Switch]:
    """Return the switches of a config that is made before anything is known of the source; they wait for their
    objects."""
    switches: list[Switch] = []
    for schema, s in patch.schemas.items():
        switches += [Switch(schema, enabled=s.enabled)] if s.enabled is not None else []
        for table, t in s.tables.items():
            switches += [Switch(schema, table, enabled=t.enabled)] if t.enabled is not None else []
            switches += [Switch(schema, table, c, p.enabled, p.hashed) for c, p in t.columns.items() if _has_setting(p)]
    return switches


def _has_setting(patch: ColumnPatch) -> bool:
    return patch.enabled is not None or patch.hashed is not None
