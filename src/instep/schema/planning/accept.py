"""The accepted catalog after decisions: what was applied is taken over, what is held stays as it was.

Changes are a sequence, and some of it may be held. So each accepted table and column is followed under two
names: the one it has in the sequence (as if everything were applied) and the accepted one. A change finds its
object by the first and, if applied, edits the second. Where an applied change would need a name that a held one
still occupies, it is held too (see `settle`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.changes.describe import (
    ColumnAdded,
    ColumnComment,
    ColumnDefault,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnRetyped,
    ColumnWidened,
    CursorChanged,
    CursorRemoved,
    KeyChanged,
    KeyRemoved,
    Ref,
    SchemaAdded,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
)
from instep.schema.planning.draft import CatalogDraft, ColumnDraft, TableDraft
from instep.schema.policy.policy import Decision

Lineage = Mapping[tuple[Ref, str], tuple[Ref, str]]
"""(table, column) before to (table, column) after; a column of "" stands for the table itself."""


def accept(decisions: Sequence[Decision], accepted: Catalog, source: Catalog) -> Catalog:
    """Return the accepted catalog after the `apply` decisions, under their modifiers.

    `removed: retain` marks as retained, `drop` removes. A name that returns undrops what was retained under it if
    the type fits; otherwise the retained one becomes `<name>__v<n>`. A renamed table or column loses its alias
    (`names.assign` gives a new one), all others keep theirs. Key and cursor follow renames. The source's
    nullability is recorded as it is: destinations hold every column as nullable. Ids, native types and notes of
    what is unchanged are refreshed from `source`, and live columns take its order.
    """
    return _run(decisions, accepted).catalog(source)


def settle(decisions: Sequence[Decision], accepted: Catalog) -> tuple[Decision, ...]:
    """Return the decisions with those that cannot be applied yet held back (`effect` waiting), so that what is reported
    as applied is what `accept` does."""
    waiting = _run(decisions, accepted).waiting
    return tuple(
        replace(d, action="ignore", effect="waiting", why=waiting[i]) if i in waiting else d
        for i, d in enumerate(decisions)
    )


def lineage(decisions: Sequence[Decision], accepted: Catalog) -> Lineage:
    """Return where each accepted table and column went; what was dropped is left out."""
    out: dict[tuple[Ref, str], tuple[Ref, str]] = {}
    for table in _run(decisions, accepted).tables:
        if table.origin is not None:
            out[table.origin, ""] = table.table.ref, ""
            out |= {(table.origin, c.origin): (table.table.ref, c.column.name) for c in table.columns if c.origin}
    return out


def _run(decisions: Sequence[Decision], accepted: Catalog) -> CatalogDraft:
    draft = CatalogDraft(accepted)
    for group in _groups(decisions):
        first = group[0][1].change
        if isinstance(first, TableRenamed):
            _rename_tables(draft, group)
        elif isinstance(first, ColumnRenamed):
            _rename_columns(draft, group)
        else:
            for number, decision in group:
                if why := _one(draft, decision):
                    draft.waiting[number] = why
    return draft


def _groups(decisions: Sequence[Decision]) -> Iterator[list[tuple[int, Decision]]]:
    """Renames that stand together are simultaneous."""

    def together(item: tuple[int, Decision]) -> object:
        number, change = item[0], item[1].change
        if isinstance(change, TableRenamed):
            return "tables"
        return change.table if isinstance(change, ColumnRenamed) else number

    return (list(group) for _, group in groupby(enumerate(decisions), together))


def _rename_columns(draft: CatalogDraft, group: list[tuple[int, Decision]]) -> None:
    change = group[0][1].change
    table = draft.find(change.table) if isinstance(change, ColumnRenamed) else None
    if table is None:
        return
    found = [
        (n, d, d.change, table.find(d.change.before.name)) for n, d in group if isinstance(d.change, ColumnRenamed)
    ]
    moves: dict[int, tuple[ColumnDraft, str]] = {}
    for number, decision, rename, column in found:
        if column is not None:
            column.now = rename.after.name
            if decision.applied:
                moves[number] = column, rename.after.name
    stuck = _stuck({n: (c.column.name, to) for n, (c, to) in moves.items()}, _live(table))
    for number in stuck:
        draft.waiting[number] = f"the name {moves.pop(number)[1]!r} is still used by a pending change"
    movers = {id(c) for c, _ in moves.values()}
    for _, to in moves.values():
        holder = table.holder(to)
        if holder is not None and id(holder) not in movers:
            table.free(to)
    cursor = next((to for c, to in moves.values() if c.column.name == table.table.cursor), table.table.cursor)
    table.table = replace(table.table, cursor=cursor)
    for column, to in moves.values():
        column.column = replace(column.column, name=to, alias="")


def _live(table: TableDraft) -> set[str]:
    return {c.column.name for c in table.columns if not c.column.retained}


def _stuck(moves: dict[int, tuple[Any, Any]], live: set[Any]) -> list[int]:
    """Return the moves (old, new) whose new name stays taken, found until no more fall."""
    going = dict(moves)
    stuck: list[int] = []
    while True:
        taken = live - {old for old, _ in going.values()}
        fallen = [n for n, (_, new) in going.items() if new in taken]
        if not fallen:
            return stuck
        stuck += fallen
        for number in fallen:
            del going[number]


def _rename_tables(draft: CatalogDraft, group: list[tuple[int, Decision]]) -> None:
    renames = [(n, d, d.change) for n, d in group if isinstance(d.change, TableRenamed)]
    found = [(n, d, t, c.after.ref) for n, d, c in renames if (t := draft.find(c.before.ref)) is not None]
    draft.follow([(table, to) for _, _, table, to in found])
    moves = {n: (table, to) for n, d, table, to in found if d.applied}
    live = {t.table.ref for t in draft.tables if not t.table.retained}
    for number in _stuck({n: (t.table.ref, to) for n, (t, to) in moves.items()}, live):
        draft.waiting[number] = f"the name {moves.pop(number)[1][1]!r} is still used by a pending change"
    draft.rename(list(moves.values()))


def _one(draft: CatalogDraft, decision: Decision) -> str:
    """Take one change into the draft; returns why an applied one has to wait, or nothing."""
    change, applied = decision.change, decision.applied
    match change:
        case SchemaAdded() if not applied:
            draft.closed.add(change.name)
        case TableAdded() if applied:
            return _add_table(draft, change.after)
        case TableRemoved():
            _remove_table(draft, change, decision)
        case _ if (table := draft.find(getattr(change, "table", None) or _ref(change))) is not None:
            return _edit(table, decision)
    return ""


def _ref(change: Any) -> Ref:
    return change.before.ref if isinstance(change, TableReplaced) else ("", "")


def _add_table(draft: CatalogDraft, new: Table) -> str:
    """A retained table of its id, else of its name, is undropped if it has the same key, in the same types where its
    history is kept."""
    if new.schema in draft.closed:
        return f"schema {new.schema!r} is not accepted"
    twin, there = draft.retained(new.id), draft.at(new.ref)
    old = next((t for t in (twin, there) if t and t.table.retained and _has_key_of(t, new)), None)
    if (old is None or old.table.ref != new.ref) and not draft.free(new.ref):
        return f"the name {new.path!r} is still used by a pending change"
    if twin is not None and twin is not old:
        twin.table = replace(twin.table, id=None)
    if old is None:
        draft.add(TableDraft.of(new, accepted=False))
        return ""
    if old.table.ref != new.ref:
        draft.rename([(old, new.ref)])
    old.table = replace(old.table, retained=False)
    draft.follow([(old, new.ref)])
    _take_over(old, new, same=old.table.id == new.id, replaced=False)
    return ""


def _has_key_of(old: TableDraft, new: Table) -> bool:
    """Versions of a row are told by its key, and know it in one type."""
    types = {c.column.name: c.column.type for c in old.columns}
    return old.key == new.key and (not old.table.history or all(types[k] == new.by_name[k].type for k in new.key))


def _remove_table(draft: CatalogDraft, change: TableRemoved, decision: Decision) -> None:
    table = draft.find(change.before.ref)
    if table is not None:
        retain = decision.modifiers.removed == "retain" if decision.applied else None
        draft.gone(table, retain=retain)


def _take_over(table: TableDraft, new: Table, *, same: bool, replaced: bool) -> None:
    """The columns of `new` in the place of those of `table`. Unless it is the `same` table, its old ids say nothing.
    All rows of a `replaced` one load anew, so that its columns take whatever type the new ones have."""
    live = {c.column.name: c for c in table.columns if replaced and not c.column.retained}
    for c in table.columns:
        c.column, c.now = replace(c.column, retained=True, key=0, id=c.column.id if same else None), None
    for column in new.columns:
        if (old := live.get(column.name)) is not None:
            old.column, old.now = replace(column, alias=old.column.alias), column.name
        else:
            table.add(column)
    table.rekey(new.key)
    table.table = replace(table.table, id=new.id, kind=new.kind, comment=new.comment, cursor=new.cursor)


def _edit(table: TableDraft, decision: Decision) -> str:
    change, applied = decision.change, decision.applied
    match change:
        case TableReplaced() if applied:
            extra = None if table.table.extra is None else ()
            table.table = replace(table.table, generation=table.table.generation + 1, extra=extra)
            _take_over(table, change.after, same=False, replaced=True)
        case TableReplaced():
            table.waits = True
        case TableComment() if applied:
            table.table = replace(table.table, comment=change.after)
        case ColumnAdded() if applied:
            return (
                "" if table.add(change.after) else (f"the name {change.after.name!r} is still used by a pending change")
            )
        case ColumnRemoved(before=before) if before.retained:
            if applied and (holder := table.holder(before.name)) is not None:
                table.drop(holder, retain=decision.modifiers.removed == "retain")
        case ColumnRemoved() if (found := table.find(change.before.name)) is not None:
            found.now = None
            if applied:
                table.drop(found, retain=decision.modifiers.removed == "retain")
        case ColumnRetyped() if not applied and (found := table.find(change.before.name)) is not None:
            found.retyped = True
        case _ if applied:
            return _alter(table, change)
    return ""


def _alter(table: TableDraft, change: Any) -> str:
    match change:
        case ColumnWidened() | ColumnNarrowed() | ColumnRetyped():
            _set(table, change.before.name, type=change.after.type, native=change.after.native, note=change.after.note)
        case ColumnNullability():
            _set(table, change.before.name, nullable=change.after.nullable)
        case ColumnDefault():
            _set(table, change.before.name, default=change.after.default)
        case ColumnComment():
            _set(table, change.before.name, comment=change.after.comment)
        case KeyChanged():
            if absent := [name for name in change.after if table.find(name) is None]:
                return f"the key needs {absent[0]!r}, which is not accepted"
            if retyped := [name for name in change.after if (c := table.find(name)) is not None and c.retyped]:
                return f"the key needs the new type of {retyped[0]!r}, which is not accepted"
            table.rekey(change.after)
            if change.before == change.after:
                extra = None if table.table.extra is None else ()
                table.table = replace(table.table, generation=table.table.generation + 1, extra=extra)
        case KeyRemoved():
            table.rekey(())
        case CursorChanged():
            found = table.find(change.after or "")
            table.table = replace(table.table, cursor=found.column.name if found else None)
        case CursorRemoved():
            table.table = replace(table.table, cursor=None)
    return ""


def _set(table: TableDraft, now: str, **edits: Any) -> None:
    found = table.find(now)
    if found is not None:
        found.column = replace(found.column, **edits)
