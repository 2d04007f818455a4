# ruff: noqa: S608 - names are quoted or ours
"""What the columns of a table are in the file, in Arrow and in its record.

The tables in which the file keeps its records: one row a table that is ours, one a dropped table that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from instep.destinations.base import Ref
from instep.destinations.duckdb.file import DuckDbSession
from instep.destinations.sql.alter import SCHEMA, DroppedTable, foreign, missing
from instep.destinations.sql.merge import q
from instep.destinations.sql.records import Record, dump, load
from instep.destinations.sql.shape import Physical, plain_type
from instep.destinations.sql.shape import as_it_is as as_database_tells
from instep.destinations.types import duckdb_primitive
from instep.errors import DestinationError, SchemaError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Field,
    Float,
    Int,
    Json,
    String,
    Struct,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
)
from instep.stage.field_metadata import WHOLE_JSON

FIELD_ID = "PARQUET:field_id"


def sql_type(kind: DataType, *, inner: bool = False) -> str:
    """Return the type of a column; a JSON document within another value is text."""
    match kind:
        case Array(element):
            return f"{sql_type(element, inner=True)}[]"
        case Struct(fields):
            _check_names([f.name for f in fields], str(kind))
            return f"STRUCT({', '.join(f'{q(f.name)} {sql_type(f.type, inner=True)}' for f in fields)})"
        case Json() if inner:
            return "VARCHAR"
    return duckdb_primitive(kind)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return what values of a type are in staged files and when they are read: what DuckDB itself makes of them."""
    match kind:
        case Array(element):
            return pa.large_list(pa.field("element", arrow_type(element)))
        case Struct(fields):
            return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in fields])
    return plain_type(kind)


def arrow_schema(record: Record) -> pa.Schema:
    """Return what a task writes: the columns in order, with their numbers, and which take no odd JSON."""
    return pa.schema(
        [
            pa.field(c.name, arrow_type(c.type), c.nullable, {FIELD_ID: str(record.numbers[c.name]), **_limits(c.type)})
            for c in record.table.columns
        ]
    )


def _limits(kind: DataType) -> Mapping[bytes | str, bytes | str]:
    return WHOLE_JSON if isinstance(kind, Json) else {}


def check_names(table: Table) -> None:
    """Raise SchemaError for a table that DuckDB could not hold under these names."""
    _check_names([c.name for c in table.columns], f"table {table.path}")
    for column in table.columns:
        sql_type(column.type)


