"""A driver's metadata as our catalog: a few calls a schema, however many tables it has.

JDBC knows no immutable ids: tables and columns are matched by their names, and a rename is a proposal with evidence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from instep.errors import ReadError, SourceLost
from instep.schema.catalog.catalog import Column, Table
from instep.sources.jdbc.config import JdbcConfig
from instep.sources.jdbc.types import JdbcType, column_type
from instep.sources.query import selects
from instep.spark.jdbc import JdbcConnection

Row = tuple[str | None, ...]
KINDS: Mapping[str, str] = {
    "TABLE": "table",
    "BASE TABLE": "table",
    "PARTITIONED TABLE": "table",
    "VIEW": "view",
    "MATERIALIZED VIEW": "materialized_view",
    "FOREIGN TABLE": "foreign",
    "EXTERNAL TABLE": "foreign",
    "VIRTUAL TABLE": "foreign",
}
"""The types of tables that are listed; system tables, synonyms, indexes and sequences are not."""
_TABLE_COLUMNS, _COLUMN_COLUMNS, _KEY_COLUMNS = 5, 18, 5


@dataclass(frozen=True)
class JdbcPlace:
    """Place of tables: `catalog` and `schema` as the driver takes them (None: it has none), and what we call it."""

    catalog: str | None
    schema: str | None
    name: str


def places(connection: JdbcConnection, config: JdbcConfig) -> list[JdbcPlace]:
    """Return the schemas that are read: the ones that are named, or the login's own. Databases without schemas have
    catalogs, and those without either have one nameless place, which bears the default schema's name."""
    with connection.describing("reading its schemas"):
        catalog = connection.raw.getCatalog() or None
        schema = None
        with suppress(Exception):  # drivers older than JDBC 4.1
            schema = connection.raw.getSchema() or None
        if config.dialect.untyped or (schema is None and catalog is None):
            return [JdbcPlace(None, None, config.default_schema)]
        if schema is None and not connection.metadata().supportsSchemasInDataManipulation():
            return [JdbcPlace(name, None, name) for name in config.schemas or (str(catalog),)]
        return [JdbcPlace(catalog, name, name) for name in config.schemas or ([schema] if schema else _all(connection))]


def _all(connection: JdbcConnection) -> list[str]:
    """Return every schema except system schemas, for a login without a schema."""
    names = (row[0] for row in connection.table(connection.metadata().getSchemas(), 1))
    return [name for name in names if name and name.upper() not in ("INFORMATION_SCHEMA", "SYS", "SYSTEM")]


Denied = dict[tuple[str, ...], str]


def tables(connection: JdbcConnection, config: JdbcConfig) -> tuple[list[Table], Denied]:
    """Return (the selected tables of all places, why the driver cannot describe others)."""
    is_selected, denied = selects(config.include, config.exclude), Denied()
    listed = (_tables(connection, config, place, is_selected, denied) for place in places(connection, config))
    return list(chain.from_iterable(listed)), denied


def _tables(
    connection: JdbcConnection,
    config: JdbcConfig,
    place: JdbcPlace,
    is_selected: Callable[[str, str], bool],
    denied: Denied,
) -> Iterable[Table]:
    meta = connection.metadata()
    with connection.describing(f"listing the tables of {place.name or 'the database'}"):
        schema = _as_pattern(place.schema, meta.getSearchStringEscape())
        listed = connection.table(meta.getTables(place.catalog, schema, "%", None), _TABLE_COLUMNS)
    selected = {
        str(row[2]): (KINDS[kind], row[4] or None)
        for row in listed
        if (kind := (row[3] or "TABLE").upper()) in KINDS
        and _is_in(row, place)
        and is_selected(place.name, str(row[2]))
    }
    columns = _columns(connection, place, list(selected), denied) if selected else {}
    keyed = [name for name, (kind, _) in selected.items() if kind == "table" and name in columns]
    keys = _keys(connection, config, place, keyed)
    return [
        _table(config, place, name, kind, comment, columns[name], keys.get(name, {}))
        for name, (kind, comment) in selected.items()
        if name in columns
    ]


