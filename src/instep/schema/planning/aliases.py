"""Names that readers of the destination still use after a rename: which there are, and the views that show them.

Everything here goes by the destination's names. One view a table holds all old column names that are alive, beside the
table's own columns, so that no query that works on the table fails on the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import ColumnRenamed, TableAdded, TableRemoved, TableRenamed
from instep.schema.changes.kinds import Ref
from instep.schema.planning.arrange import is_parked
from instep.schema.planning.plan import StepGroup
from instep.schema.planning.step import Step

SUFFIX = "__compat"
"""The end of the name of a table's view."""


@dataclass(frozen=True)
class OldName:
    """`old` was the name of the table (`column` "") or of a column of it; `table` and `column` are what it means now.
    `batch` names the plan that renamed it, until the rename is known to be through. `shown`: the view that shows it, ""
    if none does. `trouble`: why none does."""

    table: Ref
    column: str
    old: str
    until: datetime
    at: datetime
    number: int = 0
    batch: str = ""
    shown: str = ""
    trouble: str = ""

    @property
    def view(self) -> Ref:
        """Return the view's name for readers."""
        return self.table[0], self.table[1] + SUFFIX if self.column else self.old


@dataclass(frozen=True)
class View:
    """A view of ours over one table: (its column, the table's column), in order."""

    ref: Ref
    table: Ref
    columns: tuple[tuple[str, str], ...]
    owner: str
    """A connection's name."""


@dataclass(frozen=True)
class Renames:
    """All renames of a plan: tables by their name before it, columns by (table after it, name before it)."""

    tables: Mapping[Ref, Ref]
    columns: Mapping[tuple[Ref, str], str]


def renames(groups: Iterable[StepGroup]) -> Renames:
    """Return the renames of a plan, without the names that it uses only in between."""
    tables: dict[Ref, Ref] = {}
    columns: dict[tuple[Ref, str], str] = {}
    between: set[Ref] = set()
    for group in groups:
        inner, ref = _columns(group.steps), group.ref
        moved = next((s.change.after.ref for s in group.steps if isinstance(s.change, TableRenamed)), None)
        columns |= {(ref, old): new for old, new in inner.items()}
        if moved is not None:
            first = next((a for a, b in tables.items() if b == ref and ref in between), ref)
            tables[first] = moved
            between.add(moved)
            keys = [k for k in columns if k[0] == ref]
            columns |= {(moved, old): columns.pop((at, old)) for at, old in keys}
    return Renames({a: b for a, b in tables.items() if a != b}, {k: v for k, v in columns.items() if k[1] != v})


def _columns(steps: Iterable[Step]) -> dict[str, str]:
    """Return column names before to those after. Renames count as simultaneous; one that continues from where
    another has parked a column is the second half of a detour. Without ids a parked column is known by name alone."""
    columns: dict[str, Column] = {}
    for change in (s.change for s in steps):
        if isinstance(change, ColumnRenamed):
            parked = is_parked(change.before.name)
            first = next((a for a, c in columns.items() if parked and c == change.before), change.before.name)
            columns[first] = change.after
    return {old: column.name for old, column in columns.items()}


def current_names(names: Sequence[OldName], catalog: Catalog, fold: Callable[[str], str]) -> list[OldName]:
    """Return the names with what they mean in `catalog`, the current tables: plans that were on the way are followed,
    in order, if what they lead to has come about."""
    done = [n for n in names if not n.batch]
    for batch in dict.fromkeys(n.batch for n in names if n.batch):
        mine = [n for n in names if n.batch == batch and is_present(n, catalog)]
        tables = {(n.table[0], n.old): n.table for n in mine if not n.column}
        columns = {(n.table, n.old): n.column for n in mine if n.column}
        done = [_followed(n, tables, columns) for n in done] + [replace(n, batch="") for n in mine]
    latest = {(n.table if n.column else n.table[:1], bool(n.column), fold(n.old)): n for n in done}
    return list(latest.values())


def is_present(name: OldName, catalog: Catalog) -> bool:
    """Return whether what an old name stands for is in `catalog`."""
    table = catalog.get(name.table)
    return table is not None and (not name.column or name.column in table.by_name)


def _followed(name: OldName, tables: Mapping[Ref, Ref], columns: Mapping[tuple[Ref, str], str]) -> OldName:
    table = tables.get(name.table, name.table)
    return replace(name, table=table, column=columns.get((table, name.column), name.column))


def why_over(name: OldName, catalog: Catalog, now: datetime, fold: Callable[[str], str]) -> str:
    """Return why an old name has come to its end; "" if it has not."""
    table = catalog.get(name.table)
    if table is None or not is_present(name, catalog):
        return "the object it stood for is gone"
    columns, tables = table.columns, (t for t in catalog.tables if t.schema == table.schema)
    if fold(name.old) in {fold(item.name) for item in (columns if name.column else tables)}:
        return f"another {'column' if name.column else 'table'} is called so"
    return "its time is over" if name.until <= now else ""


def views(names: Sequence[OldName], catalog: Catalog, owner: str) -> dict[Ref, View]:
    """Return the views that show these names. A table that was renamed after columns of it is found under both of its
    names, with the suffix and without."""
    by_ref: dict[Ref, View] = {}
    for table in catalog.tables:
        mine = [n for n in names if n.table == table.ref]
        columns, body = [n for n in mine if n.column], _body(table, mine)
        refs = [n.view for n in mine]
        refs += [(w.view[0], w.old + SUFFIX) for w in mine if not w.column and any(n.at <= w.at for n in columns)]
        by_ref |= {ref: View(ref, table.ref, body, owner) for ref in refs}
    return by_ref


def _body(table: Table, names: Iterable[OldName]) -> tuple[tuple[str, str], ...]:
    return (*((c.name, c.name) for c in table.columns), *((n.old, n.column) for n in names if n.column))


def carried(view: View, steps: Sequence[Step]) -> View | None:
    """Return the view once its table has been through these steps, those columns included that they drop; None if the
    table is gone, or the view's name used."""
    if any(isinstance(s.change, TableRemoved | TableAdded) for s in steps):
        return None
    moved = next((s.change.after.ref for s in steps if isinstance(s.change, TableRenamed)), view.table)
    columns = tuple(_carried(view.columns, _columns(steps)))
    return View(view.ref, moved, columns, view.owner) if view.ref != moved else None


def _carried(columns: Iterable[tuple[str, str]], inner: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a column that the view showed under its own name goes by the new one; an old name stays."""
    used: set[str] = set()
    for name, column in columns:
        now = inner.get(column, column)
        called = now if name == column else name
        if called not in used:
            used.add(called)
            yield called, now
