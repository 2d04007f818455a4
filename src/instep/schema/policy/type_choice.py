"""Types that a person chooses for columns in the place of the one that their source type maps to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType, String, parse
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnNarrowed,
    ColumnRetyped,
    ColumnWidened,
    TableAdded,
    TableReplaced,
)
from instep.schema.policy.policy import TYPES as RULE
from instep.schema.policy.policy import Decision

Types = Mapping[str, DataType]
_NUMBER = re.compile(r"(numeric|decimal|number|money)\b", re.IGNORECASE)
SUGGESTED = "decimal(38,9)"
CHOSEN = "type chosen by types: "
"""How the note of a column with a chosen type begins; the key of the choice follows, so that a rename keeps it."""


def chosen_type(
    column: Column, of_table: Types, of_connection: Types, accepted: Column | None = None
) -> tuple[str, DataType] | None:
    """Return the key and the type chosen for the column, or None.

    Looked up by its name in the table's mapping, by the name that it had when its type was chosen, by its source type
    there, then by its source type in the connection's. Source types are compared without case, with `*` and `?` as
    wildcards.
    """
    before = accepted.note.removeprefix(CHOSEN) if accepted and accepted.note.startswith(CHOSEN) else ""
    if accepted and accepted.native and _source_type(before).fullmatch(accepted.native):
        before = ""  # a source type, which may be another one by now
    for name in (column.name, before):
        if (found := of_table.get(name)) is not None:
            return name, found
    for types in (of_table, of_connection):
        for pattern, found in types.items():
            if column.native and _source_type(pattern).fullmatch(column.native):
                return pattern, found
    return None


@lru_cache(maxsize=256)
def _source_type(pattern: str) -> re.Pattern[str]:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.compile("".join(parts), re.IGNORECASE)


def with_types(
    table: Table, accepted: Table | None, of_table: Mapping[str, str], of_connection: Mapping[str, str]
) -> Table:
    """Return the source table with the types chosen for it, and for all tables of its connection. A column that was
    renamed keeps its type, where it has an id."""
    if not of_table and not of_connection:
        return table
    known = {c.id: c for c in accepted.live if c.id} if accepted else {}
    own, common = ({name: parse(text) for name, text in texts.items()} for texts in (of_table, of_connection))

    def one(column: Column) -> Column:
        found = chosen_type(column, own, common, known.get(column.id or ""))
        return column if found is None else replace(column, type=found[1], note=f"{CHOSEN}{found[0]}")

    return replace(table, columns=tuple(map(one, table.columns)))


def is_type_choice(change: Change) -> bool:
    """True if the change is the one from a column's accepted type to the type that a person chose for it."""
    return isinstance(change, ColumnWidened | ColumnNarrowed | ColumnRetyped) and change.after.note.startswith(CHOSEN)


def waits_for_rebuild(decisions: Iterable[Decision], accepted: Catalog) -> tuple[str, ...]:
    """Return a sentence for each column that a person has given a narrower type than the destination stores."""
    return tuple(
        f"{'.'.join(filter(None, change.table))}.{change.after.name}: `types` makes it {change.after.type}; its values "
        f"are stored as {change.before.type} until the table is rebuilt{_rebuild(accepted.get(change.table))}"
        for change in (d.change for d in decisions if d.applied and d.rule == RULE)
        if isinstance(change, ColumnNarrowed)
    )


def _rebuild(table: Table | None) -> str:
    return f": `instep table set-key {table.path} {','.join(table.key)} --rebuild`" if table and table.key else ""


def unknown_names(table: Table, of_table: Iterable[str]) -> Iterator[str]:
    """Yield the keys of a table's mapping that fit neither a column nor a source type of it."""
    for name in of_table:
        if name not in table.by_name and not any(_source_type(name).fullmatch(c.native) for c in table.columns):
            yield name


def is_text_for_want_of_a_type(column: Column) -> bool:
    """True if the source's type has no form of ours and its values are kept as text."""
    return isinstance(column.type, String) and bool(column.note) and not column.note.startswith(CHOSEN)


def added_columns(changes: Iterable[Change]) -> Iterator[tuple[str, Column]]:
    """Yield (table path, column) of each column that comes with these changes."""
    for change in changes:
        if isinstance(change, TableAdded | TableReplaced):
            yield from ((change.after.path, c) for c in change.after.columns)
        elif isinstance(change, ColumnAdded):
            yield ".".join(filter(None, change.table)), change.after


def text_sentences(columns: Iterable[tuple[str, Column]]) -> tuple[str, ...]:
    """Return a sentence for each source type whose columns (table path, column) are kept as text: which, why, and how
    to choose another type."""
    by_native: dict[str, list[tuple[str, Column]]] = {}
    for path, column in columns:
        if is_text_for_want_of_a_type(column):
            by_native.setdefault(column.native, []).append((path, column))
    return tuple(_sentence(native, found) for native, found in sorted(by_native.items()))


def _sentence(native: str, found: list[tuple[str, Column]]) -> str:
    names = ", ".join(f"{path}.{column.name}" for path, column in found)
    lands = "lands" if len(found) == 1 else "land"
    choice = f"; to choose another type, set `types: {{{_key(native)}: {SUGGESTED}}}` in instep.yml"
    return f"{names} {lands} as text: {found[0][1].note}{choice if _NUMBER.match(native) else ''}"


def _key(native: str) -> str:
    return native if re.fullmatch(r"\w+", native) else f'"{native}"'
