"""PostgreSQL types: what each maps to, how a query asks for it, and what ADBC then yields.

A column's `native` is the text of `format_type` for its base type, with `search_path = pg_catalog`, so types
that are not built in carry their schema. Everything here follows from `native` and the mapped type alone.

What ADBC gives for values that other systems lack (measured with adbc-driver-postgresql 1.13):
- timestamp and timestamptz are int64 microseconds since 1970 whose sum wraps around: 'infinity' is
  `TIMESTAMP_INFINITY`, '-infinity' is `TIMESTAMP_INFINITY + 1`, and moments after 294247-01-10 become
  large negative numbers. PostgreSQL has nothing before 4714 BC, so a wrapped value is always below any
  real one: a check for the years 1 to 9999 catches all of them, BC and year 10000+ included.
- date is int32 days; 'infinity' is `DATE_INFINITY`, '-infinity' is `DATE_INFINITY + 1`; same check.
- arrays lose their dimensions and a lower bound other than 1 fails: see `_array`.

Names, literals and name patterns as PostgreSQL's SQL.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from instep.schema.catalog.types import (
    MAX_PRECISION,
    Array,
    Binary,
    Boolean,
    DataType,
    Date,
    Decimal,
    Float,
    Int,
    Json,
    String,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
)
from instep.schema.planning.naming import quote
from instep.sources.query import glob_to_like, glob_to_regex, is_glob, is_regex, whole_regex

TIMESTAMP_INFINITY = -9222425352054775809
DATE_INFINITY = -2147472692

COMPOSITE = "c"
DIMENSIONS = "instep-array-dimensions:"

_PLAIN: dict[str, DataType] = {
    "boolean": Boolean(),
    "smallint": Int(16),
    "integer": Int(32),
    "bigint": Int(64),
    "real": Float(32),
    "double precision": Float(64),
    "text": String(),
    "character varying": String(),
    "character": String(),
    "bytea": Binary(),
    "date": Date(),
    "timestamp without time zone": Timestamp(),
    "timestamp with time zone": TimestampTz(),
    "uuid": Uuid(),
    "json": Json(),
    "jsonb": Json(),
    "time without time zone": Time(),
}
_LOOSE: dict[str, tuple[DataType, str]] = {
    "numeric": (String(), "numeric without a precision has no fixed scale"),
    "money": (String(), "money is kept as the text of its amount"),
    "oid": (Int(64), ""),
    "name": (String(), ""),
    "bpchar": (String(), ""),
    '"char"': (String(), ""),
    "interval": (String(), "interval is kept as ISO 8601 text"),
    "time with time zone": (String(), "time with time zone is kept as text"),
}
_SIZED = re.compile(r"(character varying|character|bpchar)\((\d+)\)$")
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)$")
_PRECISION = re.compile(r"(timestamp|time)\(\d\)( with(?:out)? time zone)$")
_INTERVAL = re.compile(r"interval\b")
_RAW_TEXT = re.compile(r"(text|character varying|character)(\(\d+\))?$")
_NESTED_PLAIN = (Boolean, Int, Float, String, Binary, Date, Timestamp, TimestampTz)


@dataclass(frozen=True)
class MappedType:
    """The type a column maps to, and why it is looser than the source's (empty when it is not)."""

    type: DataType
    note: str = ""


@lru_cache(maxsize=4096)
def map_type(native: str, kind: str, dimensions: int) -> MappedType:
    """Return the mapping of a base type. `kind` is pg_type.typtype of the type, or of the element for an array;
    `dimensions` is pg_attribute.attndims."""
    if native.endswith("[]"):
        return _map_array(native[:-2], kind, dimensions)
    if kind == COMPOSITE:
        return MappedType(Json(), f"composite {native} is kept as json")
    return _map_plain(native)


def _map_plain(native: str) -> MappedType:
    native = _PRECISION.sub(r"\1\2", native)
    if native in _PLAIN:
        return MappedType(_PLAIN[native])
    if native in _LOOSE:
        return MappedType(*_LOOSE[native])
    if match := _SIZED.match(native):
        return MappedType(String(int(match[2])))
    if match := _NUMERIC.match(native):
        return _map_numeric(int(match[1]), int(match[2]))
    if _INTERVAL.match(native):
        return MappedType(*_LOOSE["interval"])
    return MappedType(String(), f"{native} is kept as text")


def _map_numeric(precision: int, scale: int) -> MappedType:
    if scale < 0:
        return MappedType(String(), f"numeric({precision},{scale}) has a negative scale")
    if max(precision, scale) > MAX_PRECISION:
        return MappedType(String(), f"numeric({precision},{scale}) has more than {MAX_PRECISION} digits")
    return MappedType(Decimal(max(precision, scale), scale))


