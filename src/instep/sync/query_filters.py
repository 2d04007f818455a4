"""Filters that a query lets its tables be read by: comparisons of a column with a constant that must hold in WHERE.

DuckDB applies the whole WHERE afterwards, so a filter may let rows through, and never takes one away that the query
would see: only of tables that it names once, only where all conditions have to hold, only for types that all
destinations compare alike.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal as Number
from typing import Any

import duckdb

from instep.destinations.base import Ref
from instep.destinations.filters import ColumnFilter, Operator
from instep.schema.catalog.catalog import Column
from instep.schema.catalog.types import Boolean, DataType, Date, Decimal, Int, String, Timestamp, TimestampTz

_OPERATORS: Mapping[str, tuple[Operator, Operator]] = {
    "COMPARE_EQUAL": ("=", "="),
    "COMPARE_LESSTHAN": ("<", ">"),
    "COMPARE_LESSTHANOREQUALTO": ("<=", ">="),
    "COMPARE_GREATERTHAN": (">", "<"),
    "COMPARE_GREATERTHANOREQUALTO": (">=", "<="),
}
"""As they are written, and with their sides swapped."""
_JOINS = ("INNER", "LEFT", "RIGHT", "OUTER")
_UNARY: Mapping[str, Operator] = {"OPERATOR_IS_NULL": "null", "OPERATOR_IS_NOT_NULL": "not null"}
Shown = Mapping[str, Column]
"""The columns of a table, by the names that queries use."""


@dataclass(frozen=True)
class _Condition:
    """A condition on a column, whose constants are nodes of the query."""

    column: Sequence[str]
    operator: Operator
    constants: tuple[Any, ...] = ()


def filters_of(
    connection: duckdb.DuckDBPyConnection, tree: Any, tables: Mapping[Ref, Ref], shown: Mapping[Ref, Shown]
) -> dict[Ref, list[ColumnFilter]]:
    """Return the filters by which each table may be read. `tables`: by their names in the query."""
    uses = Counter(ref for node in nodes(tree) if (ref := _table(node, tables)) is not None)
    pushed = list[tuple[Ref, Column, _Condition]]()
    for node in nodes(tree):
        if node.get("type") == "SELECT_NODE" and node.get("where_clause") and not node.get("sample"):
            for condition in _conditions(node["where_clause"]):
                ref, column = _resolved(condition, node["from_table"], tables, shown) or (None, None)
                if ref is not None and column is not None and uses[ref] == 1:
                    pushed.append((ref, column, condition))
    values = iter(_evaluated(connection, [c for _, _, condition in pushed for c in condition.constants]))
    filters = defaultdict[Ref, list[ColumnFilter]](list)
    for ref, column, condition in pushed:
        constants = [_as_column(next(values), column.type) for _ in condition.constants]
        # a row with NULL on the other side of an outer join is no row of this table
        if None not in constants and not (condition.operator == "null" and len(tables) > 1):
            filters[ref].append(ColumnFilter(column.name, condition.operator, tuple(constants)))
    return dict(filters)


def nodes(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all parts of a query."""
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from nodes(child)


def _table(node: Any, tables: Mapping[Ref, Ref]) -> Ref | None:
    return tables.get((node["schema_name"], node["table_name"])) if node.get("type") == "BASE_TABLE" else None


def _conditions(where: Any) -> Iterator[_Condition]:
    """Yield the comparisons that have to hold."""
    match where:
        case {"type": "CONJUNCTION_AND", "children": children}:
            for child in children:
                yield from _conditions(child)
        case {"class": "COMPARISON", "type": kind, "left": left, "right": right} if kind in _OPERATORS:
            as_is, swapped = _OPERATORS[kind]
            if _is_column(left) and _is_constant(right):
                yield _Condition(left["column_names"], as_is, (right,))
            elif _is_column(right) and _is_constant(left):
                yield _Condition(right["column_names"], swapped, (left,))
        case {"class": "BETWEEN", "type": "COMPARE_BETWEEN", "input": column, "lower": low, "upper": high}:
            if _is_column(column):
                yield from (_Condition(column["column_names"], ">=", (low,)) for _ in (0,) if _is_constant(low))
                yield from (_Condition(column["column_names"], "<=", (high,)) for _ in (0,) if _is_constant(high))
        case {"class": "OPERATOR", "type": "COMPARE_IN", "children": [column, *constants]}:
            if constants and _is_column(column) and all(map(_is_constant, constants)):
                yield _Condition(column["column_names"], "in", tuple(constants))
        case {"class": "OPERATOR", "type": kind, "children": [column]} if kind in _UNARY and _is_column(column):
            yield _Condition(column["column_names"], _UNARY[kind])


