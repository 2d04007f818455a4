"""Puts the table properties, sort orders and partitions of the settings into a plan.

Which tables keep their history, put into a plan; what would lose it is refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from instep.destinations.facets import Destination, LayoutsFacet
from instep.errors import SchemaError, argument
from instep.project.sections.tables import TableSettings
from instep.project.sections.values import as_text
from instep.schema.catalog.catalog import Catalog, Table
from instep.schema.catalog.layout import PartitionTerm, SortTerm, TableLayout, partition_term, sort_term
from instep.schema.catalog.types import Array, Struct
from instep.schema.changes.describe import KeyChanged, KeyRemoved, TableAdded, TableRenamed, TableReplaced
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.plan import Plan
from instep.schema.planning.step import SetLayout, Step, step
from instep.schema.policy.policy import Decision, is_retyped_key
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.table_renames import TableRenames
from instep.sync.table_mode import is_partial, why_no_history

_LATER = "the next load of the whole table partitions its files so: run `instep sync --full`"


@dataclass(frozen=True)
class _LayoutChange:
    table: Table
    ref: Ref
    layout: TableLayout
    troubles: tuple[str, ...]
    retained: bool = False

    def after(self, before: TableLayout) -> TableLayout:
        """Return the layout, with the old partitioning where the settings' one is impossible."""
        return replace(self.layout, partition=before.partition) if self.retained else self.layout


def with_layouts(context: SyncContext, plan: Plan) -> Plan:
    """Return the plan with a step for each table whose layout is not the one that the settings say; what cannot be is
    noted and left out. A table whose changes are refused can still be freed of its partitions: these may be why."""
    tables = [t for t in plan.after.tables if not t.retained]
    configured = [(t, context.settings(t)) for t in tables]
    layouts = context.destination.schema.layouts
    if layouts is None:
        odd = [t for t, s in configured if s.properties or s.sort or s.partition]
        return _noted(plan, [(t, _none(context.destination)) for t in odd])
    pending_backfills = [_layout_change(context, layouts, table, settings) for table, settings in configured]
    # tables by the names that they get, to those that they have
    refs: dict[Ref, Ref] = {}
    for change in (s.change for s in plan.steps):
        if isinstance(change, TableRenamed):
            refs[change.after.ref] = refs.pop(change.before.ref, change.before.ref)
    today, new = refs, {s.table for s in plan.steps if isinstance(s.change, TableAdded)}
    replaced = new | {s.table for s in plan.steps if isinstance(s.change, TableReplaced)}
    recorded = layouts.recorded([today.get(w.ref, w.ref) for w in pending_backfills])
    steps, troubles = list[Step](), [(w.table, trouble) for w in pending_backfills for trouble in w.troubles]
    for layout_change in pending_backfills:
        before = (
            TableLayout() if layout_change.ref in new else recorded.get(today.get(layout_change.ref, layout_change.ref))
        )
        if before is None or before == (after := layout_change.after(before)):
            continue
        if layout_change.table.ref not in plan.refused or before.partition != after.partition:
            steps.append(step(layout_change.ref, SetLayout(layout_change.ref, before, after)))
            troubles += (
                [(layout_change.table, _LATER)] if layout_change.ref not in replaced and not layouts.whole else []
            )
    return _noted(replace(plan, steps=_joined(plan.steps, steps)), troubles)


def _none(destination: Destination) -> str:
    if destination.shard is not None:
        return "`properties`, `sort` and `partition` are for tables of one connection alone, and it is shared"
    which = "`properties` and `sort` are for Iceberg, `partition` for Iceberg and Delta"
    return f"{which}, and its destination is {destination.kind}"


def _noted(plan: Plan, troubles: list[tuple[Table, str]]) -> Plan:
    return (
        replace(plan, remarks=(*plan.remarks, *(f"{table.path}: {why}" for table, why in troubles)))
        if troubles
        else plan
    )


def _joined(steps: tuple[Step, ...], more: list[Step]) -> tuple[Step, ...]:
    """Return each behind the last step of its table, so that both are one commit."""
    if not more:
        return steps
    last = {s.table: place for place, s in enumerate(steps) if not isinstance(s.change, TableRenamed)}
    behind = {last[s.table]: s for s in more if s.table in last}
    joined = (item for place, s in enumerate(steps) for item in ((s, behind[place]) if place in behind else (s,)))
    return (*joined, *(s for s in more if s.table not in last))


def _layout_change(context: SyncContext, layouts: LayoutsFacet, table: Table, settings: TableSettings) -> _LayoutChange:
    faults, retained, properties, sort = list[str](), False, as_text(settings.properties), settings.sort
    if layouts.whole:
        troubles = {name: layouts.property_fault(name) for name in properties}
        faults += [why for why in troubles.values() if why]
        properties = {name: value for name, value in properties.items() if not troubles[name]}
    elif properties or sort:
        faults.append(f"`properties` and `sort` are for Iceberg, and its destination is {context.destination.kind}")
        properties, sort = {}, ()
    terms, parts = list[SortTerm](), list[PartitionTerm]()
    try:
        terms = list(_terms(table, sort))
    except SchemaError as error:
        faults.append(error.message)
    try:
        parts = list(_parts(layouts, table, settings))
    except SchemaError as error:
        faults.append(error.message)
        retained = True
    return _LayoutChange(
        table,
        destination_ref(table, context.naming),
        TableLayout.of(properties, terms, parts),
        tuple(faults),
        retained,
    )


