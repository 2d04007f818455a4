"""The tables, views and columns of a MySQL or MariaDB server that a user may see.

The server hides what the user has no right to, and information_schema is not part of a transaction: a table that
is not listed is not proven to be gone, and ids are visible only with the PROCESS privilege.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import xor
from typing import TYPE_CHECKING, Any

from instep.project.sections.databases import MySqlSourceSection
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.sources.base import Discovery, TableStats
from instep.sources.mysql.connect import driver, first, is_mariadb, run
from instep.sources.mysql.types import MySqlType, column_type, literal, matches
from instep.sources.mysql.wire import MALFORMED, RowStream, translated_errors
from instep.stage import timeouts

if TYPE_CHECKING:
    import pymysql

_VERSION = 1  # of the mapping: a new one makes every fingerprint new
_STATS_LIMIT = 2_000  # tables: reading their statistics opens each, 0.2 ms
WEAK = "~"
"""Begins an id that proves a rename and nothing else: the server changes it in TRUNCATE and many ALTERs."""
_TABLE_FIELDS = "table_schema, table_name, table_type, table_comment"
_COLUMN_FIELDS = (
    "table_schema, table_name, column_name, data_type, column_type, character_maximum_length, is_nullable,"
    " column_default, column_comment, privileges, ordinal_position"
)
_KEY_FIELDS = "table_schema, table_name, column_name, seq_in_index"
_KINDS = "table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'VIEW')"
_CHECKS = (
    "SELECT constraint_schema, table_name, constraint_name FROM information_schema.check_constraints"
    " WHERE {where} AND level = 'Column' AND check_clause LIKE 'json\\_valid(%'"
)
_STATS = "SELECT table_schema, table_name, table_rows, data_length FROM information_schema.tables WHERE {where}"
_FORMULAS = (
    "SELECT table_schema, table_name, column_name, SHA2(generation_expression, 256)"
    " FROM information_schema.columns WHERE {where} AND generation_expression <> ''"
)
_QUERIES = (
    "SELECT table_schema, table_name, SHA2(view_definition, 256)"
    " FROM information_schema.views WHERE {where} AND view_definition <> ''"
)
_HALVES = ", ".join(f"BIT_XOR(CAST(CONV(SUBSTR(h, {at}, 16), 16, 10) AS UNSIGNED))" for at in (1, 17))
BORROWING = (
    "SELECT table_schema, table_name FROM information_schema.tables"
    " WHERE engine IN ('MRG_MyISAM', 'FEDERATED', 'CONNECT', 'SPIDER')"
)
"""Query for the tables whose rows are those of other tables."""
Ref = tuple[str, str]
Row = tuple[Any, ...]


def where(config: MySqlSourceSection, schema: str = "table_schema") -> str:
    return matches(schema, "table_name", config.database, config.include, config.exclude)


@dataclass(frozen=True)
class _CatalogView:
    """One of the views that make up the catalog: what is read of it, for `fields` and a digest of each row."""

    fields: str
    view: str
    where: str

    @property
    def rows(self) -> str:
        texts = ", ".join(f"COALESCE(HEX(CAST({name} AS CHAR)), '-')" for name in self.fields.split(", "))
        source = f"FROM information_schema.{self.view} WHERE {self.where}"
        return f"SELECT {self.fields}, LEFT(SHA2(CONCAT_WS('|', {texts}), 256), 32) AS h {source}"

    @property
    def digest(self) -> str:
        return f"SELECT COUNT(*), {_HALVES} FROM ({self.rows}) AS d"  # noqa: S608


def _parts(config: MySqlSourceSection) -> tuple[_CatalogView, _CatalogView, _CatalogView]:
    condition = where(config)
    return (
        _CatalogView(_TABLE_FIELDS, "tables", f"{condition} AND {_KINDS}"),
        _CatalogView(_COLUMN_FIELDS, "columns", condition),
        _CatalogView(_KEY_FIELDS, "statistics", f"{condition} AND index_name = 'PRIMARY'"),
    )


@translated_errors()
def read_catalog(connection: pymysql.Connection[Any], config: MySqlSourceSection) -> Discovery:
    """Return every selected table in a handful of queries."""
    objects, rows, keys = (_fetch(connection, part.rows) for part in _parts(config))
    digest = _joined(_folded(part) for part in (objects, rows, keys))
    checked = _json_columns(connection, config, rows)
    identity, ids = _ids(connection)
    places = {row[:3]: int(row[3]) for row in keys}
    described: dict[Ref, list[Row]] = {(row[0], row[1]): [] for row in objects}
    for row in rows:
        described.get((row[0], row[1]), []).append(row)
    tables, denied = [], {}
    for schema, name, kind, comment, _ in objects:
        own = sorted(described[schema, name], key=lambda row: int(row[10]))
        denied.update(_denied((schema, name), own))
        columns = tuple(_column(row, places.get(row[:3], 0), row[:3] in checked) for row in own)
        if columns and kind == "VIEW":
            tables.append(Table(schema, name, columns, kind="view"))
        elif columns:
            tables.append(Table(schema, name, columns, ids.get((schema, name)), comment=comment or None))
    stats = _statistics(connection, where(config)) if len(tables) <= _STATS_LIMIT else {}
    return Discovery(Catalog.of(tables), digest, stats, denied, identity)


def _fetch(connection: pymysql.Connection[Any], query: str) -> list[Row]:
    """Return all rows as texts."""
    stream = RowStream(connection, query)
    size = 0
    rows: list[Row] = []
    for block in stream.blocks(65_536):
        size += sum(values.nbytes for values in block)
        if size > timeouts.MOST:
            raise driver().OperationalError(MALFORMED, "the catalog has no end")
        rows.extend(zip(*(values.cast("string").to_pylist() for values in block), strict=True))
    return rows


@translated_errors()
def value_definitions(connection: pymysql.Connection[Any], refs: Sequence[Ref]) -> dict[Ref, dict[str, str]]:
    """Return what computes generated columns, the rows of views, and what InnoDB stores rows as, of these tables."""
    stored = _row_ids(connection) if refs else {}
    definitions: dict[Ref, dict[str, str]] = {ref: dict(stored.get(ref, {})) for ref in refs}
    named = f"(table_schema, table_name) IN ({', '.join(f'({literal(s)}, {literal(n)})' for s, n in refs)})"
    for schema, name, column, text in run(connection, _FORMULAS.format(where=named)) if refs else ():
        definitions.setdefault((schema, name), {})[f"formula {column}"] = text
    for schema, name, text in run(connection, _QUERIES.format(where=named)) if refs else ():
        definitions.setdefault((schema, name), {})["query"] = text
    return definitions


@translated_errors()
def read_fingerprint(connection: pymysql.Connection[Any], config: MySqlSourceSection) -> str:
    """Return counts and XORs of digests of what `read_catalog` reads, computed in the server."""
    return _joined(tuple(map(int, first(connection, part.digest))) for part in _parts(config))


def _folded(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Return the digest that `_CatalogView.digest` computes, of rows that end in their digest."""
    digests = [int(row[-1], 16) for row in rows]
    both = reduce(xor, digests, 0)
    return len(rows), both >> 64, both & (2**64 - 1)


