"""Names, literals and name patterns as PostgreSQL's SQL."""

from __future__ import annotations

from collections.abc import Sequence

from instep.schema.planning.naming import quote
from instep.sources.patterns import glob_to_like, glob_to_regex, is_glob, is_regex, whole_regex

__all__ = ["literal", "matches", "quote", "quote_table", "select"]


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
    """A name that holds glob characters matches itself too."""
    exact = [f"= {literal(pattern)}"]
    if "[" in pattern:
        return [f"~ {literal(glob_to_regex(pattern))}", *exact]
    return [f"LIKE {literal(glob_to_like(pattern))}", *exact] if is_glob(pattern) else exact
