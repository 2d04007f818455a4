"""The types of columns in a DuckDB file and in Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from instep.destinations.sql.merge import q
from instep.destinations.sql.session import Dialect, RowId
from instep.destinations.types import DUCKDB_PROMOTIONS, duckdb_primitive, plain_type
from instep.errors import SchemaError
from instep.schema.catalog.catalog import Table, fold_case
from instep.schema.catalog.types import Array, DataType, Decimal, Field, Json, Struct, parse
from instep.schema.planning.hazard import Capabilities
from instep.stage.field_metadata import WHOLE_JSON


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
    """Return the Arrow type of a type's values in staged files and when they are read, as DuckDB makes them."""
    match kind:
        case Array(element):
            return pa.large_list(pa.field("element", arrow_type(element)))
        case Struct(fields):
            return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in fields])
    return plain_type(kind)


def limits(kind: DataType) -> Mapping[bytes | str, bytes | str]:
    return WHOLE_JSON if isinstance(kind, Json) else {}


def check_names(table: Table, hidden: int = 0) -> None:
    """Raise SchemaError for a table that DuckDB could not hold under these names."""
    _check_names([c.name for c in table.columns], f"table {table.path}")
    for column in table.columns:
        sql_type(column.type)


def _check_names(names: list[str], where: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if (twin := seen.setdefault(fold_case(name), name)) is not name:
            raise SchemaError(
                f"columns {twin!r} and {name!r} of {where} differ in case only",
                hint="give one of them an alias: DuckDB holds them for one name",
            )


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
    return parse(_NAMED.get(kind.id, "json"))


_NAMED: dict[str, str] = {
    "boolean": "boolean", "tinyint": "int8", "smallint": "int16", "integer": "int32", "bigint": "int64",
    "utinyint": "int16", "usmallint": "int32", "uinteger": "int64", "ubigint": "decimal(20,0)",
    "hugeint": "decimal(38,0)", "float": "float32", "double": "float64", "varchar": "string", "blob": "binary",
    "date": "date", "time": "time", "timestamp": "timestamp", "timestamp with time zone": "timestamptz",
    "uuid": "uuid", "enum": "string",
}  # fmt: skip


CAPABILITIES = Capabilities(
    name="duckdb",
    promotes=DUCKDB_PROMOTIONS,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    views=True,
    merges_requested=True,
    versions=True,
)
DIALECT = Dialect(
    label="DuckDB",
    place="the file",
    capabilities=CAPABILITIES,
    row_id=RowId("rowid", "rowid", "BIGINT", pa.int64()),
    record_keys=False,
    counts_quickly=True,
    sql_type=sql_type,
    arrow_type=arrow_type,
    data_type=data_type,
    is_document=lambda kind: isinstance(kind, Json),
    limits=limits,
    check_names=check_names,
    as_read=lambda array, kind, target: array.cast(target),
)