def _joined(parts: Iterable[tuple[int, ...]]) -> str:
    return f"{_VERSION}:" + "-".join(f"{number:x}" for part in parts for number in part)


def _json_columns(connection: pymysql.Connection[Any], config: MySqlSourceSection, rows: Iterable[Row]) -> set[Row]:
    """Return MariaDB's json columns: a longtext whose check names the column. Only looked for where there is a
    longtext, as it is slow."""
    if not is_mariadb(connection) or not any(row[3] == "longtext" for row in rows):
        return set()
    return set(run(connection, _CHECKS.format(where=where(config, "constraint_schema"))))


def _ids(connection: pymysql.Connection[Any]) -> tuple[str, Mapping[Ref, str]]:
    """Return (the scope in which ids are valid, InnoDB's table ids); ("", {}) where the user may not see them."""
    server, rows = _innodb_tables(connection)
    named = ((_decoded(name), number) for name, number in rows)
    return server, {ref: f"{WEAK}{number}" for ref, number in named if ref}


def _row_ids(connection: pymysql.Connection[Any]) -> Mapping[Ref, Mapping[str, str]]:
    """Return InnoDB's ids of tables and partitions, none of which a user sees without the right to: TRUNCATE and
    EXCHANGE PARTITION give another one, and so does what makes all rows anew, which no id tells apart from these."""
    server, rows = _innodb_tables(connection)
    ids: dict[Ref, dict[str, str]] = {}
    for name, number in rows:
        table, *partition = re.split("#[Pp]#", name, maxsplit=1)
        if ref := _decoded(table):
            ids.setdefault(ref, {})[" ".join(["rows", server, *partition])] = str(number)
    return ids


