"""The accepted catalog after decisions: applied changes are included, pending ones are not.

Changes are a sequence, and some of it may be held. So each accepted table and column is followed under two
names: the one it has in the sequence (as if everything were applied) and the accepted one. A change finds its
object by the first and, if applied, edits the second. Where an applied change would need a name that a held one
still occupies, it is held too (see `defer_blocked`).

The accepted catalog in the making: each table and column under two names (see `accept`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import fitting
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
    SchemaRemoved,
    TableAdded,
    TableComment,
    TableRemoved,
    TableRenamed,
    TableReplaced,
    table_of,
)
from instep.schema.policy.policy import Decision
from instep.schema.policy.presets import Effect

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


def defer_blocked(decisions: Sequence[Decision], accepted: Catalog) -> tuple[Decision, ...]:
    """Return the decisions with those that cannot be applied yet held back, so that what is reported as applied is what
    `accept` does. They wait (`effect`), but for those of a schema or table that nobody is asked about."""
    draft = _run(decisions, accepted)
    pending = _pending_tables(decisions, draft.waiting)
    deferred: dict[int, tuple[str, Effect]] = {n: (why, "waiting") for n, why in draft.waiting.items()}
    for number, why, of in _without_tables(draft, decisions):
        deferred.setdefault(number, (why, "waiting" if of in pending else ""))
    return tuple(
        replace(d, action="ignore", why=deferred[n][0], effect=deferred[n][1]) if n in deferred else d
        for n, d in enumerate(decisions)
    )


def _without_tables(draft: CatalogDraft, decisions: Sequence[Decision]) -> Iterator[tuple[int, str, Ref | tuple[str]]]:
    """Yield the accepted additions of schemas without an accepted table and of columns without their table, and the
    removals of schemas that keep one: (number of the decision, why it is held, the table or schema that it waits
    for)."""
    schemas = {t.table.schema for t in draft.tables if not t.table.retained}
    for number, decision in enumerate(decisions):
        match decision.change:
            case _ if not decision.applied:
                pass
            case SchemaAdded(name=name) if name not in schemas:
                yield number, f"no table of schema {name!r} is accepted", (name,)
            case SchemaRemoved(name=name) if name in schemas:
                yield number, f"the removal of a table of schema {name!r} is not accepted", (name,)
            case ColumnAdded(table=table) if draft.find(table) is None:
                yield number, f"table {'.'.join(filter(None, table))!r} is not accepted", table


def _pending_tables(decisions: Sequence[Decision], waiting: Collection[int]) -> set[Ref | tuple[str]]:
    """Return the tables that are added or removed once an answer has come, and the names of their schemas."""
    refs = {
        table_of(d.change) or ("", "")
        for n, d in enumerate(decisions)
        if isinstance(d.change, TableAdded | TableRemoved) and (d.needs_review or d.effect == "waiting" or n in waiting)
    }
    return {*refs, *((ref[0],) for ref in refs)}


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
    """Yield decisions one by one, but neighbouring renames together: they are simultaneous."""

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
    answers = [
        (n, d, d.change, table.find(d.change.before.name)) for n, d in group if isinstance(d.change, ColumnRenamed)
    ]
    moves: dict[int, tuple[ColumnDraft, str]] = {}
    for number, decision, rename, column in answers:
        if column is not None:
            column.now = rename.after.name
            if decision.applied:
                moves[number] = column, rename.after.name
    stuck = _blocked_moves({n: (c.column.name, to) for n, (c, to) in moves.items()}, _live(table))
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


def _blocked_moves(moves: dict[int, tuple[Any, Any]], live: set[Any]) -> list[int]:
    """Return the moves (old, new) whose new name stays taken, repeated until no more are blocked."""
    going = dict(moves)
    stuck: list[int] = []
    while True:
        used = live - {old for old, _ in going.values()}
        fallen = [n for n, (_, new) in going.items() if new in used]
        if not fallen:
            return stuck
        stuck += fallen
        for number in fallen:
            del going[number]


def _rename_tables(draft: CatalogDraft, group: list[tuple[int, Decision]]) -> None:
    renames = [(n, d, d.change) for n, d in group if isinstance(d.change, TableRenamed)]
    tables = [(n, d, t, c.after.ref) for n, d, c in renames if (t := draft.find(c.before.ref)) is not None]
    draft.follow([(table, to) for _, _, table, to in tables])
    moves = {n: (table, to) for n, d, table, to in tables if d.applied}
    live = {t.table.ref for t in draft.tables if not t.table.retained}
    for number in _blocked_moves({n: (t.table.ref, to) for n, (t, to) in moves.items()}, live):
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
    """Add a table; return why it cannot be added, else "". A retained table of its id, else of its name, is
    undropped if it has the same key, in the same types where its history is kept."""
    if new.schema in draft.closed:
        return f"schema {new.schema!r} is not accepted"
    twin, namesake = draft.retained(new.id), draft.at(new.ref)
    old = next((t for t in (twin, namesake) if t and t.table.retained and _has_key_of(t, new)), None)
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
    """Return whether both have the same key, in the same types where history is kept: its versions are identified by
    key."""
    types = {c.column.name: c.column.type for c in old.columns}
    return old.key == new.key and (not old.table.history or all(types[k] == new.by_name[k].type for k in new.key))


def _remove_table(draft: CatalogDraft, change: TableRemoved, decision: Decision) -> None:
    table = draft.find(change.before.ref)
    if table is not None:
        retain = decision.modifiers.removed == "retain" if decision.applied else None
        draft.remove_table(table, retain=retain)


def _take_over(table: TableDraft, new: Table, *, same: bool, replaced: bool) -> None:
    """Put the columns of `new` in the place of those of `table`. Unless it is the `same` table, its old ids mean
    nothing. All rows of a `replaced` table are loaded again, so its columns take the new types."""
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
        case ColumnRemoved() if (column := table.find(change.before.name)) is not None:
            column.now = None
            if applied:
                table.drop(column, retain=decision.modifiers.removed == "retain")
        case ColumnRetyped() if not applied and (column := table.find(change.before.name)) is not None:
            column.retyped = True
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
            column = table.find(change.after or "")
            table.table = replace(table.table, cursor=column.column.name if column else None)
        case CursorRemoved():
            table.table = replace(table.table, cursor=None)
    return ""


def _set(table: TableDraft, now: str, **edits: Any) -> None:
    column = table.find(now)
    if column is not None:
        column.column = replace(column.column, **edits)


@dataclass
class ColumnDraft:
    """A column while changes are being accepted."""

    column: Column
    now: str | None
    """Name in the sequence, None once it is gone there."""
    origin: str = ""
    """Accepted name before."""
    retyped: bool = False
    """True if it has another type in the sequence, which is not accepted."""


@dataclass
class TableDraft:
    """A table while changes are being accepted."""

    table: Table
    now: Ref | None
    """Name in the sequence, as for columns."""
    origin: Ref | None = None
    columns: list[ColumnDraft] = field(default_factory=list)
    waits: bool = False
    """True if it was replaced in the source, and that is not accepted."""

    @classmethod
    def of(cls, table: Table, *, accepted: bool) -> TableDraft:
        columns = [ColumnDraft(c, None if c.retained else c.name, c.name if accepted else "") for c in table.columns]
        return cls(table, None if table.retained else table.ref, table.ref if accepted else None, columns)

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.column.name for c in sorted(self.columns, key=lambda c: c.column.key) if c.column.key)

    def find(self, now: str) -> ColumnDraft | None:
        return next((c for c in self.columns if c.now == now), None)

    def holder(self, name: str) -> ColumnDraft | None:
        """Return the column that has this accepted name."""
        return next((c for c in self.columns if c.column.name == name), None)

    def free(self, name: str) -> bool:
        """Make room for `name`: a retained column there gets a version; False if a live one is there."""
        holder = self.holder(name)
        if holder is not None and holder.column.retained:
            used = {c.column.name for c in self.columns}
            holder.column = replace(holder.column, name=version(name, used), alias="")
            return True
        return holder is None

    def add(self, column: Column) -> bool:
        """Add it, or undrops the retained column of its id, else of its name, if the type fits."""
        twin = next((c for c in self.columns if c.column.retained and column.id and c.column.id == column.id), None)
        for old in (twin, self.holder(column.name)):
            if old is None or not old.column.retained or (kind := fitting(old.column.type, column.type)) is None:
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
        self.columns.append(ColumnDraft(replace(column, key=0), column.name))
        return True

    def drop(self, draft: ColumnDraft, *, retain: bool) -> None:
        if retain:
            draft.column = replace(draft.column, retained=True, key=0)
        else:
            self.columns.remove(draft)

    def rekey(self, names: Sequence[str]) -> None:
        for c in self.columns:
            c.column = replace(c.column, key=names.index(c.now) + 1 if c.now in names else 0)

    def finished(self, source: Catalog) -> Table:
        now = None if self.waits or self.now is None else source.get(self.now)
        if now is None:
            return replace(self.table, columns=tuple(c.column for c in self.columns))
        columns = tuple(_refreshed(c, now) for c in _ordered(self.columns, now))
        if (now.id, now.kind, columns) == (self.table.id, self.table.kind, self.table.columns):
            return self.table
        return replace(self.table, id=now.id, kind=now.kind, columns=columns)


def version(name: str, used: Iterable[str]) -> str:
    used = set(used)
    number = 1
    while (versioned := f"{name}__v{number}") in used:
        number += 1
    return versioned


def _refreshed(draft: ColumnDraft, source: Table) -> Column:
    now = source.by_name.get(draft.now) if draft.now is not None else None
    if now is None or draft.column.retained:
        return draft.column
    column = draft.column
    native, note = (now.native, now.note) if now.type == column.type else (column.native, column.note)
    if (now.id, native, note) == (column.id, column.native, column.note):
        return column
    return replace(column, id=now.id, native=native, note=note)


def _ordered(columns: Sequence[ColumnDraft], source: Table) -> list[ColumnDraft]:
    """Return columns that the source has, in its order; the others keep the neighbour before them."""
    place = {c.name: i for i, c in enumerate(source.columns)}
    sorted_columns = iter(sorted((c for c in columns if c.now in place), key=lambda c: place[c.now or ""]))
    return [next(sorted_columns) if c.now in place else c for c in columns]


class CatalogDraft:
    """The tables by the names of both kinds. `closed` are schemas that are not accepted, `waiting` says by the number
    of a decision why it cannot be applied yet."""

    def __init__(self, accepted: Catalog) -> None:
        self.waiting: dict[int, str] = {}
        self.closed: set[str] = set()
        self._now: dict[Ref, TableDraft] = {}
        self._ref: dict[Ref, TableDraft] = {}
        self._retained: dict[str, TableDraft] = {}
        for table in accepted.tables:
            self.add(TableDraft.of(table, accepted=True))

    @property
    def tables(self) -> tuple[TableDraft, ...]:
        return tuple(self._ref.values())

    def catalog(self, source: Catalog) -> Catalog:
        return Catalog.of(t.finished(source) for t in self.tables)

    def add(self, table: TableDraft) -> None:
        self._ref[table.table.ref] = table
        if table.now is not None:
            self._now[table.now] = table
        if table.table.retained and table.table.id is not None:
            self._retained[table.table.id] = table

    def find(self, now: Ref) -> TableDraft | None:
        """Find a table by its name in the sequence."""
        return self._now.get(now)

    def at(self, ref: Ref) -> TableDraft | None:
        """Find a table by its accepted name."""
        return self._ref.get(ref)

    def retained(self, id: str | None) -> TableDraft | None:
        """Return the retained table of this id."""
        retained = self._retained.get(id) if id is not None else None
        return retained if retained is not None and retained.table.retained and retained.table.id == id else None

    def remove_table(self, table: TableDraft, *, retain: bool | None) -> None:
        """Record that a table is no longer in the source. `retain` None: that is not accepted."""
        if table.now is not None:
            del self._now[table.now]
        table.now = None
        if retain is False:
            del self._ref[table.table.ref]
        elif retain:
            table.table = replace(table.table, retained=True)
            self.add(table)

    def follow(self, moves: Sequence[tuple[TableDraft, Ref]]) -> None:
        """Rename tables as at the source, all at once."""
        for table, _ in moves:
            if table.now is not None:
                del self._now[table.now]
        for table, now in moves:
            table.now = now
            self._now[now] = table

    def rename(self, moves: Sequence[tuple[TableDraft, Ref]]) -> None:
        """Rename accepted tables, all at once, without aliases; what is retained under one of their new names gets a
        version."""
        movers = {t.table.ref for t, _ in moves}
        for _, ref in moves:
            if ref not in movers:
                self.free(ref)
        for table, _ in moves:
            del self._ref[table.table.ref]
        for table, (schema, name) in moves:
            table.table = replace(table.table, schema=schema, name=name, alias="")
            self._ref[schema, name] = table

    def free(self, ref: Ref) -> bool:
        """Make room for `ref`: a retained table there gets a version; False if a live one is there."""
        holder = self._ref.get(ref)
        if holder is None:
            return True
        if not holder.table.retained:
            return False
        name = version(ref[1], {name for schema, name in self._ref if schema == ref[0]})
        self.rename([(holder, (ref[0], name))])
        return True
