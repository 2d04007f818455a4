"""The types of columns on the server and in Arrow."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from instep.destinations.sql.session import Dialect, RowId
from instep.destinations.types import POSTGRES_PROMOTIONS, plain_type, postgres_primitive
from instep.errors import SchemaError
from instep.schema.catalog.catalog import Table
from instep.schema.catalog.types import Array, DataType, Decimal, Int, Json, String, Struct, Time, Unknown, parse
from instep.schema.planning.hazard import Capabilities
from instep.stage.casts.cast import cast
from instep.stage.field_metadata import VALID_JSON, WITHOUT_NUL

MAX_COLUMNS = 1_600
RESERVED = frozenset({"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"})
"""Columns that every table has already."""


def as_array(kind: DataType) -> bool:
    """Return whether an array of this is one on the server; one of arrays, which need not be of one length, is a
    document."""
    return isinstance(kind, Array) and not isinstance(kind.element, Array | Struct | Json)


def as_document(kind: DataType) -> bool:
    """Return whether the column holds JSON."""
    return isinstance(kind, Json | Struct) or (isinstance(kind, Array) and not as_array(kind))


def sql_type(kind: DataType) -> str:
    if as_document(kind):
        return "json"
    if isinstance(kind, Array):
        return f"{sql_type(kind.element)}[]"
    return postgres_primitive(kind)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type of a type's values in staged files and when they are read, as COPY takes it."""
    match kind:
        case Int(8):  # the server has none of one byte
            return pa.int16()
        case Array(element) if as_array(kind):
            return pa.large_list(pa.field("element", arrow_type(element)))
    return plain_type(kind)


def limits(kind: DataType) -> Mapping[bytes | str, bytes | str]:
    inner = kind.element if isinstance(kind, Array) and as_array(kind) else kind
    if isinstance(kind, Json):
        return {**WITHOUT_NUL, **VALID_JSON}
    return WITHOUT_NUL if isinstance(inner, String | Time | Unknown | Json) else {}


def check_names(table: Table, hidden: int = 0) -> None:
    """Raise SchemaError for a table that PostgreSQL could not hold; `hidden` columns are in it besides."""
    if len(table.columns) + hidden > MAX_COLUMNS:
        raise SchemaError(
            f"table {table.path} would have {len(table.columns) + hidden} columns: PostgreSQL holds {MAX_COLUMNS}",
            hint="exclude some under `exclude: {columns: [...]}` in the project file",
        )
    for what, name in [("table", table.name), *(("column", c.name) for c in table.columns)]:
        if len(name.encode()) > 63:
            raise SchemaError(f"{what} {name!r} of {table.path} is longer than 63 bytes", hint="give it an alias")
    if odd := next((c.name for c in table.columns if c.name in RESERVED), None):
        raise SchemaError(
            f"column {odd!r} of {table.path}: PostgreSQL has one of that name in every table", hint="give it an alias"
        )


_SIZED = re.compile(r"^(?P<base>.+?)\((?P<sizes>[0-9,\-]+)\)(?P<rest>[^()]*)$")


def data_type(text: str) -> DataType:
    """Return the type that a type of PostgreSQL is read as; what we have no type for is json."""
    if text.endswith("[]"):
        return Array(data_type(text[:-2]))
    if match := _SIZED.match(text):
        sizes = [int(n) for n in match["sizes"].split(",")]
        return _sized(f"{match['base']}{match['rest']}", sizes)
    return parse(_NAMED.get(text, "json"))


def _sized(base: str, sizes: list[int]) -> DataType:
    if base == "numeric":
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        return Decimal(precision, scale) if precision <= 38 and 0 <= scale <= precision else String()
    if base in ("character varying", "character"):
        return String(sizes[0])
    return parse(_NAMED.get(base, "json"))


_NAMED: dict[str, str] = {
    "boolean": "boolean", "smallint": "int16", "integer": "int32", "bigint": "int64", "real": "float32",
    "double precision": "float64", "numeric": "string", "text": "string", "character varying": "string",
    "character": "string", "name": "string", "bytea": "binary", "date": "date", "time without time zone": "time",
    "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz", "uuid": "uuid",
}  # fmt: skip


CAPABILITIES = Capabilities(
    name="postgres",
    promotes=POSTGRES_PROMOTIONS,
    case_sensitive=True,
    undo_by_id=True,
    simultaneous_renames=True,
    comments=True,
    keys=True,
    max_name_bytes=63,
    merges_requested=True,
    reserved=RESERVED,
    versions=True,
)
DIALECT = Dialect(
    label="PostgreSQL",
    place="the database",
    capabilities=CAPABILITIES,
    row_id=RowId("ctid", "ctid::text", "tid", pa.string()),
    record_keys=True,
    counts_quickly=False,
    sql_type=sql_type,
    arrow_type=arrow_type,
    data_type=data_type,
    is_document=as_document,
    limits=limits,
    check_names=check_names,
    as_read=lambda array, kind, target: cast(array, kind, target, kind).values,
)