def _columns(
    connection: JdbcConnection, place: JdbcPlace, names: Sequence[str], denied: Denied
) -> dict[str, list[Row]]:
    """Return the rows of each table's columns: by one call, or, where the driver trips over some table, by one a
    table."""
    try:
        return _described(connection, place, "%", frozenset(names))
    except SourceLost:
        raise
    except ReadError:
        pass
    escape = connection.metadata().getSearchStringEscape()
    rows: dict[str, list[Row]] = {}
    for name in names:
        try:
            rows |= _described(connection, place, _as_pattern(name, escape) or name, frozenset([name]))
        except SourceLost:
            raise
        except ReadError as error:
            denied[place.name, name] = error.message
    return rows


def _described(
    connection: JdbcConnection, place: JdbcPlace, pattern: str, names: frozenset[str]
) -> dict[str, list[Row]]:
    meta, by_table = connection.metadata(), defaultdict[str, list[Row]](list)
    with connection.describing(f"asking for the columns of {place.name or 'the database'}"):
        schema = _as_pattern(place.schema, meta.getSearchStringEscape())
        for row in connection.table(meta.getColumns(place.catalog, schema, pattern, "%"), _COLUMN_COLUMNS):
            if row[2] in names and _is_in(row, place):
                by_table[str(row[2])].append(row)
    return by_table


def _is_in(row: Row, place: JdbcPlace) -> bool:
    """Return whether the row is of this place: patterns that a driver takes loosely can list another schema's
    tables."""
    return place.schema is None or row[1] == place.schema


def _as_pattern(name: str | None, escape: str | None) -> str | None:
    """Return a name that is taken for a pattern. Without an escape, others are listed as well, and left out
    afterwards."""
    if name is None or not escape:
        return name
    for wild in (escape, "_", "%"):
        name = name.replace(wild, escape + wild)
    return name


def _keys(
    connection: JdbcConnection, config: JdbcConfig, place: JdbcPlace, names: Sequence[str]
) -> dict[str, dict[str, int]]:
    """Return table to column to position in the primary key; one call for all where the driver allows it."""
    meta, by_table = connection.metadata(), defaultdict[str, dict[str, int]](dict)
    rows: list[Row] = []
    schemas: Sequence[str | None] = [None] if config.dialect.keys_by_schema else names
    for name in schemas:
        with connection.describing(f"asking for the key of {name or place.name}"):
            rows += connection.table(meta.getPrimaryKeys(place.catalog, place.schema, name), _KEY_COLUMNS)
    for row in rows:
        by_table[str(row[2])][str(row[3])] = int(row[4] or 1)
    return {name: _ranked(columns) for name, columns in by_table.items()}


def _ranked(columns: Mapping[str, int]) -> dict[str, int]:
    """Return positions from 1 on: some drivers begin with 0."""
    return {name: rank for rank, name in enumerate(sorted(columns, key=lambda n: columns[n]), 1)}


def _table(
    config: JdbcConfig,
    place: JdbcPlace,
    name: str,
    kind: str,
    comment: str | None,
    rows: Sequence[Row],
    key: Mapping[str, int],
) -> Table:
    ordered = sorted(rows, key=lambda row: int(row[16] or 0))
    columns = tuple(_column(row, key.get(str(row[3]), 0), config.dialect.untyped) for row in ordered)
    return Table(place.name, name, columns, kind=kind, comment=comment)


def _column(row: Row, key: int, untyped: bool) -> Column:
    native = JdbcType(int(row[4] or 0), row[5] or "", _number(row[6]), _number(row[8]))
    kind, note = column_type(native, untyped)
    return Column(
        str(row[3]),
        kind,
        nullable=(row[17] or "").upper() != "NO" and row[10] != "0",
        key=key,
        default=(row[12] or "").strip() or None,
        comment=row[11] or None,
        native=native.text,
        note=note,
    )


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        raise ReadError(
            f"the driver gives {text!r} as the size of a column", hint="use another version of it"
        ) from None