def _innodb_tables(connection: pymysql.Connection[Any]) -> tuple[str, Sequence[tuple[str, int]]]:
    """Return the server and InnoDB's names and ids of tables; ("", ()) where the user may not see them."""
    from pymysql.err import Error

    mariadb = is_mariadb(connection)
    try:
        server = first(connection, f"SELECT @@{'server_uid' if mariadb else 'server_uuid'}")[0]
        view = "innodb_sys_tables" if mariadb else "innodb_tables"
        rows = run(connection, f"SELECT name, table_id FROM information_schema.{view}")  # noqa: S608
    except Error:
        return "", ()
    return str(server), [(str(name), number) for name, number in rows]


def _decoded(name: str) -> Ref | None:
    """Return (schema, table) of InnoDB's file-like name, `shop/a@002db`; None for partitions, internal tables and
    letters that it encodes otherwise."""
    parts = [re.sub(r"@([0-9a-f]{4})", lambda m: chr(int(m[1], 16)), part) for part in name.split("/")]
    if len(parts) != 2 or "#" in name or "@" in re.sub(r"@[0-9a-f]{4}", "", name):
        return None
    return parts[0], parts[1]


def _statistics(connection: pymysql.Connection[Any], condition: str) -> dict[Ref, TableStats]:
    rows = run(connection, _STATS.format(where=condition))
    return {(row[0], row[1]): TableStats(int(row[2]), int(row[3] or 0)) for row in rows if row[2] is not None}


def table_statistics(connection: pymysql.Connection[Any], ref: Ref) -> TableStats:
    """Return InnoDB's estimate for one table."""
    schema, table = map(literal, ref)
    return _statistics(connection, f"table_schema = {schema} AND table_name = {table}").get(ref, TableStats())


def has_snapshots(connection: pymysql.Connection[Any], ref: Ref) -> bool:
    """Return whether a transaction sees the table's rows as they were when it began."""
    schema, table = map(literal, ref)
    of_table = f"table_schema = {schema} AND table_name = {table}"
    engines = run(connection, f"SELECT engine FROM information_schema.tables WHERE {of_table}")  # noqa: S608
    return [str(engine).lower() for (engine,) in engines] == ["innodb"]


@translated_errors()
def borrowing_tables(connection: pymysql.Connection[Any], config: MySqlSourceSection) -> frozenset[Ref]:
    """Return the tables that show rows of others: their keys are written down, and nothing enforces them."""
    return frozenset((str(s), str(n)) for s, n in run(connection, f"{BORROWING} AND {where(config)}"))


def _denied(ref: Ref, rows: Sequence[Row]) -> dict[tuple[str, ...], str]:
    """Return columns that cannot be read, and why: a view without columns is broken; a column without the right to
    select is listed and cannot be read."""
    if not rows:
        return {ref: "its columns cannot be listed: a view on something that is gone, or no right to it"}
    closed = [row[2] for row in rows if "select" not in str(row[9]).lower().split(",")]
    if len(closed) == len(rows):
        return {ref: "no right to select from it"}
    return {(*ref, name): "no right to select this column" for name in closed}


def _column(row: Row, key: int, checked: bool) -> Column:
    name, base, full, length, nullable, default, comment = row[2:9]
    kind, note = column_type(MySqlType(base, full, None if length is None else int(length), checked))
    return Column(
        name,
        kind,
        nullable=nullable == "YES",
        key=key,
        default=None if default in (None, "NULL") else str(default),
        comment=comment or None,
        native=full,
        note=note,
    )
