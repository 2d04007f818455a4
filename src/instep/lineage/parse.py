"""SQL texts as trees."""

from __future__ import annotations

import logging

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from instep.errors import ProjectError

_READERS = (exp.Query, exp.Create, exp.Insert)
_QUIET = (exp.Use, exp.Set, exp.Drop, exp.Semicolon, exp.Comment, exp.Grant, exp.Alter)


class UnreadableSql(Exception):
    """The SQL cannot be understood; the text says where and why."""


def check_dialect(dialect: str) -> str:
    """`dialect`; ProjectError if there is none of that name."""
    known = sorted(name for name in sqlglot.Dialect.classes if name)
    if dialect not in known:
        raise ProjectError(f"unknown SQL dialect {dialect!r}", hint=f"use one of: {', '.join(known)}")
    return dialect


def parse(text: str, dialect: str) -> list[exp.Expr]:
    """Return the statements that read or define something; raises Unreadable, naming line and column."""
    logging.getLogger("sqlglot").setLevel(logging.ERROR)
    try:
        found = [s for s in sqlglot.parse(text, dialect=dialect) if s is not None and not isinstance(s, _QUIET)]
    except ParseError as error:
        raise UnreadableSql(_where(error)) from None
    except SqlglotError as error:
        raise UnreadableSql(f"it does not parse: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise UnreadableSql("it is nested too deeply") from None
    for statement in found:
        if not isinstance(statement, _READERS) or _defines_code(statement):
            raise UnreadableSql(f"{statement.key} statements are not understood")
    return found


def _defines_code(statement: exp.Expr) -> bool:
    """A function or procedure: what it reads is in its body."""
    return isinstance(statement, exp.Create) and statement.kind in ("FUNCTION", "PROCEDURE", "TRIGGER", "TASK")


def _where(error: ParseError) -> str:
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
