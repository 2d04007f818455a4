"""A SQLite file's tables, views and columns, as of an open transaction."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from instep.project.sections.sources import SqliteSourceSection
from instep.schema.catalog.catalog import Column, Table
from instep.sources.base import TableStats
from instep.sources.query import selects
from instep.sources.sqlite.types import column_type

_VERSION = 1  # of the mapping: a new one makes every fingerprint new
_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_SELECTED = "l.schema = 'main' AND l.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND instep_selected(l.name)"
_OBJECTS = f"SELECT l.name, l.type, l.wr FROM pragma_table_list l WHERE {_SELECTED} ORDER BY l.name"  # noqa: S608
_COLUMNS = (
    'SELECT c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden, :wr = 0 AND c.pk = 1'
    " AND upper(c.type) = 'INTEGER' AND NOT EXISTS"
    " (SELECT 1 FROM pragma_index_list(:name, 'main') WHERE origin = 'pk') AS alias"
    " FROM pragma_table_xinfo(:name, 'main') c"
)
_TABLE_COLUMNS = (
    'SELECT l.name, c.name, c.type, c."notnull", c.dflt_value, c.pk, c.hidden,'  # noqa: S608
    " CASE WHEN l.wr = 0 AND c.pk = 1 AND upper(c.type) = 'INTEGER' THEN NOT EXISTS"
    " (SELECT 1 FROM pragma_index_list(l.name, 'main') WHERE origin = 'pk') ELSE 0 END"
    f" FROM pragma_table_list l, pragma_table_xinfo(l.name, 'main') c WHERE l.type = 'table' AND {_SELECTED}"
    " ORDER BY l.name, c.cid"
)

_DEFINITIONS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    " ORDER BY type, name, tbl_name"
)


@dataclass(frozen=True)
class RowidStorage:
    """Row storage of a table."""

    rowid: str = ""
    """The name that reaches the row id, "" where there is none or it is hidden by columns of that name."""


@dataclass(frozen=True)
class Contents:
    """The selected tables, how each is stored, and the objects that exist and cannot be described."""

    tables: tuple[Table, ...]
    storage: Mapping[str, RowidStorage]
    broken: Mapping[tuple[str, ...], str] = field(default_factory=dict)


def contents(connection: sqlite3.Connection, config: SqliteSourceSection) -> Contents:
    """Return everything that is selected: ordinary tables in one query, the others one by one, as a view may be
    broken and the module of a virtual table missing."""
    selected = partial(selects(config.include, config.exclude), "main")
    connection.create_function("instep_selected", 1, selected, deterministic=True)
    objects = {row[0]: row[1:] for row in connection.execute(_OBJECTS) if row[1] != "shadow"}
    rows = connection.execute(_TABLE_COLUMNS)
    columns_of = {name: [row[1:] for row in group] for name, group in groupby(rows, key=lambda row: row[0])}
    broken: dict[tuple[str, ...], str] = {}
    for name, (kind, without_rowid) in objects.items():
        if kind != "table":
            try:
                columns_of[name] = connection.execute(_COLUMNS, {"name": name, "wr": without_rowid}).fetchall()
            except sqlite3.Error as error:
                broken["main", name] = str(error)
    tables, storage = [], {}
    for name, columns in columns_of.items():
        kind, without_rowid = objects[name]
        alias = next((c[0] for c in columns if c[6]), "")
        rowid = _rowid({c[0].lower() for c in columns}, alias) if kind == "table" and not without_rowid else ""
        storage[name] = RowidStorage(rowid)
        tables.append(_table(name, kind, bool(without_rowid), columns))
    return Contents(tuple(tables), storage, broken)


def _rowid(column_names: set[str], alias: str) -> str:
    return alias or next((name for name in _ROWID_NAMES if name not in column_names), "")


def _table(name: str, kind: str, without_rowid: bool, rows: list[Any]) -> Table:
    kinds = {"view": "view", "virtual": "foreign"}
    columns = tuple(_column(row, without_rowid) for row in rows if row[5] != 1)
    return Table("main", name, columns, kind=kinds.get(kind, "table"))


def _column(row: Any, without_rowid: bool) -> Column:
    name, declared, not_null, default, key, hidden, alias = row
    kind, note = column_type(declared)
    return Column(
        name,
        kind,
        nullable=not (not_null or alias or (key and without_rowid)),
        key=key,
        default=default if not hidden else None,
        native=declared,
        note=note,
    )


def statistics(connection: sqlite3.Connection, selected: Contents) -> dict[tuple[str, str], TableStats]:
    """Return rows as ANALYZE counted them, otherwise the width of the row-id range; no scan."""
    analyzed: dict[str, int] = {}
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_stat1'").fetchone():
        for name, stat in connection.execute("SELECT tbl, stat FROM main.sqlite_stat1"):
            analyzed[name] = max(analyzed.get(name, 0), int(str(stat).split()[0]))
    most = connection.execute("SELECT page_count * page_size / 8 FROM pragma_page_count, pragma_page_size").fetchone()
    return {
        table.ref: TableStats(analyzed[table.name] if table.name in analyzed else min(width, most[0]))
        for table in selected.tables
        if (width := _width(connection, table.name, selected.storage[table.name].rowid)) is not None
    }


def _width(connection: sqlite3.Connection, table: str, rowid: str) -> int | None:
    if not rowid:
        return None
    low, high = row_id_range(connection, table, rowid)
    return 0 if low is None else high - low + 1


def row_id_range(connection: sqlite3.Connection, table: str, rowid: str) -> tuple[int | None, int]:
    """Return the least and the greatest row id (None: no rows), each found in one descent."""
    name, column = quoted(table), quoted(rowid)
    low, high = connection.execute(
        f"SELECT (SELECT min({column}) FROM main.{name}), (SELECT max({column}) FROM main.{name})"  # noqa: S608
    ).fetchone()
    return low, high


def fingerprint(connection: sqlite3.Connection, config: SqliteSourceSection) -> str:
    """Return a digest of every definition in the file (a view may read any table) and of the selection."""
    digest = hashlib.sha256(json.dumps([_VERSION, config.include, config.exclude]).encode())
    for row in connection.execute(_DEFINITIONS):
        digest.update(json.dumps(row, ensure_ascii=True).encode())
    return digest.hexdigest()[:32]


def quoted(name: str) -> str:
    """Return `name` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return `text` as an SQL string."""
    return "'" + text.replace("'", "''") + "'"
