"""Sync mode of each table, chosen from its key and cursor unless the project file says."""

from __future__ import annotations

from dataclasses import dataclass, replace

from instep.errors import ProjectError, argument
from instep.model import Deletes, Mode
from instep.project.sections.tables import TableSettings
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import Date, Decimal, Int, Timestamp, TimestampTz

_ORDERED = (Int, Decimal, Date, Timestamp, TimestampTz)
_CURSOR_NAMES = ("updated_at", "modified_at", "last_modified", "last_updated", "changed_at", "update_time", "mtime")


@dataclass(frozen=True)
class TableMode:
    """Way in which a table is read."""

    mode: Mode
    cursor: str | None
    """A column name or None (read the whole table)."""
    deletes: Deletes
    why: str
    """Shown by `plan`."""
    suggestion: str = ""

    @property
    def partial(self) -> bool:
        """True if a sync reads only some of the rows: those that did not change keep their values."""
        return self.cursor is not None or self.mode in ("cdc", "stream")


def choose(table: Table, settings: TableSettings, *, new: bool = False) -> TableMode:
    """Return the way to sync a table; raises ProjectError for settings that the table cannot follow. `new`: it is not
    accepted yet, so that the project file can name its key without a change that waits."""
    if not (table.history or settings.history):
        return _choice(table, settings, new=new)
    if (refused := why_no_history(table, settings, new=new)) is not None:
        raise refused
    mode = _choice(table, settings, new=new)
    return replace(mode, why=f"{mode.why}; every version is kept")


def mode_of(table: Table, settings: TableSettings) -> TableMode | None:
    """Return the way to sync a table; None for settings that it cannot follow: its load fails with the reason."""
    try:
        return choose(table, settings)
    except ProjectError:
        return None


def mode_name(table: Table, settings: TableSettings) -> str:
    """Return the mode of a table, "" for settings that it cannot follow."""
    table_mode = mode_of(table, settings)
    return table_mode.mode if table_mode else ""


def is_partial(table: Table, settings: TableSettings) -> bool:
    """Return whether a sync reads some of the table's rows only."""
    table_mode = mode_of(table, settings)
    return table_mode is not None and table_mode.partial


def _choice(table: Table, settings: TableSettings, *, new: bool) -> TableMode:
    mode = settings.mode
    if mode == "stream":  # its connector knows what its cursor means, whatever the type
        key = ", ".join(table.key) or "none"
        return TableMode("stream", None, settings.deletes, f"key {key}; operations of the connector")
    cursor = _cursor(table)
    if mode == "auto":
        if not table.key:
            if cursor is not None:
                return TableMode("append", cursor, "ignore", f"no primary key; cursor {cursor}")
            return TableMode("full_refresh", None, "ignore", "no primary key")
        if cursor is not None:
            return TableMode("upsert", cursor, settings.deletes, f"key {', '.join(table.key)}; cursor {cursor}")
        why = f"key {', '.join(table.key)}; whole-table compare"
        return TableMode("upsert", None, settings.deletes, why, _suggest(table))
    if mode == "upsert" and not table.key:
        raise ProjectError(
            f"table {table.path} has no primary key, so it cannot be synced by upsert",
            hint=f"{_name_key(table, new=new)}, or use full_refresh",
        )
    if mode == "cdc":
        return _logged(table, settings)
    if mode == "append" and cursor is None:
        raise ProjectError(
            f"table {table.path} cannot be appended to without a cursor",
            hint="set `cursor:` to a column that only grows, or use upsert or full_refresh",
        )
    deletes: Deletes = settings.deletes if mode == "upsert" else "ignore"
    return TableMode(mode, cursor if mode != "full_refresh" else None, deletes, "set in the project file")


def _name_key(table: Table, *, new: bool) -> str:
    if new:
        return f'name one in the project file: tables: {{"{table.path}": {{key: [...]}}}}'
    return f"name one: `instep table set-key {argument(table.path)} COLUMN`"


def why_no_history(table: Table, settings: TableSettings, *, new: bool = False) -> ProjectError | None:
    """Return the error where versions of rows cannot be told apart or would be lost."""
    if not table.key:
        return ProjectError(
            f"table {table.path} has no primary key, so the versions of its rows cannot be distinguished",
            hint=f"{_name_key(table, new=new)}, or take out `history`",
        )
    if settings.mode in ("append", "full_refresh"):
        return ProjectError(
            f"table {table.path}: `mode: {settings.mode}` compares no rows, so that it finds no versions for `history`",
            hint="leave `mode` out, or use `mode: upsert` or `mode: cdc`",
        )
    if settings.deletes == "hard":
        return ProjectError(
            f"table {table.path}: `deletes: hard` removes rows, and `history: true` keeps their versions",
            hint="leave `deletes` out: a row that leaves the source ends its version",
        )
    return None


def _logged(table: Table, settings: TableSettings) -> TableMode:
    if not table.key:
        return TableMode("full_refresh", None, "ignore", "no primary key, so that the log cannot tell its rows apart")
    return TableMode("cdc", None, settings.deletes, f"key {', '.join(table.key)}; changes from the source's log")


def _suggest(table: Table) -> str:
    for column in table.live:
        if column.name.lower() in _CURSOR_NAMES and not column.nullable and isinstance(column.type, _ORDERED):
            return f"`cursor: {column.name}` would read only changed rows, if every change moves it"
    return ""


def _cursor(table: Table) -> str | None:
    if table.cursor is None:
        return None
    column = table.by_name[table.cursor]
    if not isinstance(column.type, _ORDERED):
        raise ProjectError(
            f"column {table.path}.{column.name} is {column.type} and cannot be a cursor",
            hint="a cursor is an integer, a decimal, a date or a timestamp",
        )
    return table.cursor


def with_settings(source: Table, accepted: Table | None, settings: TableSettings) -> Table:
    """Return the source table with the key and cursor that the settings name, else with its own.

    A cursor or key column that was renamed keeps its role: it is followed by the source's column id.
    """
    by_name = {c.name: c for c in source.columns}
    cursor = source.cursor
    if settings.cursor:
        cursor = _follow(settings.cursor, by_name, source, accepted, accepted.cursor if accepted else None)
    columns = source.columns
    if settings.key and not source.key:
        before = accepted.key if accepted and len(accepted.key) == len(settings.key) else (None,) * len(settings.key)
        keys = [_follow(k, by_name, source, accepted, b) for k, b in zip(settings.key, before, strict=True)]
        places = {name: place for place, name in enumerate(keys, 1) if name}
        if len(places) == len(settings.key):
            columns = tuple(replace(c, key=places.get(c.name, 0)) for c in columns)
    return replace(source, cursor=cursor, columns=columns)


def _follow(
    name: str, by_name: dict[str, Column], source: Table, accepted: Table | None, before: str | None
) -> str | None:
    """Return the column's name today; `before` is the accepted name of the same role, for a rename that was accepted
    earlier."""
    if name in by_name:
        return name
    if accepted is None:
        return None
    old = accepted.by_name.get(name) or (accepted.by_name.get(before) if before else None)
    if old is None or old.id is None:
        return None
    return next((c.name for c in source.columns if c.id == old.id), None)
