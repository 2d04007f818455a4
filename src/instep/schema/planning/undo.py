"""Undo applied changes: compute the accepted catalog without them.

Each change finds its object as it is called today, by source id, else by name. An object that has moved on since
gets in the way: nothing later is ever taken back with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from instep.errors import Conflict, IllegalChange, InstepError
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import (
    Change,
    ColumnAdded,
    ColumnComment,
    ColumnDefault,
    ColumnNarrowed,
    ColumnNullability,
    ColumnRemoved,
    ColumnRenamed,
    ColumnWidened,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    describe,
)
from instep.schema.changes.diff import differ
from instep.schema.changes.kinds import Ref
from instep.schema.planning.accept import accept, defer_blocked
from instep.schema.planning.naming import Naming, assign
from instep.schema.policy.policy import Decision, Modifiers, Removed

RULE = "undo"
NEVER: Mapping[str, str] = {
    "schema.added": "a schema holds no data itself: undo the tables that were added with it",
    "schema.removed": "a schema holds no data itself: undo the removal of its tables",
    "table.replaced": "the rows of the new generation are those of another table",
    "column.retyped": "its values were cast to the new type, and the column does not keep the earlier values",
    "column.reordered": "columns are in the source's order",
    "key.changed": "rows were reloaded under the new key",
    "key.removed": "rows were reloaded without the key",
    "cursor.changed": "rows were reloaded under the new cursor",
    "cursor.removed": "rows were reloaded without the cursor",
    "destination.drifted": "it only records a fact, and nothing was changed for it",
    "name.collided": "it only records a fact, and nothing was changed for it",
    "access.lost": "it only records a fact, and nothing was changed for it",
}
"""Kinds that cannot be taken back, and why."""
_LATER = "undo later changes of it first, or see `instep changes list --all`"
_NOTHING = "there is nothing to undo; its values stay as they were when the source dropped it"


@dataclass(frozen=True)
class Applied:
    """A change that was carried out: the accepted catalogs before and after it, and what a removal does at the
    destination."""

    id: str
    change: Change
    before: Catalog
    after: Catalog
    removed: Removed = "retain"


@dataclass(frozen=True)
class UndoPreview:
    """Preview of an undo. `decisions` are the reverse changes, in an order that `accept` can follow;
    `after` is the accepted catalog then, `done` the ids of the changes, in the same order. By id: `undropped` are the
    (table, column) that were dropped and come back, a column of "" is the table itself; `narrowed` those whose type
    gets smaller; `left` says what stays applied and why."""

    decisions: tuple[Decision, ...] = ()
    after: Catalog = field(default_factory=Catalog)
    done: tuple[str, ...] = ()
    undropped: Mapping[str, tuple[Ref, str]] = field(default_factory=dict)
    narrowed: Mapping[str, tuple[Ref, str]] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> frozenset[Ref]:
        """The accepted tables, by every name that they have on the way."""
        refs: set[Ref] = set()
        for change in (d.change for d in self.decisions):
            sides = (getattr(change, "before", None), getattr(change, "after", None))
            refs |= {side.ref for side in sides if isinstance(side, Table)}
            refs |= {change.table} if hasattr(change, "table") else set()
        return frozenset(refs)


@dataclass(frozen=True)
class _ReverseChange:
    """A reverse change, and what `accept` alone would not put back: the name at the destination, and of a column that
    was `mapped` to another of the source, what it was before."""

    change: Change
    removed: Removed = "retain"
    alias: str = ""
    undrops: bool = False
    mapped: Column | None = None


def undo(applied: Sequence[Applied], now: Catalog, naming: Naming) -> UndoPreview:
    """Return the accepted catalog `now` without `applied`.

    Raises IllegalChange for a change that nothing can take back and Conflict for one whose object has moved on; of
    several, those stay applied (`left`) as long as one can be taken back.
    """
    backs: dict[str, _ReverseChange] = {}
    left: dict[str, InstepError] = {}
    moved = _moves(applied, now)
    for change in applied:
        try:
            backs[change.id] = _back(change, now, moved)
        except (IllegalChange, Conflict) as error:
            left[change.id] = error
    if not backs:
        raise next(iter(left.values()))
    ordered = dict(sorted(backs.items(), key=lambda item: _rank(item[1].change)))
    return replace(_made(ordered, now, naming), left={i: error.message for i, error in left.items()})


def _made(ordered: Mapping[str, _ReverseChange], now: Catalog, naming: Naming) -> UndoPreview:
    backs = tuple(ordered.values())
    decisions = tuple(Decision(b.change, "apply", RULE, "taken back", Modifiers(removed=b.removed)) for b in backs)
    for decision in defer_blocked(decisions, now):
        if not decision.applied:
            raise Conflict(
                f"{describe(decision.change)}: {decision.why}", hint="first undo the change that took the name"
            )
    after = accept(decisions, now, Catalog())
    for back in backs:
        after = _finished(after, back)
    return UndoPreview(
        decisions,
        assign(after, naming),
        done=tuple(ordered),
        undropped={i: _place(b.change) for i, b in ordered.items() if b.undrops},
        narrowed={i: _place(b.change) for i, b in ordered.items() if isinstance(b.change, ColumnNarrowed)},
    )


def _finished(catalog: Catalog, back: _ReverseChange) -> Catalog:
    """Return the catalog with earlier names at the destination where they are free, and dropped objects as retained."""
    ref, name = _place(back.change)
    table = catalog.get(ref)
    if table is None or not (back.alias or back.undrops or back.mapped):
        return catalog
    if not name:
        alias = back.alias if back.alias not in {t.alias for t in catalog.tables if t.ref != ref} else ""
        return catalog.put(replace(table, alias=alias, retained=table.retained or back.undrops))
    alias = back.alias if back.alias not in {c.alias for c in table.columns if c.name != name} else ""
    edited = replace(table.by_name[name], alias=alias)
    edited = replace(edited, retained=True, key=0) if back.undrops else edited
    if (was := back.mapped) is not None:
        edited = replace(edited, id=was.id, retained=was.retained)
    return catalog.put(replace(table, columns=tuple(edited if c.name == name else c for c in table.columns)))


def _place(change: Change) -> tuple[Ref, str]:
    """Return (table, column) as they are called after the reverse change."""
    match change:
        case TableAdded() | TableRenamed():
            return change.after.ref, ""
        case TableRemoved():
            return change.before.ref, ""
        case ColumnAdded() | ColumnRenamed() | ColumnWidened() | ColumnNarrowed():
            return change.table, change.after.name
        case _:
            return getattr(change, "table", ("", "")), ""


def _rank(change: Change) -> int:
    kinds = (TableRemoved, TableRenamed, ColumnRemoved, ColumnRenamed)
    last = {ColumnAdded: len(kinds) + 1, TableAdded: len(kinds) + 2}
    return next((i for i, kind in enumerate(kinds) if isinstance(change, kind)), last.get(type(change), len(kinds)))


Names = Mapping[tuple[Ref, str], str]
Refs = Mapping[Ref, Ref]


def _moves(applied: Sequence[Applied], now: Catalog) -> tuple[Refs, Names]:
    """Return the names of tables and columns once the renames among `applied` are taken back, by their names today."""
    tables: dict[Ref, Ref] = {}
    columns: dict[tuple[Ref, str], str] = {}
    for item in applied:
        change = item.change
        if isinstance(change, TableRenamed) and (table := today(item.after.get(change.after.ref), now)):
            tables[table.ref] = change.before.ref
        if isinstance(change, ColumnRenamed) and (table := today(item.after.get(change.table), now)):
            columns[table.ref, change.after.name] = change.before.name
    return tables, columns


def today(table: Table | None, now: Catalog) -> Table | None:
    """Return the accepted table as it is now: by source id, else by name. None if it is gone or is another table."""
    if table is None:
        return None
    if table.id is not None and (same := next((t for t in now.tables if t.id == table.id), None)):
        return same
    same = now.get(table.ref)
    return None if same is None or differ(table.id, same.id) else same


def _column_today(column: Column, table: Table) -> Column | None:
    if column.id is not None and (same := next((c for c in table.columns if c.id == column.id), None)):
        return same
    same = table.by_name.get(column.name)
    return None if same is None or differ(column.id, same.id) else same


def _back(applied: Applied, now: Catalog, moved: tuple[Refs, Names]) -> _ReverseChange:
    change = applied.change
    if why := NEVER.get(change.kind):
        raise IllegalChange(
            f"{applied.id} cannot be undone: {describe(change)}: {why}", hint="see docs/reference/commands.md, undo"
        )
    match change:
        case TableAdded() | TableRemoved() | TableRenamed() | TableComment():
            return _TABLES[type(change)](applied, change, now, moved[0])
        case _:
            return _column(applied, change, now, moved)


def _table_added(applied: Applied, change: TableAdded, now: Catalog, _: Refs) -> _ReverseChange:
    table = _existing_table(applied, today(applied.after.get(change.after.ref), now), change.after.path)
    if table.retained:
        raise _since(applied, f"table {table.path} is no longer at the source and is only retained")
    retained = applied.before.get(change.after.ref)
    return _ReverseChange(TableRemoved(table), "retain" if retained else applied.removed)


def _table_removed(applied: Applied, change: TableRemoved, now: Catalog, _: Refs) -> _ReverseChange:
    ref = change.before.ref
    if applied.after.get(ref) is not None:
        raise _since(
            applied, f"nothing was removed: table {change.before.path} is unchanged at the destination", _NOTHING
        )
    table = applied.before.get(ref)
    if table is None:
        raise _since(applied, f"table {change.before.path} is not in the accepted schema before it")
    if (other := now.get(ref)) is not None or any(t.alias == table.alias for t in now.tables):
        raise _since(applied, f"the name {(other or table).path} has been used again since")
    return _ReverseChange(TableAdded(replace(table, alias="")), alias=table.alias, undrops=True)


def _table_renamed(applied: Applied, change: TableRenamed, now: Catalog, _: Refs) -> _ReverseChange:
    table = _existing_table(applied, today(applied.after.get(change.after.ref), now), change.after.path)
    if table.ref != change.after.ref:
        raise _since(applied, f"the table is now called {table.path}")
    old = applied.before.get(change.before.ref)
    back = replace(table, schema=change.before.schema, name=change.before.name)
    return _ReverseChange(TableRenamed(table, back), alias=old.alias if old else "")


def _table_comment(applied: Applied, change: TableComment, now: Catalog, moved: Refs) -> _ReverseChange:
    table = _existing_table(applied, today(applied.after.get(change.table), now), ".".join(change.table))
    if table.comment != change.after:
        raise _since(applied, f"the comment of {table.path} has changed since")
    return _ReverseChange(TableComment(moved.get(table.ref, table.ref), change.after, change.before))


_TABLES: Mapping[type[Any], Callable[[Applied, Any, Catalog, Refs], _ReverseChange]] = {
    TableAdded: _table_added,
    TableRemoved: _table_removed,
    TableRenamed: _table_renamed,
    TableComment: _table_comment,
}


def _column(applied: Applied, change: Any, now: Catalog, moved: tuple[Refs, Names]) -> _ReverseChange:
    path = ".".join(filter(None, change.table))
    was = applied.after.get(change.table)
    table = _existing_table(applied, today(was, now), path)
    if table.retained:
        raise _since(applied, f"table {table.path} is no longer at the source and is only retained")
    if was is not None and was.generation != table.generation:
        raise _since(applied, f"{path} is of a new generation since: its rows are those of another table")
    ref = moved[0].get(table.ref, table.ref)
    if isinstance(change, ColumnRemoved):
        before = applied.before.get(change.table) or next(
            (t for t in applied.before.tables if t.id and t.id == table.id), None
        )
        old = before.by_name.get(change.before.name) if before else None
        if old is None:
            raise _since(applied, f"column {table.path}.{change.before.name} is not in the accepted schema before it")
        retained = applied.after.get(change.table)
        if retained and any(c.retained and c.alias == old.alias for c in retained.columns):
            raise _since(applied, f"nothing was removed: column {old.name} of {table.path} keeps its values", _NOTHING)
        if any(old.name == c.name or old.alias == c.alias for c in table.columns):
            raise _since(applied, f"a column {old.name} has been added to {table.path} since")
        return _ReverseChange(
            ColumnAdded(ref, replace(old, alias=""), len(table.columns)), alias=old.alias, undrops=True
        )
    changed = was.by_name.get(change.after.name) if was else None
    column = changed and _column_today(changed, table)
    if column is None:
        raise _since(applied, f"column {path}.{change.after.name} no longer exists")
    if column.retained:
        raise _since(applied, f"column {path}.{column.name} is no longer at the source and is only retained")
    return _altered(applied, change, table, ref, column, moved[1].get((table.ref, column.name), column.name))


def _altered(applied: Applied, change: Any, table: Table, ref: Ref, now: Column, name: str) -> _ReverseChange:
    """Return the reverse of a column's change; `name` is the column's once renames are undone."""
    at = replace(now, name=name)
    match change:
        case ColumnAdded():
            return _column_added(applied, table, ref, now)
        case ColumnRenamed():
            if now.name != change.after.name:
                raise _since(applied, f"the column is now called {now.name}")
            old = applied.before.get(change.table)
            original = old.by_name.get(change.before.name) if old else None
            then = after.by_name.get(change.after.name) if (after := applied.after.get(change.table)) else None
            mapped = bool(original and then and (original.retained or original.id != then.id))
            back = ColumnRenamed(ref, now, replace(at, id=original.id) if original and mapped else at)
            return _ReverseChange(back, alias=original.alias if original else "", mapped=original if mapped else None)
        case ColumnWidened() | ColumnNarrowed():
            if now.type != change.after.type:
                raise _since(applied, f"column {now.name} is now of type {now.type}")
            reverse = ColumnNarrowed if isinstance(change, ColumnWidened) else ColumnWidened
            old_type = {f: getattr(change.before, f) for f in ("type", "native", "note")}
            return _ReverseChange(reverse(ref, at, replace(at, **old_type)))
        case ColumnNullability():
            return _ReverseChange(_fact(applied, change, ref, at, "nullable"))
        case ColumnDefault():
            return _ReverseChange(_fact(applied, change, ref, at, "default"))
        case ColumnComment():
            return _ReverseChange(_fact(applied, change, ref, at, "comment"))
    raise IllegalChange(f"{applied.id} cannot be undone: {describe(change)}")


def _column_added(applied: Applied, table: Table, ref: Ref, column: Column) -> _ReverseChange:
    if column.key or table.cursor == column.name:
        part = "key" if column.key else "cursor"
        raise _since(applied, f"column {column.name} is part of the {part} of {table.path}")
    was = applied.before.get(ref)
    undropped = bool(was and any(c.retained and c.alias == column.alias for c in was.columns))
    back = ColumnRemoved(ref, replace(column, key=0), table.columns.index(column))
    return _ReverseChange(back, "retain" if undropped else applied.removed)


def _fact(applied: Applied, change: Any, ref: Ref, at: Column, name: str) -> Change:
    if getattr(at, name) != getattr(change.after, name):
        raise _since(applied, f"column {at.name} has changed again since")
    back: Change = type(change)(ref, at, replace(at, **{name: getattr(change.before, name)}))
    return back


def _existing_table(applied: Applied, table: Table | None, path: str) -> Table:
    if table is None:
        raise _since(applied, f"table {path} no longer exists")
    return table


def _since(applied: Applied, why: str, hint: str = _LATER) -> Conflict:
    return Conflict(f"{applied.id} cannot be undone: {describe(applied.change)}: {why}", hint=hint)
