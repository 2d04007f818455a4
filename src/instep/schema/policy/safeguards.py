"""Safeguards of a detection under any policy: floods of new columns, and types that go back and forth; and types that a
person chooses for columns in place of the one that their source type maps to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from instep.errors import argument
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.types import DataType, String, parse
from instep.schema.changes.describe import Change, TableAdded, TableReplaced
from instep.schema.changes.kinds import ColumnAdded, ColumnNarrowed, ColumnRetyped, ColumnWidened, Ref
from instep.schema.policy.policy import TYPES as RULE
from instep.schema.policy.policy import Decision

COLUMN_LIMIT = "new column limit"
FLAPPING = "type flapping"
MAX_NEW_COLUMNS = 100
RETYPES, WINDOW = 3, 10
"""A type that has changed three times within the last ten schemas of the source, back to one that it had before."""

Retype = ColumnWidened | ColumnNarrowed | ColumnRetyped


def limit_columns(decisions: Sequence[Decision], most: int, pending: Collection[int] = ()) -> tuple[Decision, ...]:
    """Return the decisions with new columns beyond the first `most` of a table waiting for a review.

    `pending` are the places of those that an earlier detection has held: they wait until they are answered and are not
    counted. What a person has accepted is not counted either.
    """
    total = Counter(d.change.table for d in decisions if _is_new(d) and isinstance(d.change, ColumnAdded))
    let_in: Counter[Ref] = Counter()
    out = []
    for place, decision in enumerate(decisions):
        change = decision.change
        if not (_is_new(decision) and isinstance(change, ColumnAdded)):
            out.append(decision)
        elif place in pending or let_in[change.table] >= most:
            out.append(_over(decision, total[change.table], most))
        else:
            let_in[change.table] += 1
            out.append(decision)
    return tuple(out)


def _is_new(decision: Decision) -> bool:
    added = isinstance(decision.change, ColumnAdded)
    return added and decision.applied and not decision.by_person


def _over(decision: Decision, total: int, most: int) -> Decision:
    why = f"{total} columns of this table are new, {most} are accepted at once: approve it, or raise max_new_columns"
    return replace(decision, action="review", rule=COLUMN_LIMIT, effect="", why=why)


def retypes(decisions: Sequence[Decision]) -> bool:
    """Return whether a column's type is about to change."""
    return any(_retype(d) is not None for d in decisions)


def _retype(decision: Decision) -> Retype | None:
    change = decision.change
    automatic = decision.applied and not decision.by_person
    return change if automatic and isinstance(change, Retype) else None


def block_flapping(decisions: Sequence[Decision], past: Sequence[Catalog]) -> tuple[Decision, ...]:
    """Return the decisions with type changes of a column whose type goes back and forth waiting for a review. `past`:
    the source's catalogs, oldest first."""
    return tuple(_flapping(d, past) for d in decisions)


def _flapping(decision: Decision, past: Sequence[Catalog]) -> Decision:
    change = _retype(decision)
    if change is None:
        return decision
    types = [*_types(change.table, change.before.name, past[-WINDOW:]), change.after.type]
    times = sum(a != b for a, b in pairwise(types))
    if times < RETYPES or change.after.type not in types[: _last_run(types)]:
        return decision
    names = " -> ".join(str(b) for a, b in pairwise([None, *types]) if a != b)
    why = f"its type goes back and forth ({names}): it keeps the accepted type until this is approved"
    return replace(decision, action="review", rule=FLAPPING, effect="", why=why)


def _types(ref: Ref, name: str, past: Sequence[Catalog]) -> list[DataType]:
    tables = (catalog.get(ref) for catalog in past)
    return [t.by_name[name].type for t in tables if t and name in t.by_name]


def _last_run(types: Sequence[DataType]) -> int:
    """Return where the last type began to be the current one."""
    at = len(types) - 1
    while at > 0 and types[at - 1] == types[-1]:
        at -= 1
    return at


Types = Mapping[str, DataType]
_NUMBER = re.compile(r"(numeric|decimal|number|money)\b", re.IGNORECASE)
SUGGESTED = "decimal(38,9)"
CHOSEN = "type chosen by types: "
"""The beginning of a chosen type's note; the key of the choice follows, so that a rename keeps it."""


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
        if (chosen := of_table.get(name)) is not None:
            return name, chosen
    for types in (of_table, of_connection):
        for pattern, chosen in types.items():
            if column.native and _source_type(pattern).fullmatch(column.native):
                return pattern, chosen
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
    by_id = {c.id: c for c in accepted.live if c.id} if accepted else {}
    own_types, common = ({name: parse(text) for name, text in texts.items()} for texts in (of_table, of_connection))

    def typed(column: Column) -> Column:
        kind = chosen_type(column, own_types, common, by_id.get(column.id or ""))
        return column if kind is None else replace(column, type=kind[1], note=f"{CHOSEN}{kind[0]}")

    return replace(table, columns=tuple(map(typed, table.columns)))


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
    return (
        f": `instep table set-key {argument(table.path)} {argument(','.join(table.key))} --rebuild`"
        if table and table.key
        else ""
    )


def unknown_names(table: Table, of_table: Iterable[str]) -> Iterator[str]:
    """Yield the keys of a table's mapping that fit neither a column nor a source type of it."""
    for name in of_table:
        if name not in table.by_name and not any(_source_type(name).fullmatch(c.native) for c in table.columns):
            yield name


def lacks_own_type(column: Column) -> bool:
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
        if lacks_own_type(column):
            by_native.setdefault(column.native, []).append((path, column))
    return tuple(_sentence(native, columns_of_type) for native, columns_of_type in sorted(by_native.items()))


def _sentence(native: str, columns: list[tuple[str, Column]]) -> str:
    names = ", ".join(f"{path}.{column.name}" for path, column in columns)
    lands = "lands" if len(columns) == 1 else "land"
    choice = f"; to choose another type, set `types: {{{_key(native)}: {SUGGESTED}}}` in instep.yml"
    return f"{names} {lands} as text: {columns[0][1].note}{choice if _NUMBER.match(native) else ''}"


def _key(native: str) -> str:
    return native if re.fullmatch(r"\w+", native) else f'"{native}"'
