"""One table three times: as accepted, as the last detection saw it at the source, and as the destination will have it.

The destination's side is what the recorded changes lead to if those that wait are approved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from instep.control.queries.context import QueryContext
from instep.control.selection.partial import PartialSelection
from instep.model import Review
from instep.operations.queries.comparison import CompareTable, ListChangedTables
from instep.operations.spec import QueryWork
from instep.operations.values import EXISTING
from instep.schema.catalog.catalog import Column, Table
from instep.schema.changes import kinds
from instep.schema.changes.describe import change_from_dict
from instep.schema.changes.diff import pair_columns
from instep.schema.policy.similarity import PROPOSAL
from instep.store.server.change_pages import ChangedTable, ChangeSearch

Mark = Literal["same", "added", "removed", "renamed", "changed"]
_TYPES = kinds.ColumnWidened | kinds.ColumnNarrowed | kinds.ColumnRetyped


@dataclass(frozen=True)
class ComparedSide:
    """A column on one side."""

    name: str
    """Its name there."""
    type: str
    """Its type."""
    nullable: bool = True
    """True if it may be NULL."""
    key: int = 0
    """Its place in the key; 0 outside it."""
    native: str = ""
    """The source's own text for the type."""
    note: str = ""
    """Remark, such as that it gets no new values."""


@dataclass(frozen=True)
class ComparedColumn:
    """A column on the three sides; null where a side does not have it."""

    mark: Mark
    """Difference between before and now."""
    before: ComparedSide | None
    """As accepted."""
    now: ComparedSide | None
    """At the source, as the last detection saw it."""
    after: ComparedSide | None
    """At the destination, once the changes that wait are approved and applied."""
    changes: tuple[str, ...] = ()
    """The ids of the changes of it that stand."""


@dataclass(frozen=True)
class TableComparison:
    """A table's columns on the three sides, changed ones first."""

    connection: str
    """The connection."""
    table: str
    """`schema.table`."""
    destination: str
    """`namespace.table` at the destination; "" before it is accepted."""
    columns: tuple[ComparedColumn, ...]
    """Its columns."""
    changes: tuple[Review, ...]
    """The changes of the table that stand, and of the table itself."""


class ChangedTables(QueryWork):
    """The changed tables of one connection."""

    place_types = (str, str)

    def items(
        self, context: QueryContext, query: ListChangedTables, after: Sequence[Any] | None, limit: int
    ) -> Sequence[ChangedTable]:
        """Return tables by name."""
        name = context.connection(query.connection)
        return context.store.changes.tables(name, (after[0], after[1]) if after else None, limit)

    def place(self, item: ChangedTable) -> Sequence[Any]:
        """Return the table's name."""
        return (item.schema, item.name)


class ComparedTable(QueryWork):
    """One table of a connection."""

    def find(self, context: QueryContext, query: CompareTable) -> TableComparison:
        """Return the comparison; a table that a side does not have has no columns there."""
        store, name, ref = context.store, context.connection(query.connection), (query.table_schema, query.table)
        recorded = store.changes.page(ChangeSearch({name}, EXISTING, table=ref), limit=_MOST)
        known = PartialSelection(context.project, store, name)
        before, now = known.accepted.table(_accepted_as(ref, recorded)), known.source.table(ref)
        path = ".".join(filter(None, ref))
        place = store.names.of(name).get(before.ref) if before else None
        destination = ".".join(place) if place else ""
        return TableComparison(name, path, destination, tuple(_columns(before, now, recorded)), tuple(recorded))


_MOST = 2_000
"""Changes of one table."""


def _accepted_as(ref: kinds.Ref, recorded: Sequence[Review]) -> kinds.Ref:
    """Return the name under which a table was accepted, if a change says that it was renamed since."""
    changes = (change_from_dict(review.change) for review in recorded if review.kind == kinds.TableRenamed.kind)
    return next((change.before.ref for change in changes if isinstance(change, kinds.TableRenamed)), ref)


