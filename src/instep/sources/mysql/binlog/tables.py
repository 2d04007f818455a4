"""Tables whose changes are all in the binary log, and the reason why others' are not.

Foreign keys as the server tells them to a user who may read tables and nothing else.

`referential_constraints` shows a key to those who may do more with its table than select from it; the others see that
it is there, in `key_column_usage`, and its rules in the table's CREATE statement.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instep.sources.log import FollowedTable, Ref
from instep.sources.mysql.binlog.collect import CascadingTables
from instep.sources.mysql.binlog.values import KeyColumn
from instep.sources.mysql.connect import first, run
from instep.sources.mysql.types import literal, quoted_table

if TYPE_CHECKING:
    import pymysql


_TABLES = "SELECT table_schema, table_name, table_type, engine, table_rows FROM information_schema.tables WHERE {where}"
_COLUMNS = (
    "SELECT table_schema, table_name, column_name, column_type, character_set_name, column_key"
    " FROM information_schema.columns WHERE {where} ORDER BY table_schema, table_name, ordinal_position"
)
_ENGINES = frozenset({"innodb", "myisam", "aria", "rocksdb", "tokudb", "memory"})
_QUIET = ("RESTRICT", "NO ACTION")


@dataclass(frozen=True)
class BinlogTable:
    """A table as the catalog has it; `unique`: the columns of its primary key; `rows`: about how many it has."""

    ref: Ref
    kind: str
    engine: str
    columns: tuple[KeyColumn, ...]
    unique: frozenset[str]
    rows: int = 0

    def places(self, key: Sequence[str]) -> tuple[int, ...]:
        names = [c.name for c in self.columns]
        return tuple(names.index(k) for k in key)

    def reason_not_followable(self, key: Sequence[str], *, full: bool) -> str:
        """Return why changes of the table cannot be followed by this key (source columns). `full`: the log has whole
        rows."""
        if not key:
            return "its key has no source"
        if self.kind == "VIEW":
            return "it is a view, which has no log"
        if self.kind != "BASE TABLE":
            return f"it is {self.kind.lower()}: its rows are logged with columns that the catalog does not show"
        if self.engine not in _ENGINES:
            return f"its engine is {self.engine or 'not known'}: not all that changes its rows is logged"
        if not set(key) <= {c.name for c in self.columns}:
            return "a column of its key cannot be seen"
        if not full and not set(key) <= self.unique:
            return (
                f"the log names its rows by its primary key, not by {', '.join(key)}: "
                "SET GLOBAL binlog_row_image = FULL;"
            )
        return ""

    def shape(self, key: Sequence[str]) -> dict[str, str]:
        """Return the shape on which its positions rest: its key, and the type of each column."""
        text = json.dumps([self.ref, sorted(key)])
        kinds = {f"c:{c.name}": f"{c.native} {c.charset}" for c in self.columns}
        return {"key": hashlib.sha256(text.encode()).hexdigest()[:16], **kinds}


@dataclass(frozen=True)
class LogTables:
    """Tables of the log that exist, and the tables that they follow by foreign keys."""

    tables: Mapping[Ref, BinlogTable] = field(default_factory=dict)
    parents: Mapping[Ref, CascadingTables] = field(default_factory=dict)

    def followed(self, ref: Ref, key: Sequence[str], *, full: bool) -> FollowedTable:
        table = self.tables.get(ref)
        if table is None:
            return FollowedTable(why="it is gone")
        return FollowedTable(table.shape(key), table.reason_not_followable(key, full=full))


def log_tables(connection: pymysql.Connection[Any], refs: Iterable[Ref]) -> LogTables:
    pairs = ", ".join(f"({literal(s)}, {literal(n)})" for s, n in refs)
    if not pairs:
        return LogTables()
    where = f"(table_schema, table_name) IN ({pairs})"
    columns: dict[Ref, list[KeyColumn]] = {}
    unique: dict[Ref, set[str]] = {}
    for schema, name, column, native, charset, key in run(connection, _COLUMNS.format(where=where)):
        columns.setdefault((schema, name), []).append(KeyColumn(column, _text(native), charset or ""))
        if key == "PRI":
            unique.setdefault((schema, name), set()).add(column)
    tables = {
        (s, n): BinlogTable(
            (s, n),
            kind,
            (engine or "").lower(),
            tuple(columns.get((s, n), ())),
            frozenset(unique.get((s, n), ())),
            int(rows or 0),
        )
        for s, n, kind, engine, rows in run(connection, _TABLES.format(where=where))
    }
    return LogTables(tables, cascades(foreign_keys(connection, unique)))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def cascades(rows: Iterable[Sequence[Any]]) -> dict[Ref, CascadingTables]:
    """Return the tables that each one follows, given (child's schema, child, parent's schema, parent, rule of
    deletes, of updates, the parent's index), over as many steps as there are."""
    edges: dict[Ref, tuple[set[Ref], set[Ref]]] = {}
    otherwise = set()
    for schema, child, parents, parent, delete, update, index in rows:
        followed = edges.setdefault((schema, child), (set(), set()))
        if delete not in _QUIET:
            followed[0].add((parents, parent))
        if update not in _QUIET:
            followed[1].add((parents, parent))
        if index != "PRIMARY":
            otherwise.add((parents, parent))
    _spread([side for sides in edges.values() for side in sides], edges)
    return {ref: CascadingTables(frozenset(d), frozenset(u), frozenset(u - otherwise)) for ref, (d, u) in edges.items()}


def _spread(sides: Sequence[set[Ref]], edges: Mapping[Ref, tuple[set[Ref], set[Ref]]]) -> None:
    """Add what parents follow themselves, until nothing is new."""
    grew = True
    while grew:
        grew = False
        for one in sides:
            more = {r for parent in one if parent in edges for side in edges[parent] for r in side} - one
            one |= more
            grew = grew or bool(more)


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
    """Return (child's schema, child, parent's schema, parent, rule of deletes, of updates, the parent's index) of
    each key that the user can see; `primary` are columns of primary keys. A key whose rules are hidden counts as the
    widest."""
    rows = run(connection, _RULES)
    names = {(schema, child, name) for schema, child, *_, name in rows}
    hidden = [row for row in run(connection, _KEYS) if (row[0], row[1], row[4]) not in names]
    return [*(row[:-1] for row in rows), *_looked_up(connection, hidden, primary)]


def _looked_up(
    connection: pymysql.Connection[Any], keys: Sequence[tuple[Any, ...]], primary: Mapping[Ref, Set[str]]
) -> Iterator[tuple[Any, ...]]:
    statements = {ref: _statement(connection, ref) for ref in dict.fromkeys((row[0], row[1]) for row in keys)}
    for schema, child, parents, parent, name in keys:
        key = parsed(statements[schema, child]).get(name, ForeignKey())
        by_key = bool(key.columns) and key.columns <= primary.get((parents, parent), frozenset())
        yield schema, child, parents, parent, key.delete, key.update, "PRIMARY" if by_key else None


def _statement(connection: pymysql.Connection[Any], ref: Ref) -> str:
    """Return the table's CREATE statement; "" if the user may not see it."""
    from pymysql.err import Error

    try:
        return str(first(connection, f"SHOW CREATE TABLE {quoted_table(*ref)}")[1])
    except Error:
        return ""


def parsed(statement: str) -> dict[str, ForeignKey]:
    """Return the foreign keys of a CREATE TABLE statement as the server prints it, by name."""
    return {
        _unquoted(match["name"]): ForeignKey(
            match["delete"] or "RESTRICT",
            match["update"] or "RESTRICT",
            frozenset(map(_unquoted, match["columns"].split(", "))),
        )
        for match in _LINE.finditer(statement)
    }


def _unquoted(name: str) -> str:
    mark = name[:1]
    return name[1:-1].replace(mark * 2, mark) if mark in ("`", '"') and len(name) > 1 else name