def _check_names(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (twin := seen.setdefault(name.casefold(), name)) is not name:
            raise SchemaError(
                f"columns {twin!r} and {name!r} of {where} differ in case only",
                hint="give one of them an alias: DuckDB holds them for one name",
            )


_COLUMNS = (
    "SELECT schema_name, table_name, column_name, data_type, is_nullable, comment FROM duckdb_columns() "
    "WHERE database_name = ? AND NOT internal ORDER BY column_index"
)
_TABLES = "SELECT schema_name, table_name, comment FROM duckdb_tables() WHERE database_name = ? AND NOT internal"


def types_of(session: DuckDbSession, schema: str, table: str) -> dict[str, str]:
    """Return the types of one table by column, without a look at all others."""
    return {name: kind for name, kind, *_ in session.run(f"DESCRIBE {session.name(schema, table)}")}


def physical(session: DuckDbSession) -> dict[tuple[str, str], tuple[Physical, ...]]:
    """Return the columns of every table and view of the file, by (schema, name)."""
    found: dict[tuple[str, str], list[Physical]] = {}
    for schema, table, *facts in session.run(_COLUMNS, [session.catalog]):
        found.setdefault((schema, table), []).append(Physical(*facts))
    return {ref: tuple(columns) for ref, columns in found.items()}


def comments(session: DuckDbSession) -> dict[tuple[str, str], str | None]:
    """Return the comment of every table of the file."""
    rows = session.run(_TABLES, [session.catalog])
    return {(schema, name): comment for schema, name, comment in rows}


def as_it_is(record: Record, there: Sequence[Physical], comment: str | None) -> Table:
    """Return the table as its record and the file together tell."""
    return as_database_tells(record, there, comment, data_type)


def data_type(text: str) -> DataType:
    """Return the type that a type of DuckDB is read as; what we have no type for is json."""
    return Json() if text == "JSON" else _data_type(duckdb.sqltype(text))


def _data_type(kind: Any) -> DataType:
    match kind.id:
        case "decimal":
            sizes = dict(kind.children)
            return Decimal(sizes["precision"], sizes["scale"])
        case "list" | "array":
            return Array(_data_type(dict(kind.children)["child"]))
        case "struct":
            return Struct(tuple(Field(name, _data_type(child)) for name, child in kind.children))
    return _NAMED.get(kind.id, Json())


_NAMED: dict[str, DataType] = {
    "boolean": Boolean(), "tinyint": Int(8), "smallint": Int(16), "integer": Int(32), "bigint": Int(64),
    "utinyint": Int(16), "usmallint": Int(32), "uinteger": Int(64), "ubigint": Decimal(20, 0),
    "hugeint": Decimal(38, 0), "float": Float(32), "double": Float(64), "varchar": String(), "blob": Binary(),
    "date": Date(), "time": Time(), "timestamp": Timestamp(), "timestamp with time zone": TimestampTz(),
    "uuid": Uuid(), "enum": String(),
}  # fmt: skip


_NEW = (
    "CREATE TABLE IF NOT EXISTS {tables} (namespace VARCHAR, name VARCHAR, fence BIGINT, record VARCHAR)",
    "CREATE TABLE IF NOT EXISTS {dropped} (namespace VARCHAR, name VARCHAR, place VARCHAR, source_id VARCHAR, "
    "dropped_at BIGINT, record VARCHAR)",
    "CREATE TABLE IF NOT EXISTS {views} (namespace VARCHAR, name VARCHAR, record VARCHAR)",
)


def _tables(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "tables")


def _dropped(session: DuckDbSession) -> str:
    return session.name(SCHEMA, "dropped")


def begun(session: DuckDbSession, table: str = "dropped") -> bool:
    """Return whether the file has this table of records; looked up once while the file is open."""
    if table not in session.ours:
        sql = "SELECT count(*) FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = ?"
        session.ours.update([table] if session.count(sql, session.catalog, SCHEMA, table) else [])
    return table in session.ours


def prepare(session: DuckDbSession) -> None:
    """Make the tables of records, if they are not there."""
    if begun(session) and begun(session, "views"):
        return
    session.run(f"CREATE SCHEMA IF NOT EXISTS {session.schema(SCHEMA)}")
    views = session.name(SCHEMA, "views")
    for statement in _NEW:
        session.run(statement.format(tables=_tables(session), dropped=_dropped(session), views=views))


def find(session: DuckDbSession, ref: Ref) -> Record | None:
    """Return the record of a table, or of the session's shard of it; None without one."""
    record = _whole(session, ref)
    return record.part(session.part[1], session.part[0]) if record and session.part else record


def _whole(session: DuckDbSession, ref: Ref) -> Record | None:
    if not begun(session):
        return None
    sql = f"SELECT fence, record FROM {_tables(session)} WHERE namespace = ? AND name = ?"
    rows = session.run(sql, ref)
    return load(ref, *rows[0]) if rows else None


def every(session: DuckDbSession) -> dict[Ref, Record]:
    """Return all records, those of copies included."""
    if not begun(session):
        return {}
    rows = session.run(f"SELECT namespace, name, fence, record FROM {_tables(session)}")
    return {(schema, name): load((schema, name), fence, text) for schema, name, fence, text in rows}


def not_ours(ref: Ref) -> DestinationError:
    """Return what is said of a table that something else made."""
    return foreign(ref, "the file")


def require(session: DuckDbSession, ref: Ref) -> Record:
    """Return the record of a table that is ours; DestinationError if it is not there, or somebody else's, or a copy."""
    record = find(session, ref)
    if record is None or record.copy:
        raise not_ours(ref) if record or is_taken(session, ref) else missing(ref)
    return record


def is_taken(session: DuckDbSession, ref: Ref) -> bool:
    """Return whether the file has a table or view of this name, in any case."""
    return twin(ref, physical(session)) is not None


def twin(ref: Ref, there: Iterable[Ref]) -> Ref | None:
    """Return the table that DuckDB means by this name."""
    return next(
        (r for r in there if (r[0].casefold(), r[1].casefold()) == (ref[0].casefold(), ref[1].casefold())), None
    )


def put(session: DuckDbSession, record: Record, was: Ref | None = None) -> None:
    """Write a record, in the place of that of `was` if the table had another name; that of a shard into the whole
    table's."""
    if record.within is not None:
        whole = _whole(session, record.ref)
        assert whole is not None, "the transaction has found the shard in it"
        record = whole.together(record)
    remove(session, was or record.ref)
    values = [*record.ref, record.fence, dump(record)]
    session.run(f"INSERT INTO {_tables(session)} VALUES (?, ?, ?, ?)", values)


def remove(session: DuckDbSession, ref: Ref) -> None:
    session.run(f"DELETE FROM {_tables(session)} WHERE namespace = ? AND name = ?", ref)


def dropped(session: DuckDbSession, ref: Ref | None = None) -> list[DroppedTable]:
    """Return the dropped tables that wait, of one name or all; the last one first."""
    if not begun(session):
        return []
    what = "namespace, name, place, source_id, dropped_at, record"
    sql = f"SELECT {what} FROM {_dropped(session)} ORDER BY dropped_at DESC, place DESC"
    rows = session.run(sql)
    found = [DroppedTable((schema, name), *more) for schema, name, *more in rows]
    return [d for d in found if ref is None or d.ref == ref]


def put_dropped(session: DuckDbSession, record: Record, place: str, at: int) -> None:
    values = [*record.ref, place, record.table.id, at, dump(record)]
    session.run(f"INSERT INTO {_dropped(session)} VALUES (?, ?, ?, ?, ?, ?)", values)


def remove_dropped(session: DuckDbSession, one: DroppedTable) -> None:
    sql = f"DELETE FROM {_dropped(session)} WHERE namespace = ? AND place = ?"
    session.run(sql, [one.ref[0], one.place])
