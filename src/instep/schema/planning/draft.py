"""The accepted catalog in the making: each table and column under two names (see `accept`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.catalog.promotion import fitting
from instep.schema.changes.kinds import Ref


@dataclass
class ColumnDraft:
    """`now` is its name in the sequence, None once it is gone there; `origin` its accepted name before. `retyped`: it
    has another type in the sequence, which is not accepted."""

    column: Column
    now: str | None
    origin: str = ""
    retyped: bool = False


@dataclass
class TableDraft:
    """`now` as for columns; `waits`: it was replaced in the source, and that is not accepted."""

    table: Table
    now: Ref | None
    origin: Ref | None = None
    columns: list[ColumnDraft] = field(default_factory=list)
    waits: bool = False

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
            taken = {c.column.name for c in self.columns}
            holder.column = replace(holder.column, name=version(name, taken), alias="")
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

    def drop(self, found: ColumnDraft, *, retain: bool) -> None:
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


def version(name: str, taken: Iterable[str]) -> str:
    taken = set(taken)
    number = 1
    while (versioned := f"{name}__v{number}") in taken:
        number += 1
    return versioned


def _refreshed(found: ColumnDraft, source: Table) -> Column:
    now = source.by_name.get(found.now) if found.now is not None else None
    if now is None or found.column.retained:
        return found.column
    column = replace(found.column, id=now.id)
    return replace(column, native=now.native, note=now.note) if now.type == column.type else column


def _ordered(columns: Sequence[ColumnDraft], source: Table) -> list[ColumnDraft]:
    """Return columns that the source has, in its order; the others keep the neighbour before them."""
    place = {c.name: i for i, c in enumerate(source.columns)}
    known = iter(sorted((c for c in columns if c.now in place), key=lambda c: place[c.now or ""]))
    return [next(known) if c.now in place else c for c in columns]


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
        found = self._retained.get(id) if id is not None else None
        return found if found is not None and found.table.retained and found.table.id == id else None

    def gone(self, table: TableDraft, *, retain: bool | None) -> None:
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
        """New names in the sequence, all at once."""
        for table, _ in moves:
            if table.now is not None:
                del self._now[table.now]
        for table, now in moves:
            table.now = now
            self._now[now] = table

    def rename(self, moves: Sequence[tuple[TableDraft, Ref]]) -> None:
        """New accepted names, all at once, without aliases; what is retained under one of them gets a version."""
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
