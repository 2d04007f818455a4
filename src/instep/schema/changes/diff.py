"""The difference of two catalogs: tables and columns are paired by identity, then by name, and pairs are compared; and
manual changes of a destination table, against how it was left, column by column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, TypeVar

from instep.schema.catalog.catalog import FOUND, Catalog, Column, Table
from instep.schema.catalog.promotion import narrows, same_order, widens
from instep.schema.catalog.types import DataType
from instep.schema.changes.kinds import (
    Change,
    ColumnAdded,
    ColumnComment,
    ColumnDefault,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnReordered,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    KeyChanged,
    KeyRemoved,
    Ref,
    SchemaAdded,
    SchemaRemoved,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)

T = TypeVar("T", Table, Column)

WEAK = "~"
"""An id that starts so proves sameness only: another id under the same name proves nothing (MySQL's InnoDB table
ids, which TRUNCATE, OPTIMIZE and many ALTERs change)."""


@dataclass(frozen=True)
class TablePairs:
    """Pairing of the tables of two catalogs; `same` and `replaced` hold (before, after)."""

    same: tuple[tuple[Table, Table], ...]
    replaced: tuple[tuple[Table, Table], ...]
    removed: tuple[Table, ...]
    added: tuple[Table, ...]


@dataclass(frozen=True)
class ColumnPairs:
    """Pairing of the columns of two states of a table; `same` holds (before, after)."""

    same: tuple[tuple[Column, Column], ...]
    removed: tuple[Column, ...]
    added: tuple[Column, ...]


def pair(before: Catalog, after: Catalog) -> TablePairs:
    """Return tables by id, then by schema and name; retained tables take no part.

    A table whose id is on both sides pairs by id only. Two tables of one name with different ids, or of different
    kinds, are `replaced`. The ids must be of one identity: the caller strips them when the server moved.
    """
    pairs, lost, new = _by_id([t for t in before.tables if not t.retained], [t for t in after.tables if not t.retained])
    pairs, swapped, lost, new = _without_swaps(pairs, lost, new)
    pairs, others = [p for p in pairs if p[0].kind == p[1].kind], [p for p in pairs if p[0].kind != p[1].kind]
    lost, new = [*lost, *(a for a, _ in others)], [*new, *(b for _, b in others)]
    named = {t.ref: t for t in new}
    again = [(t, named[t.ref]) for t in lost if t.ref in named]
    again_refs = {a.ref for a, _ in again}
    return TablePairs(
        tuple(pairs + swapped + [p for p in again if not _is_another(*p)]),
        tuple(p for p in again if _is_another(*p)),
        tuple(t for t in lost if t.ref not in again_refs),
        tuple(t for t in new if t.ref not in again_refs),
    )


_SHADOW = "_{}_gho", "_{}_new"
_OLD = re.compile(r"_++(?P<name>.+?)_(\d{14}_)?(del|old)")


def _without_swaps(
    pairs: list[tuple[Table, Table]], lost: list[Table], new: list[Table]
) -> tuple[list[tuple[Table, Table]], list[tuple[Table, Table]], list[Table], list[Table]]:
    """Return tables whose id went to a name that gh-ost or pt-osc gives to what they replace, while another table has
    theirs: that one is the same table, altered. Column ids of two tables are not compared. What is left over is removed
    or added like any other table. (pairs, swapped, lost, new)"""
    moved = {a.ref: (a, b) for a, b in pairs if a.ref != b.ref and _is_old(a, b)}
    fresh = {t.ref: t for t in new if t.ref in moved}
    shadows = {b.ref: (a, b) for a, b in pairs if b.ref in moved and a.ref != b.ref and _is_shadow(a, b)}
    swapped = {ref: fresh[ref] if ref in fresh else shadows[ref][1] for ref in moved if ref in fresh or ref in shadows}
    if not swapped:
        return pairs, [], lost, new
    gone = [moved[ref] for ref in swapped] + [shadows[ref] for ref in swapped if ref in shadows]
    return (
        [p for p in pairs if p not in gone],
        [(_without_ids(moved[ref][0]), after) for ref, after in swapped.items()],
        [*lost, *(shadows[ref][0] for ref in swapped if ref in shadows)],
        [*(t for t in new if t.ref not in swapped), *(moved[ref][1] for ref in swapped)],
    )


def _is_old(before: Table, after: Table) -> bool:
    match = _OLD.fullmatch(after.name)
    return before.schema == after.schema and match is not None and match["name"] == before.name


def _is_shadow(before: Table, after: Table) -> bool:
    return before.schema == after.schema and before.name in [text.format(after.name) for text in _SHADOW]


def _without_ids(table: Table) -> Table:
    return replace(table, columns=tuple(replace(c, id=None) for c in table.columns))


def _is_another(before: Table, after: Table) -> bool:
    return before.kind != after.kind or differ(before.id, after.id)


def differ(before: str | None, after: str | None) -> bool:
    """Return whether two ids under one name prove two things; without an id on one side names decide."""
    return before is not None and after is not None and before != after and not after.startswith(WEAK)


def pair_columns(before: Table, after: Table) -> ColumnPairs:
    """Return columns by id, then by name where one side has no id; retained columns take no part."""
    pairs, lost, new = _by_id(before.live, after.live)
    named = {c.name: c for c in new}
    again = [(c, named[c.name]) for c in lost if c.name in named and not differ(c.id, named[c.name].id)]
    again_names = {a.name for a, _ in again}
    return ColumnPairs(
        tuple(pairs + again),
        tuple(c for c in lost if c.name not in again_names),
        tuple(c for c in new if c.name not in again_names),
    )


def _by_id(before: Sequence[T], after: Sequence[T]) -> tuple[list[tuple[T, T]], list[T], list[T]]:
    """Return (pairs of equal id, the rest before, the rest after); an id that one side has twice pairs nothing."""
    old, new = _unique(before), _unique(after)
    both = old.keys() & new.keys()
    pairs = [(old[i], new[i]) for i in old if i in both]
    return pairs, [t for t in before if t.id not in both], [t for t in after if t.id not in both]


def _unique(things: Iterable[T]) -> dict[str, T]:
    by_id: dict[str, T] = {}
    twice: set[str] = set()
    for thing in things:
        if thing.id is not None:
            twice.update([thing.id] if thing.id in by_id else ())
            by_id[thing.id] = thing
    return {i: t for i, t in by_id.items() if i not in twice}


def diff(before: Catalog, after: Catalog) -> tuple[Change, ...]:
    """Return the changes from `before` to `after`, in an order that `apply` can follow; stable for equal input.

    What `before` retains and `after` lacks is no change; a retained name that returns is an addition. Tables that are
    in no schema ("") bring none and leave none. Only facts are compared: see `bare`.
    """
    pairs = pair(before, after)
    old, new = (frozenset(t.schema for t in c.tables if not t.retained) for c in (before, after))
    same = sorted((p for p in pairs.same if not _equal(*p)), key=lambda p: p[1].ref)
    renamed = [(a, b) for a, b in same if a.ref != b.ref]
    return (
        *(SchemaAdded(name) for name in sorted(new - old) if name),
        *(TableRemoved(t) for t in sorted(pairs.removed, key=_ref)),
        *(TableRenamed(a, replace(a, schema=b.schema, name=b.name)) for a, b in renamed),
        *(TableReplaced(a, b) for a, b in sorted(pairs.replaced, key=lambda p: p[1].ref)),
        *(change for a, b in same for change in _edits(a, b)),
        *(TableAdded(t) for t in sorted(pairs.added, key=_ref)),
        *(SchemaRemoved(name) for name in sorted(old - new) if name),
    )


def _ref(table: Table) -> Ref:
    return table.ref


_TABLE_FACTS = attrgetter("schema", "name", "cursor", "comment")
_COLUMN_FACTS = attrgetter("name", "type", "id", "nullable", "key", "default", "comment", "retained")


def _equal(before: Table, after: Table) -> bool:
    """Return whether it is plain at a glance that nothing changed: a catalog of 10,000 tables mostly is as it was."""
    return (
        len(before.columns) == len(after.columns)
        and bool(_TABLE_FACTS(before) == _TABLE_FACTS(after))
        and all(_COLUMN_FACTS(a) == _COLUMN_FACTS(b) for a, b in zip(before.columns, after.columns, strict=True))
    )


def _edits(before: Table, after: Table) -> Iterator[Change]:
    """Yield the changes of a table that is on both sides, its rename aside."""
    ref, pairs = after.ref, pair_columns(before, after)
    names = {a.name: b.name for a, b in pairs.same}
    key_removed = bool(before.key) and (not after.key or any(name not in names for name in before.key))
    if key_removed:
        yield KeyRemoved(ref, before.key)
    cursor_removed = before.cursor is not None and (after.cursor is None or before.cursor not in names)
    if before.cursor is not None and cursor_removed:
        yield CursorRemoved(ref, before.cursor)
    # as they were, under the new names
    key = () if key_removed else tuple(names[name] for name in before.key)
    cursor = None if before.cursor is None or cursor_removed else names[before.cursor]
    yield from _dropped(ref, before, pairs.removed)
    yield from (ColumnRenamed(ref, a, replace(a, name=b.name)) for a, b in pairs.same if a.name != b.name)
    for a, b in pairs.same:
        yield from _alterations(ref, replace(a, name=b.name), b)
    yield from _reordering(ref, before, after, names)
    yield from _added(ref, after, pairs.added)
    if key and _tells_otherwise(before, after, names):
        yield KeyChanged(ref, key, key)
    if key != after.key:
        yield KeyChanged(ref, key, after.key)
    if cursor != after.cursor or _orders_otherwise(before, after, cursor):
        yield CursorChanged(ref, cursor, after.cursor)
    if before.comment != after.comment:
        yield TableComment(ref, before.comment, after.comment)


def _tells_otherwise(before: Table, after: Table, names: Mapping[str, str]) -> bool:
    """Return whether a column of the key has another type: values of the one need not fit the other, nor stay
    distinct."""
    pairs = ((before.by_name[name].type, after.by_name[names[name]].type) for name in before.key)
    return any(a != b and type_change(a, b) is ColumnRetyped for a, b in pairs)


def _orders_otherwise(before: Table, after: Table, cursor: str | None) -> bool:
    """Return whether the cursor stays and its values compare otherwise: what it has read no longer says anything."""
    if cursor is None or before.cursor is None:
        return False
    return not same_order(before.by_name[before.cursor].type, after.by_name[cursor].type)


def _dropped(ref: Ref, before: Table, removed: Sequence[Column]) -> Iterator[Change]:
    """Yield the last first, so that each position is that of the table as it was and as it is found."""
    names = {c.name for c in removed}
    for position, column in reversed(list(enumerate(before.live))):
        if column.name in names:
            yield ColumnRemoved(ref, replace(column, key=0), position)


def _added(ref: Ref, after: Table, added: Sequence[Column]) -> Iterator[Change]:
    names = {c.name for c in added}
    for position, column in enumerate(after.live):
        if column.name in names:
            yield ColumnAdded(ref, replace(column, key=0), position)


def _alterations(ref: Ref, before: Column, after: Column) -> Iterator[Change]:
    """Yield the changes of a column; each starts from the column as the one before left it."""
    now = before
    if now.type != after.type:
        retyped = replace(now, type=after.type, native=after.native, note=after.note)
        yield (ColumnRetyped if after.note == FOUND else type_change(now.type, after.type))(ref, now, retyped)
        now = retyped
    if now.nullable != after.nullable:
        yield ColumnNullability(ref, now, now := replace(now, nullable=after.nullable))
    if now.default != after.default:
        yield ColumnDefault(ref, now, now := replace(now, default=after.default))
    if now.comment != after.comment:
        yield ColumnComment(ref, now, replace(now, comment=after.comment))


def type_change(before: DataType, after: DataType) -> type[ColumnWidened | ColumnNarrowed | ColumnRetyped]:
    """Return the kind of change that another type is."""
    if widens(before, after):
        return ColumnWidened
    return ColumnNarrowed if narrows(before, after) else ColumnRetyped


def _reordering(ref: Ref, before: Table, after: Table, names: Mapping[str, str]) -> Iterator[Change]:
    stayed = frozenset(names.values())
    old = tuple(names[c.name] for c in before.live if c.name in names)
    new = tuple(c.name for c in after.live if c.name in stayed)
    if old != new:
        yield ColumnReordered(ref, old, new)


def bare(catalog: Catalog) -> Catalog:
    """Return `catalog` without bookkeeping, as `diff` compares it: aliases, native types, notes, generations and
    names of extra columns are cleared, and what is retained is left out."""
    return Catalog.of(_bare(t) for t in catalog.tables if not t.retained)


def _bare(table: Table) -> Table:
    columns = tuple(replace(c, alias="", native="", note="") for c in table.live)
    return replace(table, alias="", generation=0, extra=None, columns=columns)


What = Literal["gone", "added", "renamed", "replaced", "widened", "retyped", "required", "table gone"]
_BACK = "it is restored, with its values where they are kept, and the table is read again"
LOADABLE = ("added", "widened")
"""The table can go on being loaded as it is: nothing has to be put back."""


@dataclass(frozen=True)
class Difference:
    """A difference between a destination table and its record."""

    what: What
    column: str
    """Column as the destination was left with it ("" for the table)."""
    text: str
    """Difference that was found."""
    repair: str
    """Effect of approving it."""


def differences(left: Table, table: Table | None, prefix: str) -> tuple[Difference, ...]:
    """Return how `table` differs from the table as it was `left`; columns that bear the system `prefix` do not count,
    nor do order and comments. Columns pair by the source column recorded beside them, then by name."""
    if table is None:
        gone = Difference("table gone", "", "the table is gone", "it is created again and reloaded")
        return (gone,)
    return tuple(_columns(left, table, prefix))


def _columns(left: Table, table: Table, prefix: str) -> Iterator[Difference]:
    columns = [c for c in table.columns if not c.name.startswith(prefix)]
    recorded = {c.alias: c for c in columns if c.alias}
    named = {c.name: c for c in columns if not c.alias}
    for old in left.columns:
        if old.name.startswith(prefix):
            continue
        new = recorded.pop(old.alias, None) if old.alias else None
        if new is not None:
            yield from _same(old, new)
        elif (other := named.pop(old.name, None)) is None:
            yield Difference("gone", old.name, f"column {old.name} is gone", _BACK)
        elif old.alias:
            yield Difference(
                "replaced",
                old.name,
                f"column {old.name} was dropped and recreated as {other.type}",
                f"it is taken as {old.name} {old.type}, and the table is read again",
            )
        else:
            yield from _same(old, other)
    for new in (*recorded.values(), *named.values()):
        must = " (it takes no NULL: make it optional first)" if not new.nullable else ""
        yield Difference(
            "required" if must else "added",
            new.name,
            f"column {new.name} {new.type} was added{must}",
            "it stays, and its new rows have NULL in it",
        )


def _same(old: Column, new: Column) -> Iterator[Difference]:
    if old.name != new.name:
        yield Difference(
            "renamed", old.name, f"column {old.name} is called {new.name}", f"it is called {old.name} again"
        )
    if old.type != new.type and widens(old.type, new.type):
        yield Difference(
            "widened", old.name, f"column {old.name} is {new.type} instead of {old.type}", "the wider type stays"
        )
    elif old.type != new.type:
        yield Difference(
            "retyped",
            old.name,
            f"column {old.name} is {new.type} instead of {old.type}",
            f"its values are cast to {old.type}, and the table is read again",
        )
    if old.nullable and not new.nullable:
        yield Difference("required", old.name, f"column {old.name} no longer accepts NULL", "it accepts NULL again")


def detail(differences: tuple[Difference, ...]) -> str:
    """Return what differs and what each answer does, in one line."""
    what = "; ".join(d.text for d in differences)
    repairs = "; ".join(dict.fromkeys(d.repair for d in differences))
    if all(d.what in LOADABLE for d in differences):
        return f"{what} (approve: {repairs}; reject: the same, without another review)"
    return f"{what} (approve: {repairs}; reject: this table is not loaded, the others continue)"
