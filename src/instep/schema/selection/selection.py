"""The selection: what is on, off, excluded or hashed, by patterns and by explicit choices that outrank them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from instep.errors import SchemaError
from instep.schema.catalog.catalog import ROW_ID, Catalog, Column, Table
from instep.schema.catalog.globs import glob_regex
from instep.schema.catalog.regex import check_regex, expression
from instep.schema.changes.kinds import Ref


@dataclass(frozen=True)
class Pattern:
    """Matches `schema.table` or `schema.table.column`, whole and with case.

    An exact name, a glob (`*`, `?`, `[a-z]`; `*` crosses dots) or, after `re:`, a regular expression. A name
    that holds glob characters matches itself too. Raises SchemaError for a regular expression that is wrong,
    long, or could take long on some name.
    """

    text: str

    def __post_init__(self) -> None:
        if not self.text:
            raise SchemaError("an empty pattern matches nothing", hint="name a table, or write * for all")
        if self.is_regex:
            check_regex(self.text[3:])

    @property
    def is_regex(self) -> bool:
        return self.text.startswith("re:")

    @property
    def is_exact(self) -> bool:
        return not self.is_regex and not any(c in self.text for c in "*?[")

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return glob_regex(self.text)

    def matches(self, path: str) -> bool:
        if self.is_regex:
            return path == self.text or expression(self.text[3:]).fullmatch(path)
        return path == self.text or (not self.is_exact and self._compiled.fullmatch(path) is not None)

    def __str__(self) -> str:
        return self.text


def patterns(texts: Iterable[str]) -> tuple[Pattern, ...]:
    return tuple(map(Pattern, texts))


@dataclass(frozen=True)
class Selection:
    """`include` (empty: every table) and `exclude_tables` match tables, the other patterns columns.

    `on` and `off` are what a person chose, as exact `schema.table` or `schema.table.column`; they outrank patterns.
    `masked` are columns that a person has hashed, `schemas_on` and `schemas_off` the schemas that were switched.
    `kinds` are included by patterns; anything else, such as a view, only by its exact name.
    """

    include: tuple[Pattern, ...] = ()
    exclude_tables: tuple[Pattern, ...] = ()
    exclude_columns: tuple[Pattern, ...] = ()
    hashed: tuple[Pattern, ...] = ()
    on: frozenset[str] = frozenset()
    off: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset({"table"})
    masked: frozenset[str] = frozenset()
    schemas_on: frozenset[str] = frozenset()
    schemas_off: frozenset[str] = frozenset()

    @property
    def covers_columns(self) -> bool:
        """True if any column may be off or hashed."""
        return bool(self.hashed or self.masked or self.exclude_columns or self.off)


def is_on(selection: Selection, table: Table) -> tuple[bool, str]:
    """Return (whether the table is on, why): by its schema, an explicit choice, exclusion, inclusion, then its kind."""
    if table.schema in selection.schemas_off:
        return False, f"the schema {table.schema} is switched off"
    if table.path in selection.off:
        return False, "switched off"
    if table.path in selection.on:
        return True, "switched on"
    if out := _first(selection.exclude_tables, table.path):
        return False, f"excluded by {out}"
    named = _first((p for p in selection.include if p.text == table.path), table.path)
    if table.kind not in selection.kinds and not named:
        return False, f"a {table.kind.replace('_', ' ')}: include it by its exact name to read it"
    if named or not selection.include:
        return True, f"included by {named}" if named else "every table is included"
    pattern = _first(selection.include, table.path)
    return (True, f"included by {pattern}") if pattern else (False, "no include pattern matches it")


def column_is_on(selection: Selection, table: Table, column: Column) -> tuple[bool, str]:
    """Return (whether the column is read, why). A key column cannot be off: see `hashed`."""
    path = f"{table.path}.{column.name}"
    if path in selection.on:
        return True, "switched on"
    out = "switched off" if path in selection.off else ""
    if not out and (pattern := _column_pattern(selection.exclude_columns, path)):
        out = f"excluded by {pattern}"
    if out and column.key:
        return True, f"{out}, but it identifies rows: kept, hashed"
    return not out, out or "every column of a table that is on"


def hashed(selection: Selection, table: Ref, column: str) -> bool:
    """Return whether the values of a column that is read are to be hashed: by a pattern, or because it is off and kept
    as a key column, so that an excluded value never appears in clear."""
    path = ".".join(part for part in (*table, column) if part)
    if path in selection.masked or _column_pattern(selection.hashed, path):
        return True
    return path not in selection.on and (
        path in selection.off or bool(_column_pattern(selection.exclude_columns, path))
    )


def is_read_hashed(selection: Selection, table: Table, column: Column) -> bool:
    """Return whether the column is on, and its values are to be hashed."""
    return column_is_on(selection, table, column)[0] and hashed(selection, table.ref, column.name)


def select(selection: Selection, catalog: Catalog) -> Catalog:
    """Return the tables of `catalog` that are on, without the columns that are off."""
    return Catalog.of(select_columns(selection, t) for t in catalog.tables if is_on(selection, t)[0])


def select_columns(selection: Selection, table: Table) -> Table:
    """Return the table without the columns that are off; a cursor that is off is no cursor."""
    if not selection.exclude_columns and not selection.off:
        return table
    columns = tuple(c for c in table.columns if column_is_on(selection, table, c)[0])
    if len(columns) == len(table.columns):
        return table
    cursor = table.cursor if any(c.name == table.cursor for c in columns) else None
    return replace(table, columns=columns, cursor=cursor)


def unmatched(selection: Selection, catalog: Catalog) -> tuple[str, ...]:
    """Return the patterns and explicit choices that match nothing in `catalog`: often a name that was mistyped. Those
    that include tables are not among them."""
    tables = [t.path for t in catalog.tables]
    columns = [f"{t.path}.{c.name}" for t in catalog.tables for c in t.columns]
    missing = [
        *(p.text for p in selection.exclude_tables if not any(map(p.matches, tables))),
        *(p.text for p in (*selection.exclude_columns, *selection.hashed) if not any(map(p.matches, columns))),
        *sorted((selection.off | selection.masked).difference(tables, columns)),
    ]
    return tuple(dict.fromkeys(missing))


def _column_pattern(patterns: Iterable[Pattern], path: str) -> Pattern | None:
    """Return the pattern for a column. The one that numbers rows without a key has to be named exactly: it is in the
    key, and no value of the source."""
    is_ours = path.endswith(f".{ROW_ID}")
    return _first((p for p in patterns if p.is_exact) if is_ours else patterns, path)


def _first(patterns: Iterable[Pattern], path: str) -> Pattern | None:
    return next((p for p in patterns if p.matches(path)), None)