def _is_column(node: Any) -> bool:
    return bool(node.get("class") == "COLUMN_REF")


def _is_constant(node: Any) -> bool:
    if node.get("class") == "CAST" and not node.get("try_cast"):
        return _is_constant(node["child"])
    return bool(node.get("class") == "CONSTANT")


def _resolved(
    condition: _Condition, source: Any, tables: Mapping[Ref, Ref], shown: Mapping[Ref, Shown]
) -> tuple[Ref, Column] | None:
    """Return the table and the column that a condition is on; None if that cannot be told."""
    nodes = _sources(source)
    if nodes is None:
        return None
    *table, name = (part.lower() for part in condition.column)
    columns = list[tuple[Ref, Column]]()
    for node in nodes:
        ref = _table(node, tables)
        by_name = {c.lower(): column for c, column in shown.get(ref, {}).items()} if ref else {}
        label = [(node.get("alias") or node["table_name"]).lower()]
        whole = [node["schema_name"].lower(), *label]
        names = [label] if node.get("alias") or not node["schema_name"] else [label, whole]
        if table and table not in names:
            continue
        if ref is None or not by_name:
            return None
        if name in by_name:
            columns.append((ref, by_name[name]))
    return columns[0] if len(columns) == 1 else None


def _sources(source: Any) -> list[Any] | None:
    """Return the tables of a FROM; None if it has anything else, or a join by which a row that is left out changes
    others."""
    if source.get("type") == "BASE_TABLE":
        return None if source.get("sample") or source.get("column_name_alias") or source.get("at_clause") else [source]
    if source.get("type") != "JOIN" or source.get("ref_type") not in ("REGULAR", "CROSS"):
        return None
    if source.get("join_type") not in _JOINS:
        return None
    left, right = _sources(source["left"]), _sources(source["right"])
    return None if left is None or right is None else [*left, *right]


def _evaluated(connection: duckdb.DuckDBPyConnection, constants: Sequence[Any]) -> list[Any]:
    """Return the values of constants, as DuckDB has them; None for all if one has none."""
    if not constants:
        return []
    [(text,)] = connection.execute("select json_serialize_sql('select 1')").fetchall()
    tree = json.loads(text)
    tree["statements"][0]["node"]["select_list"] = copy.deepcopy(list(constants))
    try:
        [row] = connection.execute("select * from json_execute_serialized_sql(?)", [json.dumps(tree)]).fetchall()
    except duckdb.Error:
        return [None] * len(constants)  # the query itself says what is wrong
    return list(row)


def _as_column(value: Any, kind: DataType) -> Any:
    """Return a constant as a value of the column that it is compared with; None where DuckDB would compare them as
    another type."""
    match kind:
        case Boolean():
            return value if isinstance(value, bool) else None
        case Int(bits):
            whole = isinstance(value, int) and not isinstance(value, bool)
            return value if whole and -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None
        case Decimal(precision, scale):
            return _as_decimal(value, precision, scale)
        case String():
            return value if isinstance(value, str) else None
        case Date():
            if isinstance(value, str):
                return _parsed(value, "date")
            return value if type(value) is date else None
        case Timestamp():
            return _as_time(value, "timestamp", zone=False)
        case TimestampTz():
            return _as_time(value, "timestamptz", zone=True)
    return None


def _as_decimal(value: Any, precision: int, scale: int) -> Number | None:
    if isinstance(value, bool) or not isinstance(value, int | Number):
        return None
    number = Number(value)
    if not number.is_finite() or number != round(number, scale) or abs(number) >= Number(10) ** (precision - scale):
        return None
    return number.quantize(Number(1).scaleb(-scale))


def _as_time(value: Any, kind: str, *, zone: bool) -> datetime | None:
    parsed = _parsed(value, kind) if isinstance(value, str) else value
    if type(parsed) is date:
        parsed = datetime.combine(parsed, time())
    if not isinstance(parsed, datetime):
        return None
    parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    return parsed if zone else parsed.replace(tzinfo=None)


def _parsed(text: str, kind: str) -> Any:
    """Return a text as DuckDB reads it; None if it does not, or if Python has no such time."""
    with duckdb.connect(":memory:", config={"enable_external_access": "false"}) as connection:
        connection.execute("set timezone = 'UTC'")
        [(cast,)] = connection.execute(f"select try_cast(? as {kind})", [text]).fetchall()
    return cast if isinstance(cast, date) and cast.year not in (1, 9999) else None  # infinity is one of them
