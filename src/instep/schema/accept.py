"""The accepted catalog after decisions: what was applied is taken over, what is held stays as it was.

Changes are a sequence, and some of it may be held. So each accepted table and column is followed under two
names: the one it has in the sequence (as if everything were applied) and the accepted one. A change finds its
object by the first and, if applied, edits the second. Where an applied change would need a name that a held one
still occupies, it is held too (see `settle`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from instep.schema.change import (
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
from instep.schema.policy import Decision
from instep.schema.table import Catalog, Column, Table
from instep.schema.types import DataType
from instep.schema.widen import promote

Lineage = Mapping[tuple[Ref, str], tuple[Ref, str]]
"""(table, column) before to (table, column) after; a column of "" stands for the table itself."""


def accept(decisions: Sequence[Decision], accepted: Catalog, source: Catalog) -> Catalog:
    """The accepted catalog after the `apply` decisions, under their modifiers.

    `removed: retain` marks as retained, `drop` removes. A name that returns revives what was retained under it if
    the type fits; otherwise the retained one becomes `<name>__v<n>`. A renamed table or column loses its alias
    (`names.assign` gives a new one), all others keep theirs. Key and cursor follow renames. The source's
    nullability is recorded as it is: destinations hold every column as nullable. Ids, native types and notes of
    what is unchanged are refreshed from `source`, and live columns take its order.
    """
    return _run(decisions, accepted).catalog(source)


def settle(decisions: Sequence[Decision], accepted: Catalog) -> tuple[Decision, ...]:
    """The decisions with those that cannot be applied yet held back (`effect` waiting), so that what is reported as
    applied is what `accept` does."""
    waiting = _run(decisions, accepted).waiting
    return tuple(
        replace(d, action="ignore", effect="waiting", why=waiting[i]) if i in waiting else d
        for i, d in enumerate(decisions)
    )


def lineage(decisions: Sequence[Decision], accepted: Catalog) -> Lineage:
    """Where each accepted table and column went; what was dropped is left out."""
    out: dict[tuple[Ref, str], tuple[Ref, str]] = {}
    for table in _run(decisions, accepted).tables:
        if table.origin is not None:
            out[table.origin, ""] = table.table.ref, ""
            out |= {(table.origin, c.origin): (table.table.ref, c.column.name) for c in table.columns if c.origin}
    return out


@dataclass
class _Column:
    """`now` is its name in the sequence, None once it is gone there; `origin` its accepted name before."""

    column: Column
    now: str | None
    origin: str = ""


@dataclass
class _Table:
    table: Table
    now: Ref | None
    origin: Ref | None = None
    columns: list[_Column] = field(default_factory=list)
    waits: bool = False

    @classmethod
    def of(cls, table: Table, *, accepted: bool) -> _Table:
        columns = [_Column(c, None if c.retained else c.name, c.name if accepted else "") for c in table.columns]
        return cls(table, None if table.retained else table.ref, table.ref if accepted else None, columns)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.column.name for c in sorted(self.columns, key=lambda c: c.column.key) if c.column.key)

    def find(self, now: str) -> _Column | None:
        return next((c for c in self.columns if c.now == now), None)

    def holder(self, name: str) -> _Column | None:
        """The column that has this accepted name."""
        return next((c for c in self.columns if c.column.name == name), None)

    def free(self, name: str) -> bool:
        """Makes room for `name`: a retained column there gets a version; False if a live one is there."""
        holder = self.holder(name)
        if holder is not None and holder.column.retained:
            taken = {c.column.name for c in self.columns}
            holder.column = replace(holder.column, name=_version(name, taken), alias="")
            return True
        return holder is None

    def add(self, column: Column) -> bool:
        """Adds it, or revives the retained column of its id, else of its name, if the type fits."""
        twin = next((c for c in self.columns if c.column.retained and column.id and c.column.id == column.id), None)
        for old in (twin, self.holder(column.name)):
            if old is None or not old.column.retained or (kind := _fitting(old.column, column)) is None:
                continue
            if old.column.name != column.name and not self.free(column.name):
                return False
            alias = old.column.alias if old.column.name == column.name else ""
            old.column, old.now = replace(column, type=kind, key=0, alias=alias), column.name
            return True
        if not self.free(column.name):
            return False
        if twin is not None:
            twin.column = replace(twin.column, id=None)
        self.columns.append(_Column(replace(column, key=0), column.name))
        return True

    def drop(self, found: _Column, *, retain: bool) -> None:
        if retain:
            found.column = replace(found.column, retained=True, key=0)
        else:
            self.columns.remove(found)

    def rekey(self, names: Sequence[str]) -> None:
        for c in self.columns:
            c.column = replace(c.column, key=names.index(c.now) + 1 if c.now in names else 0)

    def finished(self, source: Catalog) -> Table:
        now = None if self.waits or self.now is None else source.get(self.now)
        if now is None:
            return replace(self.table, columns=tuple(c.column for c in self.columns))
        columns = tuple(_refreshed(c, now) for c in _ordered(self.columns, now))
        return replace(self.table, id=now.id, kind=now.kind, columns=columns)


def _version(name: str, taken: Iterable[str]) -> str:
    taken = set(taken)
    number = 1
    while (versioned := f"{name}__v{number}") in taken:
        number += 1
    return versioned


def _fitting(old: Column, new: Column) -> DataType | None:
    """The type of the revived column: the wider of two of one family, else None. (String holds everything, and yet a
    number that returns as text is another column.)"""
    kind = promote(old.type, new.type)
    return kind if type(old.type) is type(new.type) and kind in (old.type, new.type) else None


def _refreshed(found: _Column, source: Table) -> Column:
    now = source.by_name.get(found.now) if found.now is not None else None
    if now is None or found.column.retained:
        return found.column
    column = replace(found.column, id=now.id)
    return replace(column, native=now.native, note=now.note) if now.type == column.type else column


def _ordered(columns: Sequence[_Column], source: Table) -> list[_Column]:
    """Columns that the source has, in its order; the others keep the neighbour before them."""
    place = {c.name: i for i, c in enumerate(source.columns)}
    known = iter(sorted((c for c in columns if c.now in place), key=lambda c: place[c.now or ""]))
    return [next(known) if c.now in place else c for c in columns]


@dataclass
class _Draft:
    tables: list[_Table]
    waiting: dict[int, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def catalog(self, source: Catalog) -> Catalog:
        return Catalog.of(t.finished(source) for t in self.tables)

    def find(self, now: Ref) -> _Table | None:
        return next((t for t in self.tables if t.now == now), None)

    def free(self, ref: Ref) -> bool:
        holder = next((t for t in self.tables if t.table.ref == ref), None)
        if holder is not None and holder.table.retained:
            name = _version(ref[1], (t.table.name for t in self.tables if t.table.schema == ref[0]))
            holder.table = replace(holder.table, name=name, alias="")
            return True
        return holder is None


def _run(decisions: Sequence[Decision], accepted: Catalog) -> _Draft:
    draft = _Draft([_Table.of(t, accepted=True) for t in accepted.tables])
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


def _rename_columns(draft: _Draft, group: list[tuple[int, Decision]]) -> None:
    change = group[0][1].change
    table = draft.find(change.table) if isinstance(change, ColumnRenamed) else None
    if table is None:
        return
    found = [
        (n, d, d.change, table.find(d.change.before.name)) for n, d in group if isinstance(d.change, ColumnRenamed)
    ]
    moves: dict[int, tuple[_Column, str]] = {}
    for number, decision, rename, column in found:
        if column is not None:
            column.now = rename.after.name
            if decision.applied:
                moves[number] = column, rename.after.name
    stuck = _stuck({n: (c.column.name, to) for n, (c, to) in moves.items()}, _live(table))
    for number in stuck:
        draft.waiting[number] = f"the name {moves.pop(number)[1]!r} is still used by a held change"
    movers = {id(c) for c, _ in moves.values()}
    for _, to in moves.values():
        holder = table.holder(to)
        if holder is not None and id(holder) not in movers:
            table.free(to)
    cursor = next((to for c, to in moves.values() if c.column.name == table.table.cursor), table.table.cursor)
    table.table = replace(table.table, cursor=cursor)
    for column, to in moves.values():
        column.column = replace(column.column, name=to, alias="")


def _live(table: _Table) -> set[str]:
    return {c.column.name for c in table.columns if not c.column.retained}


def _stuck(moves: dict[int, tuple[Any, Any]], live: set[Any]) -> list[int]:
    """The moves (old, new) whose new name stays taken, found until no more fall."""
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


def _rename_tables(draft: _Draft, group: list[tuple[int, Decision]]) -> None:
    found = [(n, d, d.change, draft.find(d.change.before.ref)) for n, d in group if isinstance(d.change, TableRenamed)]
    moves: dict[int, tuple[_Table, Ref]] = {}
    for number, decision, rename, table in found:
        if table is not None:
            table.now = rename.after.ref
            if decision.applied:
                moves[number] = table, rename.after.ref
    live = {t.table.ref for t in draft.tables if not t.table.retained}
    for number in _stuck({n: (t.table.ref, to) for n, (t, to) in moves.items()}, live):
        draft.waiting[number] = f"the name {moves.pop(number)[1][1]!r} is still used by a held change"
    movers = {t.table.ref for t, _ in moves.values()}
    for _, to in moves.values():
        if to not in movers:
            draft.free(to)
    for table, (schema, name) in moves.values():
        table.table = replace(table.table, schema=schema, name=name, alias="")


def _one(draft: _Draft, decision: Decision) -> str:
    """Takes one change into the draft; returns why an applied one has to wait, or nothing."""
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


def _add_table(draft: _Draft, new: Table) -> str:
    """A retained table of its id, else of its name, is revived if it has the same key."""
    if new.schema in draft.closed:
        return f"schema {new.schema!r} is not accepted"
    retained = [t for t in draft.tables if t.table.retained]
    twin = next((t for t in retained if new.id is not None and t.table.id == new.id), None)
    old = next((t for t in (twin, *(t for t in retained if t.table.ref == new.ref)) if t and t.key == new.key), None)
    if (old is None or old.table.ref != new.ref) and not draft.free(new.ref):
        return f"the name {new.path!r} is still used by a held change"
    if twin is not None and twin is not old:
        twin.table = replace(twin.table, id=None)
    if old is None:
        draft.tables.append(_Table.of(new, accepted=False))
        return ""
    alias = old.table.alias if old.table.ref == new.ref else ""
    old.table = replace(old.table, schema=new.schema, name=new.name, alias=alias, retained=False)
    _take_over(old, new, same=old.table.id == new.id, replaced=False)
    return ""


def _remove_table(draft: _Draft, change: TableRemoved, decision: Decision) -> None:
    table = draft.find(change.before.ref)
    if table is None:
        return
    table.now = None
    if decision.applied and decision.modifiers.removed == "drop":
        draft.tables.remove(table)
    elif decision.applied:
        table.table = replace(table.table, retained=True)


def _take_over(table: _Table, new: Table, *, same: bool, replaced: bool) -> None:
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
    table.now = new.ref
    table.table = replace(table.table, id=new.id, kind=new.kind, comment=new.comment, cursor=new.cursor)


def _edit(table: _Table, decision: Decision) -> str:
    change, applied = decision.change, decision.applied
    match change:
        case TableReplaced() if applied:
            table.table = replace(table.table, generation=table.table.generation + 1)
            _take_over(table, change.after, same=False, replaced=True)
        case TableReplaced():
            table.waits = True
        case TableComment() if applied:
            table.table = replace(table.table, comment=change.after)
        case ColumnAdded() if applied:
            return "" if table.add(change.after) else f"the name {change.after.name!r} is still used by a held change"
        case ColumnRemoved() if (found := table.find(change.before.name)) is not None:
            found.now = None
            if applied:
                table.drop(found, retain=decision.modifiers.removed == "retain")
        case _ if applied:
            return _alter(table, change)
    return ""


def _alter(table: _Table, change: Any) -> str:
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
            table.rekey(change.after)
        case KeyRemoved():
            table.rekey(())
        case CursorChanged():
            found = table.find(change.after or "")
            table.table = replace(table.table, cursor=found.column.name if found else None)
        case CursorRemoved():
            table.table = replace(table.table, cursor=None)
    return ""


def _set(table: _Table, now: str, **edits: Any) -> None:
    found = table.find(now)
    if found is not None:
        found.column = replace(found.column, **edits)
