"""Names, literals and name patterns as MySQL's SQL (sql_mode is empty: backslashes escape)."""

from __future__ import annotations

from collections.abc import Sequence

from instep.sources.patterns import glob_to_like, glob_to_regex, is_glob, is_regex, whole_regex

_EXACT = "COLLATE utf8mb4_bin"


def quoted(name: str) -> str:
    """Return an identifier, always quoted."""
    return "`" + name.replace("`", "``") + "`"


def quoted_table(schema: str, name: str) -> str:
    return f"{quoted(schema)}.{quoted(name)}"


def literal(text: str) -> str:
    """Return a string constant."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def matches(schema: str, table: str, database: str, include: Sequence[str], exclude: Sequence[str]) -> str:
    """Return a condition on the expressions `schema` and `table`: included by some pattern, or in `database` when no
    include is given, and excluded by none. A pattern without a schema is for tables of `database`."""
    home = f"{schema} = {literal(database)}"
    terms = [_schemas(schema, database, include)]
    if include:
        terms.append(f"({' OR '.join(_either(schema, table, home, p) for p in include)})")
    terms += [f"NOT {_either(schema, table, home, p)}" for p in exclude]
    return " AND ".join(terms)


def _schemas(schema: str, database: str, include: Sequence[str]) -> str:
    """Return which schemas are looked at: a constant list when the patterns name them, which spares the server the
    rest."""
    named = {p.partition(".")[0] for p in include if "." in p and not is_regex(p)}
    if any(is_glob(name) for name in named) or any(is_regex(p) for p in include):
        return f"{schema} NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys')"
    return f"{schema} IN ({', '.join(literal(name) for name in sorted({*named, database}))})"


def _either(schema: str, table: str, home: str, pattern: str) -> str:
    path = f"CONCAT({schema}, '.', {table})"
    return f"({_matches(path, pattern)} OR ({home} AND {_matches(table, pattern)}))"


def _matches(text: str, pattern: str) -> str:
    """Case matters, as in the names themselves. An exact text may hold the letters of a glob."""
    text = f"CONVERT({text} USING utf8mb4)"
    exact = f"{text} {_EXACT} = {literal(pattern)}"
    if is_regex(pattern):
        return f"{text} {_EXACT} REGEXP {literal(whole_regex(pattern))}"
    if "[" in pattern:
        return f"({exact} OR {text} {_EXACT} REGEXP {literal(glob_to_regex(pattern))})"
    if is_glob(pattern):
        return f"{text} {_EXACT} LIKE {literal(glob_to_like(pattern))}"
    return exact


def probing(ref: tuple[str, str]) -> str:
    """Return a query that needs the table's lock and reads nothing."""
    return f"SELECT 1 FROM {quoted_table(*ref)} LIMIT 0"  # noqa: S608
