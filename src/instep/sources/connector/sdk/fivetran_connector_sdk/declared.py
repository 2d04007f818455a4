"""The declarations of `schema()`: tables, their keys, and columns with types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from unicodedata import category

from . import convert
from .shown import shown

Named = tuple[str, str]
_DECIMAL = "DECIMAL"
_UNSEEN = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})
_NO_INK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
"""Characters of other categories that show nothing: fillers of Hangul and Khmer, blank Braille, joiners, variants."""
MAX_PRECISION = 38
RESERVED = frozenset({"__op", "__seq", "__given", "__record"})


@dataclass(frozen=True)
class Declared:
    """`kind` is the engine's name of the type, `exact` the class of values that need no look, `lenient` whether values
    that do not fit may be kept as texts."""

    kind: str
    convert: convert.Convert
    exact: type | None = None
    lenient: bool = False


_TYPES: dict[str, Declared] = {
    "BOOLEAN": Declared("boolean", convert.boolean, bool),
    "SHORT": Declared("int16", convert.integer("SHORT", 16), lenient=True),
    "INT": Declared("int32", convert.integer("INT", 32)),
    "LONG": Declared("int64", convert.integer("LONG", 64)),
    "FLOAT": Declared("float32", convert.single()),
    "DOUBLE": Declared("float64", convert.double(), float),
    "NAIVE_DATE": Declared("date", convert.naive_date),
    "NAIVE_DATETIME": Declared("timestamp", convert.naive_datetime),
    "UTC_DATETIME": Declared("timestamptz", convert.utc_datetime),
    "BINARY": Declared("binary", convert.binary, bytes),
    "XML": Declared("string", convert.xml, str),
    "STRING": Declared("string", convert.string, str),
    "JSON": Declared("json", convert.as_json),
}


@dataclass(frozen=True)
class TableSpec:
    """A table as it was declared; one that was not has neither key nor types."""

    schema: str
    name: str
    key: tuple[str, ...] = ()
    types: Mapping[str, Declared] = field(default_factory=dict)
    declared: bool = False

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    def document(self) -> dict[str, Any]:
        types = {name: declared.kind for name, declared in self.types.items()}
        return {"schema": self.schema, "table": self.name, "key": self.key, "columns": types, "declared": self.declared}


def is_blank(name: str) -> bool:
    """True if the name has no visible character."""
    return all(c in _NO_INK or "\ufe00" <= c <= "\ufe0f" or category(c) in _UNSEEN for c in name)


def tables_of(value: Any) -> dict[Named, TableSpec]:
    """Return the tables that `schema()` returned; raises ValueError with the table and the column that are wrong."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"schema() has to return a list of tables, not {type(value).__name__}")
    table_specs: dict[Named, TableSpec] = {}
    for entry in value:
        table = _table(entry)
        if (table.schema, table.name) in table_specs:
            raise ValueError(f"schema() declares table {table.label} twice")
        table_specs[table.schema, table.name] = table
    return table_specs


def _table(entry: Any) -> TableSpec:
    if not isinstance(entry, Mapping) or "table" not in entry:
        raise ValueError(f"schema() has an entry without `table`: {shown(entry, 200)}")
    name, schema = entry["table"], entry.get("schema") or ""
    if not isinstance(name, str) or is_blank(name) or "\0" in name:
        raise ValueError(f"schema() has a table whose name is not a text, or blank: {shown(name, 100)}")
    if not isinstance(schema, str):
        raise ValueError(f"schema() table {name}: `schema` has to be a text, not {schema!r}")
    columns = entry.get("columns") or {}
    if not isinstance(columns, Mapping):
        raise ValueError(f"schema() table {name}: `columns` has to be a dict of names and types")
    types = {_name(c, name): _type(value, name, c) for c, value in columns.items()}
    return TableSpec(schema, name, _key(entry.get("primary_key"), name), types, declared=True)


def _key(value: Any, table: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)) or isinstance(value, str):
        raise ValueError(f"schema() table {table}: `primary_key` has to be a list of column names, not {value!r}")
    key = tuple(_name(column, table) for column in value)
    if len(set(key)) < len(key):
        raise ValueError(f"schema() table {table}: `primary_key` names a column twice")
    return key


def _name(column: Any, table: str) -> str:
    if not isinstance(column, str):
        raise TypeError(f"schema() table {table}: the column name {column!r} is not a text")
    if is_blank(column) or "\0" in column or column in RESERVED:
        raise ValueError(f"schema() table {table}: a column cannot be named {column!r}")
    return column


def _type(value: Any, table: str, column: str) -> Declared:
    where = f"schema() table {table}, column {column}"
    if isinstance(value, Mapping):
        return _decimal(value, where)
    if not isinstance(value, str):
        raise ValueError(f"{where}: a type is a text, not {value!r}")
    name = value.strip().upper()
    if name == _DECIMAL:
        raise ValueError(f"{where}: write {{'type': 'DECIMAL', 'precision': 12, 'scale': 2}}")
    if name not in _TYPES:
        raise ValueError(f"{where}: {value!r} is not a type; types are {', '.join(_TYPES)} and DECIMAL")
    return _TYPES[name]


def _decimal(value: Mapping[str, Any], where: str) -> Declared:
    if str(value.get("type", "")).upper() != _DECIMAL:
        raise ValueError(f"{where}: only DECIMAL is written as a dict; write the other types as a text")
    precision, scale = value.get("precision"), value.get("scale")
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in (precision, scale)):
        raise ValueError(f"{where}: DECIMAL needs `precision` and `scale`, two whole numbers")
    assert isinstance(precision, int)
    assert isinstance(scale, int)
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise ValueError(f"{where}: DECIMAL has a precision of 1 to {MAX_PRECISION}, and a scale of 0 to it")
    return Declared(f"decimal({precision},{scale})", convert.decimal(precision, scale), lenient=True)
