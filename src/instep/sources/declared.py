"""Types as SQL declares them (`varchar(20)`, `int unsigned`), mapped as a column of that type would be."""

from __future__ import annotations

import re
from collections.abc import Mapping

from instep.schema.catalog.types import DataType
from instep.sources.mysql.types import MySqlType, column_type
from instep.sources.postgres.types import map_type
from instep.sources.sqlite.types import column_type as sqlite_type

DIALECTS: Mapping[str, str] = {"postgres": "postgres", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
"""The dialect of a source's SQL, by its kind."""
_POSTGRES = {
    "int": "integer", "int4": "integer", "int2": "smallint", "int8": "bigint", "serial": "integer",
    "serial4": "integer", "bigserial": "bigint", "serial8": "bigint", "smallserial": "smallint",
    "serial2": "smallint", "bool": "boolean", "float4": "real", "float8": "double precision",
    "float": "double precision", "decimal": "numeric", "dec": "numeric", "varchar": "character varying",
    "char varying": "character varying", "char": "character", "nchar": "character",
    "national character varying": "character varying", "national char varying": "character varying",
    "national character": "character", "national char": "character",
    "timestamp": "timestamp without time zone", "timestamptz": "timestamp with time zone",
    "time": "time without time zone", "timetz": "time with time zone", "varbit": "bit varying",
}  # fmt: skip
_PARTS = re.compile(r"(?P<base>[^(\[]*?)\s*(?:\((?P<size>[^)]*)\)\s*(?P<rest>[^\[]*?))?\s*(?P<array>(?:\[\d*\]\s*)*)")
_MYSQL = {
    "integer": "int", "bool": "tinyint(1)", "boolean": "tinyint(1)", "dec": "decimal", "numeric": "decimal",
    "fixed": "decimal", "real": "double", "double precision": "double", "float4": "float", "float8": "double",
    "int1": "tinyint", "int2": "smallint", "int3": "mediumint", "middleint": "mediumint", "int4": "int",
    "int8": "bigint", "character": "char", "character varying": "varchar", "char varying": "varchar",
    "nchar": "char", "nvarchar": "varchar", "national varchar": "varchar", "national char": "char",
    "long": "mediumtext", "long varchar": "mediumtext", "serial": "bigint unsigned",
}  # fmt: skip


def declared_type(dialect: str, text: str) -> tuple[DataType, str, str]:
    """Return (the type, the native text, why it is looser or "") of a type in the SQL of a source."""
    if dialect == "postgres":
        return _postgres(text)
    if dialect == "mysql":
        return _mysql(text)
    kind, note = sqlite_type(text)
    return kind, text, note


def _postgres(text: str) -> tuple[DataType, str, str]:
    """Parse a PostgreSQL type as `format_type` writes it, which is what a catalog has."""
    plain = " ".join(text.replace("pg_catalog.", "").split())
    plain = plain if '"' in plain else plain.lower()
    match = _PARTS.fullmatch(re.sub(r" array(\[\d*\])?$", "[]", plain))
    if match is None:
        return *_mapped(plain, 0), ""
    base, size, suffix = match["base"], (match["size"] or "").replace(" ", ""), match["rest"] or ""
    dimensions = match["array"].count("[")
    word = _POSTGRES.get(f"{base} {suffix}".strip(), _POSTGRES.get(base, base))
    if suffix in ("with time zone", "without time zone"):
        base, word = base, f"{base} {suffix}"
    native = _with_size(word, base, size) + "[]" * bool(dimensions)
    kind, native = _mapped(native, dimensions)
    return kind, native, map_type(native, "b", dimensions).note


def _mapped(native: str, dimensions: int) -> tuple[DataType, str]:
    return map_type(native, "b", dimensions).type, native


def _with_size(word: str, base: str, size: str) -> str:
    if word == "double precision":
        return "real" if base == "float" and size.isdigit() and int(size) <= 24 else word
    if word == "numeric" and size and "," not in size:
        return f"numeric({size},0)"
    if word in ("character", "bit") and not size:
        return f"{word}(1)"
    if not size:
        return word
    head, space, tail = word.partition(" ") if word.endswith("zone") else (word, "", "")
    return f"{head}({size}){space}{tail}"


def _mysql(text: str) -> tuple[DataType, str, str]:
    plain = " ".join(text.lower().split())
    match = _PARTS.fullmatch(plain)
    base, size, suffix = (match["base"], match["size"], match["rest"] or "") if match else (plain, None, "")
    words = base.split()
    flags = [w for w in (*words, *suffix.split()) if w in ("unsigned", "zerofill", "signed")]
    named = " ".join(w for w in words if w not in flags and w != "binary") or base
    name = _MYSQL.get(named, named)
    sized = f"({size})" if size is not None and "(" not in name else ""
    native = " ".join([f"{name}{sized}", *(f for f in flags if f != "signed")])
    base = name.partition("(")[0].partition(" ")[0]
    length = int(size) if size and size.isdigit() else None
    kind, note = column_type(MySqlType(base, native, length if length is not None or base != "char" else 1))
    return kind, native, note
