"""Objects that are new at the source: which of them the first look accepts, and which are listed as switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from instep.model import Review
from instep.schema.catalog.catalog import Catalog, Column, Table
from instep.schema.changes.describe import Change, ColumnAdded, SchemaAdded, TableAdded, key
from instep.schema.policy.new_objects import (
    FirstLook,
    Object,
    additions,
    let_in,
    listed_off,
    object_of,
    to_list_off,
    without_listed_off,
)
from instep.schema.policy.policy import Decision, Explicit, decide, is_listed_off
from instep.schema.selection.overrides import Switch, with_switches
from instep.schema.selection.selection import Selection, column_is_on, is_on
from instep.sources.base import Discovery
from instep.store.catalogs.discoveries import CachedDiscovery
from instep.store.first_look import first_look
from instep.sync.context import SyncContext

Decides = Callable[[Change], Decision]


@dataclass(frozen=True)
class NewObjects:
    """State of new objects before a detection decides. `first` is None once something is accepted."""

    first: FirstLook | None
    off: frozenset[Object]
    answers: Mapping[str, Review]
    """Standing changes by content key."""
    switched_on: tuple[Table, ...] = ()
    """Tables of the source that a person has switched on by name."""

    def lets_in(self, change: Change) -> bool:
        """Return whether the first look lets an addition in without asking the policy."""
        return self.first is not None and self.first.lets_in(change) and not self.is_off(change)

    def beside_schema(self, change: Change) -> Explicit | None:
        """Return the answer to an addition where a person has rejected the schema and switched tables of it on.

        Those tables come in alone: the schema is accepted for them, and its other tables stay rejected with it.
        """
        match change:
            case SchemaAdded() if self._comes_for_tables(change.name):
                return "on"
            case TableAdded() if self._comes_for_tables(change.after.schema):
                is_open = self._status(change) not in ("approved", "rejected")
                return "rejected" if is_open and all(t.ref != change.after.ref for t in self.switched_on) else None
        return None

    def _comes_for_tables(self, schema: str) -> bool:
        """Return whether a rejected schema has tables that are switched on and not rejected themselves."""
        if not self.switched_on or self._status(SchemaAdded(schema)) != "rejected":
            return False
        return any(t.schema == schema and self._status(TableAdded(t)) != "rejected" for t in self.switched_on)

    def _status(self, change: Change) -> str:
        review = self.answers.get(key(change))
        return review.status if review is not None else ""

    def is_off(self, change: Change) -> bool:
        """Return whether the object of an addition was left out when it was found."""
        review = self.answers.get(key(change))
        return object_of(change) in self.off or (
            review is not None and review.status == "open" and is_listed_off(review.why)
        )

    def split(self, changes: Sequence[Change], decides: Decides) -> list[Change]:
        """Return the changes with new tables stripped of the columns that stay out."""

        def is_out(table: Table, column: Column) -> bool:
            place = *table.ref, column.name
            if place in self.off:
                return True
            if self.first is None or place not in self.first.born:
                return False
            return not decides(ColumnAdded(table.ref, column, table.columns.index(column))).applied

        return without_listed_off(changes, is_out)


def listing_of(
    context: SyncContext,
    discovery: Discovery,
    source: Catalog,
    version: int,
    switches: Sequence[Switch],
    answers: Mapping[str, Review],
) -> NewObjects:
    """Return the store's knowledge of new objects of the source."""
    off = listed_off(switches, discovery.catalog, discovery.identity)
    first = first_look(context.store, context.name, discovery.catalog, discovery.identity) if version == 0 else None
    return NewObjects(first, off, answers, tuple(t for t in source.tables if t.path in context.selection.on))


def is_for_tables(
    context: SyncContext, change: Change, decisions: Sequence[Decision], reviews: Mapping[str, Review]
) -> bool:
    """Return whether a plan lets a schema in for no tables but those that a person has switched on or approved."""
    if not isinstance(change, SchemaAdded):
        return False
    on = with_switches(context.project_selection, context.store.switches.of(context.name)).on
    tables = (d.change for d in decisions if d.applied and isinstance(d.change, TableAdded))

    def is_chosen(added: TableAdded) -> bool:
        review = reviews.get(key(added))
        return added.after.path in on or (review is not None and review.status == "approved")

    return all(is_chosen(added) for added in tables if added.after.schema == change.name)


def new_objects_left_out(
    context: SyncContext,
    last: CachedDiscovery | None,
    discovery: Discovery,
    accepted: Catalog,
    listing: NewObjects,
    decisions: Sequence[Decision],
) -> tuple[Decision, ...]:
    """Return the decisions about objects that came since the last look and are not among the `decisions` made already.

    What is under a schema or table that is switched off is no change, but it is decided when it is found.
    """
    if last is None and not (listing.first and listing.first.configured):
        return ()
    new = additions(last.catalog if last else Catalog(), discovery.catalog)
    decided = frozenset(_of_catalog(accepted)) | {object_of(d.change) for d in decisions}
    changes = (c for c in new if object_of(c) not in decided and _is_selected(context.selection, c, discovery.catalog))
    return tuple(d for c in changes if not (d := decide(c, context.policy, tags=context.tags)).applied)


def _of_catalog(catalog: Catalog) -> Iterator[Object]:
    for table in catalog.tables:
        if not table.retained:
            yield table.schema, "", ""
            yield *table.ref, ""
            yield from ((*table.ref, c.name) for c in table.live)


def _is_selected(selection: Selection, change: SchemaAdded | TableAdded | ColumnAdded, source: Catalog) -> bool:
    """Return whether patterns select the object and nobody has chosen about it."""
    chosen = {*selection.on, *selection.off}
    plain = replace(selection, schemas_off=frozenset(), off=frozenset(), on=frozenset())
    match change:
        case SchemaAdded():
            return change.name not in selection.schemas_on | selection.schemas_off
        case TableAdded():
            return change.after.path not in chosen and is_on(plain, change.after)[0]
        case ColumnAdded():
            table = source.get(change.table)
            if table is None or f"{table.path}.{change.after.name}" in chosen:
                return False
            return is_on(plain, table)[0] and column_is_on(plain, table, change.after)[0]


def record_listing(
    context: SyncContext, decisions: Sequence[Decision], seen: Discovery, accepted: Catalog, switches: Sequence[Switch]
) -> None:
    """Record what was left out, and delete the records of what is accepted now."""
    context.store.switches.let_in(context.name, let_in(switches, accepted, seen.identity))
    context.store.switches.list_off(context.name, to_list_off(decisions, seen.catalog, seen.identity))
