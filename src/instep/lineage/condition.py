"""A row filter: one condition over the columns of one table, as SQL of its source's dialect."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_ELSEWHERE = re.compile(
    r"pg_|lo_|dblink|txid_|nextval$|setval$|set_config$|query_to_|table_to_|schema_to_|database_to_|cursor_to_"
    r"|load_|readfile$|writefile$|edit$|fts|sleep$|benchmark$|get_lock$|release_|is_free_lock$|sys_|sp_|xp_",
    re.IGNORECASE,
)
"""Functions that write, wait, lock, or reach beyond the row. The source's rights hold beside this."""
_NO_CONDITION = (exp.Query, exp.Window, exp.AggFunc, exp.Star, exp.Placeholder, exp.Parameter, exp.PropertyEQ)
_ROW_ID = frozenset(("rowid", "_rowid_", "oid"))


def fault(text: str, dialect: str, columns: Collection[str] = ()) -> str:
    """Why `text` cannot be a filter, "" if it can as far as the text tells. `columns`: the only names that it may
    have, for a dialect that takes an unknown one for a text."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        tokens, found = sqlglot.tokenize(text, dialect), sqlglot.parse(text, dialect=dialect)
    except (SqlglotError, RecursionError) as error:
        return f"it is no condition: {_plain(error)}"
    if any(token.comments for token in tokens) or "\x00" in text:
        return "it has a comment"
    if len(found) != 1 or found[0] is None or any(t.token_type == sqlglot.TokenType.SEMICOLON for t in tokens):
        return "it is not one condition"
    condition = found[0]
    if not isinstance(condition, exp.Condition) or isinstance(condition, exp.Literal | exp.Null):
        return f"it is no condition but {condition.key}"
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
    known = {name.casefold() for name in columns} | _ROW_ID
    names = (c.name for c in condition.find_all(exp.Column)) if columns else ()
    return next((f"there is no column {name}" for name in names if name.casefold() not in known), "")


def _plain(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else "nested too deeply"
    return re.sub(r"\x1b\[\d*m", "", text).rstrip(".")