def _map_array(element: str, kind: str, dimensions: int) -> MappedType:
    if dimensions > 1:
        return MappedType(Json(), f"an array of {dimensions} dimensions is kept as json")
    if kind == COMPOSITE or element in ("json", "jsonb"):
        return MappedType(Json(), f"{element}[] is kept as json")
    mapped = _map_plain(element)
    if isinstance(mapped.type, _NESTED_PLAIN) and not mapped.note:
        return MappedType(Array(String() if isinstance(mapped.type, String) else mapped.type))
    return MappedType(Array(String()), f"the elements of {element}[] are kept as text")


def yielded(mapped: DataType) -> DataType:
    """Return the type that a query yields for a column of the mapped type: exact numbers and times come as text (for
    numbers the server's text is twice as fast as the driver's), the rest as themselves."""
    if isinstance(mapped, Decimal | Time):
        return String()
    return String() if isinstance(mapped, String) else mapped


def expression(quoted: str, native: str, mapped: DataType, name: str) -> str:
    """Return the SELECT expression for the column `name`, quoted as `quoted`, so that ADBC yields `yielded(mapped)`."""
    match mapped:
        case Array():
            return _array(quoted, native[:-2], mapped, name)
        case Json():
            # to_jsonb would drop names that occur twice, and fail on \u0000 and on texts over 256 MB
            return quoted if native in ("json", "jsonb") else f"to_json({quoted})::text"
        case Decimal() | Time():
            return f"{quoted}::text"
        case String():
            return _text(quoted, native)
        case Int() if native == "oid":
            return f"{quoted}::int8"
    return quoted


def octets(quoted: str, native: str) -> str:
    """Return how many bytes a value takes; of texts and bytes without being unpacked."""
    return f"octet_length({quoted})" if _RAW_TEXT.match(native) or native == "bytea" else f"pg_column_size({quoted})"


def _text(quoted: str, native: str) -> str:
    if _RAW_TEXT.match(native):
        return quoted
    return f"{quoted}::numeric::text" if native == "money" else f"{quoted}::text"


def _array(quoted: str, element: str, mapped: Array, name: str) -> str:
    """Return a list with lower bound 1; fails, naming the column, on a value that has more than one dimension.

    ADBC would flatten such a value without a word. SQL cannot raise, so the failure is a cast of a text
    that is no array; it depends on the row, or the planner would compute it beforehand.
    """
    as_is = not isinstance(mapped.element, String) or _RAW_TEXT.match(element)
    target = f"{'int8' if element == 'oid' else element if as_is else 'text'}[]"
    value = quoted if target == f"{element}[]" else f"{quoted}::{target}"
    failure = f"({literal(DIMENSIONS + name)} || left({quoted}::text, 0))::{target}"
    return f"CASE WHEN array_ndims({quoted}) > 1 THEN {failure} ELSE ({value})[:] END"


def quote_table(schema: str, name: str) -> str:
    return f"{quote(schema)}.{quote(name)}"


def select(what: str, source: str, *conditions: str) -> str:
    """Return a query; each part is SQL already. Empty conditions are left out."""
    terms = [c for c in conditions if c]
    return " ".join(["SELECT", what, "FROM", source, *(["WHERE", " AND ".join(terms)] if terms else [])])


def literal(text: str) -> str:
    """Return a string constant, safe whatever `standard_conforming_strings` says."""
    body = text.replace("\\", "\\\\").replace("'", "''")
    return f" E'{body}'" if "\\" in text else f"'{body}'"


def matches(schema: str, name: str, include: Sequence[str], exclude: Sequence[str]) -> str:
    """Return a condition on a table, given the expressions for its schema and name: included by some pattern, or no
    include is given, and excluded by none.

    A pattern is about the whole of `schema.name`, as in a selection; one without a dot, about `name` too.
    """
    terms = [f"({' OR '.join(_matches(schema, name, p) for p in include)})"] if include else []
    terms += [f"NOT {_matches(schema, name, p)}" for p in exclude]
    return " AND ".join(terms) or "true"


def _matches(schema: str, name: str, pattern: str) -> str:
    path = f"({schema} || '.' || {name})"
    if is_regex(pattern):
        return f"({path} ~ {literal(whole_regex(pattern))})"
    subjects = [path] if "." in pattern else [path, name]
    return f"({' OR '.join(f'{s} {test}' for s in subjects for test in _tests(pattern))})"


def _tests(pattern: str) -> list[str]:
    """Return tests that match the pattern; a name that holds glob characters matches itself too."""
    exact = [f"= {literal(pattern)}"]
    if "[" in pattern:
        return [f"~ {literal(glob_to_regex(pattern))}", *exact]
    return [f"LIKE {literal(glob_to_like(pattern))}", *exact] if is_glob(pattern) else exact


__all__ = ["literal", "matches", "quote", "quote_table", "select"]