def _terms(table: Table, sort: Iterable[str]) -> Iterator[SortTerm]:
    """Yield the sort order by destination columns. Raises SchemaError for a column that rows cannot be sorted by."""
    for text in sort:
        name, direction = sort_term(text)
        column = table.by_name.get(name)
        if column is None or column.retained:
            raise SchemaError(f"its rows cannot be sorted by {name}: there is no such column")
        if isinstance(column.type, Array | Struct):
            raise SchemaError(f"its rows cannot be sorted by {name}: {column.type} has no order")
        yield column.alias or name, direction


def _parts(layouts: LayoutsFacet, table: Table, settings: TableSettings) -> Iterator[PartitionTerm]:
    """Yield the partitioning by destination columns. Raises SchemaError for a column that cannot partition rows."""
    for text in settings.partition:
        term = partition_term(text)
        column = table.by_name.get(term.column)
        if column is None or column.retained:
            raise SchemaError(f"it cannot be partitioned by {term.text}: there is no such column")
        if why := layouts.partition_fault(term, column.type):
            raise SchemaError(f"it cannot be partitioned by {term.text}: {why}")
        yield replace(term, column=column.alias or term.column)


_MIXES = (KeyChanged, KeyRemoved, TableReplaced)


def with_history(context: SyncContext, decisions: Sequence[Decision], before: Catalog, after: Catalog) -> Catalog:
    """Return the accepted catalog that a plan leads to, with the tables that keep their history from now on. One that
    does so goes on, whatever the settings say: its versions would be in the way of its keys. A table that is replaced
    by another one of its key goes on, too: rows that the other one does not have end."""
    same = {after.by_ref[ref].ref: old.generation for ref, old in _replaced(decisions, before, after)}
    tables = (replace(t, generation=same.get(t.ref, t.generation)) for t in after.tables)
    return Catalog.of(replace(t, history=True) if _begins(context, t) else t for t in tables)


def _replaced(decisions: Sequence[Decision], before: Catalog, after: Catalog) -> Iterator[tuple[Ref, Table]]:
    """Yield tables of a key that are replaced by others of that key: by the name after, and as they were."""
    places = TableRenames.of(decisions)
    for change in (d.change for d in decisions if d.applied and isinstance(d.change, TableReplaced)):
        ref, old = places.after(change), before.get(places.before(change))
        now = after.get(ref)
        if old is not None and now is not None and old.history and old.key == now.key:
            yield ref, old


def _begins(context: SyncContext, table: Table) -> bool:
    """True if the table's history begins now. Refused settings begin none."""
    if table.history or table.retained:
        return False
    settings = context.settings(table)
    return settings.history and why_no_history(table, settings) is None


def history_notes(context: SyncContext, after: Catalog) -> list[str]:
    """Return one sentence for each table that keeps its history although the settings say so no more."""
    left = [t for t in after.tables if t.history and not t.retained and not context.settings(t).history]
    way = "take it out of the connection and load it through another one to have current rows only"
    return [f"{t.path}: it continues to keep its history, which `history: false` does not remove: {way}" for t in left]


def rekeyed(context: SyncContext, decisions: Sequence[Decision]) -> dict[Ref, str]:
    """Return accepted tables with versions whose rows have another key by now, and what a person can do: it is not
    accepted, whatever was decided, and partially read rows would be taken for versions of others. Where the whole
    table is read, rows that share the old key are noticed. A replaced table is not read at all."""
    places, keys = TableRenames.of(decisions), dict[Ref, tuple[str, ...] | None]()  # None: values of another type
    for change in (d.change for d in decisions if d.applied):
        if isinstance(change, KeyChanged | KeyRemoved):
            retyped = is_retyped_key(change)
            keys[places.after(change)] = None if retyped else change.after if isinstance(change, KeyChanged) else ()
    accepted = context.store.accepted.catalog(context.name)
    tables = ((accepted.get(ref), key) for ref, key in keys.items())
    mixed = (t for t, key in tables if t is not None and t.history and (key is None or set(t.key) != set(key)))
    return {t.ref: _why(t) for t in mixed if is_partial(t, context.settings(t))}


def _why(table: Table) -> str:
    way = f"`instep table set-key {argument(table.path)} KEY --rebuild` keeps them in a copy and starts over"
    return f"its key is another one, and its versions have the old one: {way}"


def lost_versions(
    context: SyncContext, decisions: Sequence[Decision], before: Catalog, after: Catalog
) -> dict[Ref, str]:
    """Return destination tables whose versions would need another key, and what a person can do."""
    places, blocked = TableRenames.of(decisions), dict[Ref, str]()
    for change in (d.change for d in decisions if d.applied and isinstance(d.change, _MIXES)):
        old, table = before.get(places.before(change)), after.get(places.after(change))
        if old is None or table is None or not old.history:
            continue
        if set(old.key) == set(table.key) and not is_retyped_key(change):
            continue
        blocked[destination_ref(table, context.naming)] = _why(table)
    return blocked