def _columns(before: Table | None, now: Table | None, recorded: Sequence[Review]) -> list[ComparedColumn]:
    of_column = _by_column(recorded)
    whole = {change for review in recorded for change in (review.id,) if not review.column}
    old = before.live if before else ()
    new = now.live if now else ()
    if before and now:
        pairs = pair_columns(before, now)
        both, gone, come = list(pairs.same), list(pairs.removed), list(pairs.added)
    else:
        both, gone, come = [], list(old), list(new)
    columns = [_compared(a, b, of_column) for a, b in both]
    columns += [_compared(None, b, of_column, fresh=not before) for b in come]
    columns += [_compared(a, None, of_column, fresh=bool(whole) and not now) for a in gone]
    retained = [one for one in (before.columns if before else ()) if one.retained]
    columns += [
        ComparedColumn("same", None, None, _at_destination(one, "kept, gets no new values")) for one in retained
    ]
    return sorted(columns, key=lambda one: one.mark == "same")


def _by_column(recorded: Sequence[Review]) -> Mapping[str, list[tuple[Review, kinds.Change]]]:
    by_column: dict[str, list[tuple[Review, kinds.Change]]] = {}
    for review in recorded:
        change = change_from_dict(review.change)
        names = {review.column}
        if isinstance(change, kinds.ColumnRenamed):
            names = {change.before.name, change.after.name}
        for name in filter(None, names):
            by_column.setdefault(name, []).append((review, change))
    return by_column


def _compared(
    before: Column | None,
    now: Column | None,
    of_column: Mapping[str, list[tuple[Review, kinds.Change]]],
    *,
    fresh: bool = False,
) -> ComparedColumn:
    names = dict.fromkeys(one.name for one in (before, now) if one)
    reviews = {review.id: (review, change) for name in names for review, change in of_column.get(name, ())}
    refused = {review.id for review, _ in reviews.values() if review.status == "rejected" or review.action == "ignore"}
    not_refused = [change for id, (review, change) in reviews.items() if id not in refused and review.rule != PROPOSAL]
    return ComparedColumn(
        _mark(before, now),
        _side(before) if before else None,
        _side(now) if now else None,
        _after(before, now, not_refused, reviews.values(), fresh=fresh),
        tuple(reviews),
    )


def _mark(before: Column | None, now: Column | None) -> Mark:
    if before is None or now is None:
        return "added" if before is None else "removed"
    if before.name != now.name:
        return "renamed"
    same = (before.type, before.nullable, before.key) == (now.type, now.nullable, now.key)
    return "same" if same else "changed"


def _after(
    before: Column | None, now: Column | None, not_refused: Sequence[kinds.Change], reviews: Any, *, fresh: bool
) -> ComparedSide | None:
    """Return the column at the destination; a rejected change leaves it as it is."""
    if before is None:
        comes = fresh or any(isinstance(one, kinds.ColumnAdded | kinds.ColumnRenamed) for one in not_refused)
        return _at_destination(now, "new") if now and comes else None
    if now is None:
        removal = next((review for review, one in reviews if isinstance(one, kinds.ColumnRemoved)), None)
        dropped = removal is not None and removal.modifiers.get("removed") == "drop" and removal.status != "rejected"
        return None if dropped else _at_destination(before, "kept, gets no new values")
    column, note = before, ""
    if any(isinstance(one, _TYPES) for one in not_refused):
        column, note = now, f"was {before.type}"
    elif before.type != now.type:
        note = "values that do not fit are quarantined"
    side = _at_destination(column, note)
    renamed = any(isinstance(one, kinds.ColumnRenamed) for one in not_refused)
    name = now.name if renamed else before.alias or before.name
    return ComparedSide(name, side.type, key=side.key, note=side.note)


def _side(column: Column) -> ComparedSide:
    return ComparedSide(
        column.name, str(column.type), column.nullable, column.key, native=column.native, note=column.note
    )


def _at_destination(column: Column, note: str) -> ComparedSide:
    return ComparedSide(column.alias or column.name, str(column.type), key=column.key, note=note)
