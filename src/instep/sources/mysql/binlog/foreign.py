"""Foreign keys as the server tells them to a user who may read tables and nothing else.

`referential_constraints` shows a key to those who may do more with its table than select from it; the others see that
it is there, in `key_column_usage`, and its rules in the table's CREATE statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.sources.log import Ref
from instep.sources.mysql.connect import first, run
from instep.sources.mysql.sql import quoted_table

if TYPE_CHECKING:
    import pymysql

_RULES = (
    "SELECT r.constraint_schema, r.table_name, r.unique_constraint_schema, r.referenced_table_name, r.delete_rule,"
    " r.update_rule, r.unique_constraint_name, r.constraint_name FROM information_schema.referential_constraints r"
)
_KEYS = (
    "SELECT DISTINCT table_schema, table_name, referenced_table_schema, referenced_table_name, constraint_name"
    " FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT NULL"
)
_LINE = re.compile(
    r"^\s*CONSTRAINT (?P<name>.+) FOREIGN KEY \(.*\) REFERENCES .+ \((?P<columns>.*?)\)"
    r"(?: ON DELETE (?P<delete>[A-Z ]+?))?(?: ON UPDATE (?P<update>[A-Z ]+?))?,?$",
    re.MULTILINE,
)
_UNKNOWN = "CASCADE"


@dataclass(frozen=True)
class ForeignKey:
    """Foreign key: its effect on rows when the referenced row is deleted or changed, and the referenced columns."""

    delete: str = _UNKNOWN
    update: str = _UNKNOWN
    columns: frozenset[str] = frozenset()


def foreign_keys(connection: pymysql.Connection[Any], primary: Mapping[Ref, Set[str]]) -> list[tuple[Any, ...]]:
    """(child's schema, child, parent's schema, parent, rule of deletes, of updates, the parent's index) of each key
    that the user can see; `primary` are columns of primary keys. A key whose rules cannot be seen has the widest."""
    rows = run(connection, _RULES)
    names = {(schema, child, name) for schema, child, *_, name in rows}
    rest = [row for row in run(connection, _KEYS) if (row[0], row[1], row[4]) not in names]
    return [*(row[:-1] for row in rows), *_looked_up(connection, rest, primary)]


def _looked_up(
    connection: pymysql.Connection[Any], keys: Sequence[tuple[Any, ...]], primary: Mapping[Ref, Set[str]]
) -> Iterator[tuple[Any, ...]]:
    statements = {ref: _statement(connection, ref) for ref in dict.fromkeys((row[0], row[1]) for row in keys)}
    for schema, child, parents, parent, name in keys:
        key = parsed(statements[schema, child]).get(name, ForeignKey())
        by_key = bool(key.columns) and key.columns <= primary.get((parents, parent), frozenset())
        yield schema, child, parents, parent, key.delete, key.update, "PRIMARY" if by_key else None


def _statement(connection: pymysql.Connection[Any], ref: Ref) -> str:
    """That made the table; "" if the user may not see it."""
    from pymysql.err import Error

    try:
        return str(first(connection, f"SHOW CREATE TABLE {quoted_table(*ref)}")[1])
    except Error:
        return ""


def parsed(statement: str) -> dict[str, ForeignKey]:
    """Return the foreign keys of a CREATE TABLE statement as the server prints it, by name."""
    return {
        _unquoted(found["name"]): ForeignKey(
            found["delete"] or "RESTRICT",
            found["update"] or "RESTRICT",
            frozenset(map(_unquoted, found["columns"].split(", "))),
        )
        for found in _LINE.finditer(statement)
    }


def _unquoted(name: str) -> str:
    mark = name[:1]
    return name[1:-1].replace(mark * 2, mark) if mark in ("`", '"') and len(name) > 1 else name
