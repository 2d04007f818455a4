"""Parse SQL texts into trees.

A row filter: one condition over the columns of one table, as SQL of its source's dialect.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from instep.errors import ProjectError

_READERS = (exp.Query, exp.Create, exp.Insert)
_QUIET = (exp.Use, exp.Set, exp.Drop, exp.Semicolon, exp.Comment, exp.Grant, exp.Alter)


class UnreadableSql(Exception):
    """The SQL cannot be understood; the text says where and why."""


def check_dialect(dialect: str) -> str:
    """Return `dialect`; raises ProjectError for an unknown one."""
    dialects = sorted(name for name in sqlglot.Dialect.classes if name)
    if dialect not in dialects:
        raise ProjectError(f"unknown SQL dialect {dialect!r}", hint=f"use one of: {', '.join(dialects)}")
    return dialect


def parse(text: str, dialect: str) -> list[exp.Expr]:
    """Return the statements that read or define something; raises Unreadable, naming line and column."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        statements = [s for s in sqlglot.parse(text, dialect=dialect) if s is not None and not isinstance(s, _QUIET)]
    except ParseError as error:
        raise UnreadableSql(_location(error)) from None
    except SqlglotError as error:
        raise UnreadableSql(f"it does not parse: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UnreadableSql("it is nested too deeply") from None
    for statement in statements:
        if not isinstance(statement, _READERS) or _defines_code(statement):
            raise UnreadableSql(f"{statement.key} statements are not understood")
    return statements


def _defines_code(statement: exp.Expr) -> bool:
    """Return whether the statement defines a function or procedure: what it reads is in its body."""
    return isinstance(statement, exp.Create) and statement.kind in ("FUNCTION", "PROCEDURE", "TRIGGER", "TASK")


def _location(error: ParseError) -> str:
    first = error.errors[0] if error.errors else {}
    what = str(first.get("description") or error).splitlines()[0].rstrip(".")
    place = f"line {first['line']}, column {first['col']}: " if first.get("line") else ""
    return f"{place}it does not parse: {what}"


def target(statement: exp.Expr) -> tuple[str, ...]:
    """Return the name of what a statement defines or fills; empty for a plain query."""
    this = statement.this if isinstance(statement, exp.Create | exp.Insert) else None
    table = this.this if isinstance(this, exp.Schema) else this
    return parts(table) if isinstance(table, exp.Table) else ()


def parts(table: exp.Table) -> tuple[str, ...]:
    return tuple(part.name for part in table.parts if part.name)


_ELSEWHERE = re.compile(
    r"pg_|lo_|dblink|txid_|nextval$|setval$|set_config$|query_to_|table_to_|schema_to_|database_to_|cursor_to_"
    r"|ts_rewrite$|ts_stat$|xpath_table$|crosstab|connectby$|currval$|lastval$|currtid|current_query$|setseed$"
    r"|loread$|lowrite$|brin_|gin_clean_|binary_upgrade_|amvalidate$|plpgsql_"
    r"|load_|readfile$|writefile$|edit$|fts|zeroblob$|randomblob$|bfilename$"
    r"|sleep$|benchmark$|get_lock$|release_|is_(free|used)_lock$|(master|source)_(pos|gtid)_wait$|wait_|sys_|sp_|xp_"
    r"|spider_|wsrep_|group_replication_|asynchronous_|keyring_|audit_|mysql_|version_tokens_|service_"
    r"|file_|csv(read|write)$|link_schema$|(cancel|abort)_session$|runscript$|system\$|open(rowset|query|datasource)$"
    r"|http(get|post|put|delete|uri)|x?dburitype$|xmltype$",
    re.IGNORECASE,
)
"""Functions that write, wait, lock, run a text as a query, or reach beyond the row. The source's rights hold beside
this."""
_NO_CONDITION = (
    *(exp.Query, exp.Window, exp.AggFunc, exp.Star, exp.Placeholder, exp.Parameter, exp.SessionParameter),
    *(exp.PropertyEQ, exp.NextValueFor, exp.ReadCSV, exp.ReadParquet),
)
_ROW_ID = frozenset(("rowid", "_rowid_", "oid"))


def filter_error(text: str, dialect: str, columns: Collection[str] = ()) -> str:
    """Return why `text` cannot be a filter, "" if it can as far as the text tells.

    `columns`: the only names that it may have, for a dialect that takes an unknown one for a text.
    """
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tokens, parsed = sqlglot.tokenize(text, dialect), sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        return f"it is not a condition: {_plain(error)}"
    if any(token.comments for token in tokens) or "\x00" in text:
        return "it has a comment"
    if len(parsed) != 1 or parsed[0] is None or any(t.token_type == sqlglot.TokenType.SEMICOLON for t in tokens):
        return "it is not one condition"
    condition = parsed[0]
    if not isinstance(condition, exp.Condition) or isinstance(condition, exp.Literal | exp.Null):
        return f"it is not a condition but {condition.key}"
    return next(filter(None, (_node(node) for node in condition.walk())), "") or _unknown(condition, columns)


def _node(node: exp.Expr) -> str:
    if isinstance(node, exp.Query):
        return "it has a query in it: a view at the source can join tables"
    if isinstance(node, _NO_CONDITION):
        return f"{node.sql()} says nothing of one row"
    if isinstance(node, exp.Column) and node.table:
        return f"{node.sql()} names a table: write {node.name}"
    name = node.name if isinstance(node, exp.Anonymous) else ""
    if (name and _ELSEWHERE.match(name)) or (isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func)):
        return f"the function {name or node.sql()} may do more than look at a row"
    return ""


def _unknown(condition: exp.Expr, columns: Collection[str]) -> str:
    known_names = {name.casefold() for name in columns} | _ROW_ID
    names = (c.name for c in condition.find_all(exp.Column)) if columns else ()
    return next((f"there is no column {name}" for name in names if name.casefold() not in known_names), "")


def _plain(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else "nested too deeply"
    return re.sub(r"\x1b\[\d*m", "", text).rstrip(".")
