"""Names that readers of the destination still use after a rename: which there are, and the views that show them.

Everything here goes by the destination's names. One view a table holds all old column names that are alive, beside the
table's own columns, so that no query that works on the table fails on the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from instep.schema.change import ColumnRenamed, TableAdded, TableRemoved, TableRenamed
from instep.schema.kinds import Ref
from instep.schema.plan import Group
from instep.schema.step import Step
from instep.schema.table import Catalog, Table

SUFFIX = "__compat"
"""What the name of a table's view ends with."""


@dataclass(frozen=True)
class OldName:
    """`old` was the name of the table (`column` "") or of a column of it; `table` and `column` are what it means now.
    `batch` names the plan that renamed it, until the rename is known to be through. `shown`: the view it was first
    shown in, "" for not yet. `trouble`: why it is not shown."""

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
    def path(self) -> str:
        """What people call it."""
        return f"{'.'.join(self.table)}.{self.old}" if self.column else f"{self.table[0]}.{self.old}"


@dataclass(frozen=True)
class View:
    """A view of ours over one table: (its column, the table's column), in order. `owner` is a connection's name."""

    ref: Ref
    table: Ref
    columns: tuple[tuple[str, str], ...]
    owner: str


@dataclass(frozen=True)
class Renames:
    """What a plan renames in all: tables by their name before it, columns by (table after it, name before it)."""

    tables: Mapping[Ref, Ref]
    columns: Mapping[tuple[Ref, str], str]


def renames(groups: Iterable[Group]) -> Renames:
    """Names that a plan only uses in between are none of them."""
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
            own = [k for k in columns if k[0] == ref]
            columns |= {(moved, old): columns.pop((at, old)) for at, old in own}
    return Renames({a: b for a, b in tables.items() if a != b}, {k: v for k, v in columns.items() if k[1] != v})


def _columns(steps: Iterable[Step]) -> dict[str, str]:
    """Column names before to those after."""
    found: dict[str, str] = {}
    for change in (s.change for s in steps):
        if isinstance(change, ColumnRenamed):
            first = next((a for a, b in found.items() if b == change.before.name), change.before.name)
            found[first] = change.after.name
    return found


def settled(names: Sequence[OldName], there: Catalog) -> list[OldName]:
    """The names with what they mean in `there`, the tables as they are: plans that were on the way are followed, in
    order, if what they lead to has come about."""
    done = [n for n in names if not n.batch]
    for batch in dict.fromkeys(n.batch for n in names if n.batch):
        mine = [n for n in names if n.batch == batch and _is_there(n, there)]
        tables = {(n.table[0], n.old): n.table for n in mine if not n.column}
        columns = {(n.table, n.old): n.column for n in mine if n.column}
        done = [_followed(n, tables, columns) for n in done] + [replace(n, batch="") for n in mine]
    latest = {(n.table, bool(n.column), n.old): n for n in done}
    return list(latest.values())


def _is_there(name: OldName, there: Catalog) -> bool:
    table = there.get(name.table)
    return table is not None and (not name.column or name.column in table.by_name)


def _followed(name: OldName, tables: Mapping[Ref, Ref], columns: Mapping[tuple[Ref, str], str]) -> OldName:
    table = tables.get(name.table, name.table)
    return replace(name, table=table, column=columns.get((table, name.column), name.column))


def why_over(name: OldName, there: Catalog, now: datetime, fold: Callable[[str], str]) -> str:
    """Why an old name has come to its end; "" if it has not."""
    table = there.get(name.table)
    if table is None or not _is_there(name, there):
        return "what it stood for is gone"
    used = [c.name for c in table.columns] if name.column else [t.name for t in there.tables if t.schema == table.schema]
    if fold(name.old) in {fold(u) for u in used}:
        return f"another {'column' if name.column else 'table'} is called so"
    return "its time is over" if name.until <= now else ""


def view_names(table: Ref, names: Iterable[OldName]) -> dict[Ref, OldName]:
    """The views of one table that its old names ask for, each with the name that asks for it longest."""
    mine = sorted((n for n in names if n.table == table), key=lambda n: n.until)
    columns, tables = [n for n in mine if n.column], [n for n in mine if not n.column]
    found = {(table[0], table[1] + SUFFIX): n for n in columns}
    for was in tables:
        found[table[0], was.old] = was
        older = [n for n in columns if n.at <= was.at]
        found |= {(table[0], was.old + SUFFIX): n for n in older}
    return found


def views(names: Sequence[OldName], there: Catalog, owner: str) -> dict[Ref, tuple[View, tuple[OldName, ...]]]:
    """The views that show these names, with those that each of them shows."""
    found: dict[Ref, tuple[View, tuple[OldName, ...]]] = {}
    for table in there.tables:
        mine = [n for n in names if n.table == table.ref]
        for ref in view_names(table.ref, mine):
            shows = tuple(n for n in mine if n.column or n.old == ref[1])
            found[ref] = View(ref, table.ref, _body(table, mine), owner), shows
    return found


def _body(table: Table, names: Iterable[OldName]) -> tuple[tuple[str, str], ...]:
    return (*((c.name, c.name) for c in table.columns), *((n.old, n.column) for n in names if n.column))


def carried(view: View, steps: Iterable[Step], left: Iterable[str]) -> View | None:
    """The view once its table has been through these steps and has the columns `left`; None if nothing is left."""
    steps = list(steps)
    if any(isinstance(s.change, TableRemoved | TableAdded) for s in steps):
        return None
    inner, there = _columns(steps), set(left)
    moved = next((s.change.after.ref for s in steps if isinstance(s.change, TableRenamed)), view.table)
    pairs = [*_carried(view.columns, inner)]
    columns = tuple((name, now) for name, now in pairs if now in there)
    return View(view.ref, moved, columns, view.owner) if columns and view.ref != moved else None


def _carried(columns: Iterable[tuple[str, str]], inner: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """A column that the view showed under its own name goes by the new one; an old name stays."""
    taken: set[str] = set()
    for name, column in columns:
        now = inner.get(column, column)
        called = now if name == column else name
        if called not in taken:
            taken.add(called)
            yield called, now
