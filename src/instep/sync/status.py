"""Status of one table's sync, and its blockers: from the store and the project file, without source or destination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError, ProjectError, argument
from instep.model import PATTERN, AcceptedVersion, Pause, Review, Run, TableRun
from instep.project.project import Project
from instep.schema.catalog.catalog import Table
from instep.schema.maintenance import waits
from instep.schema.planning.aliases import OldName
from instep.schema.planning.naming import destination_ref
from instep.schema.planning.projection import pair_tables
from instep.store.catalogs.backfills import Backfill
from instep.store.catalogs.clones import Copy
from instep.store.catalogs.connection_status import (
    LastMaintenance,
    LoadStatus,
    OldNameStatus,
    TableLoad,
    WaitingBackfill,
)
from instep.store.history.recorded_event import LoggedEvent
from instep.store.store import Store
from instep.store.work.runs import LatestOutcome

if TYPE_CHECKING:
    from instep.sync.context import Ref, SyncContext
    from instep.sync.table_mode import TableMode

    Opens = Callable[[str], SyncContext]


@dataclass(frozen=True)
class TableStatus:
    """`key_from` and `cursor_from` say who named them. `pauses` are those of the table and of its whole connection,
    `waiting` the changes of the table that are open; `trouble` why its settings do not fit."""

    table: Table
    place: Ref
    choice: TableMode | None
    trouble: str
    key_from: str
    cursor_from: str
    pauses: tuple[Pause, ...]
    waiting: tuple[Review, ...]
    copies: tuple[Copy, ...]
    old_names: tuple[OldName, ...] = ()


def table_status(context: SyncContext, path: str) -> TableStatus:
    """Return the accepted table of this path; InstepError if there is none."""
    store, table = context.store, context.table(path)
    choice, trouble = _choice(context, table)
    return TableStatus(
        table,
        destination_ref(table, context.naming),
        choice,
        trouble,
        _key_from(context, table),
        _cursor_from(context, table),
        tuple(p for p in store.pauses.active(context.name) if p.table in (None, table.ref)),
        tuple(r for r in store.reviews.find(context.name, ("open",)) if r.table == table.ref and r.action != "apply"),
        tuple(c for c in store.copies.existing(context.name) if c.table == table.ref),
        tuple(n for n in store.old_names.of(context.name) if n.table == destination_ref(table, context.naming)),
    )


def _choice(context: SyncContext, table: Table) -> tuple[TableMode | None, str]:
    from instep.sync.table_mode import choose

    table_mode: TableMode | None = None
    trouble = "it is kept after its removal and no longer read" if table.retained else ""
    if not table.retained:
        try:
            table_mode = choose(table, context.settings(table))
        except ProjectError as error:
            trouble = str(error)
    return table_mode, trouble


def _key_from(context: SyncContext, table: Table) -> str:
    settings, chosen = context.settings(table), context.store.choices.of(context.name).get((table.ref, "key"))
    key_columns: tuple[str, ...] = ()
    if (seen := context.store.discoveries.get(context.name)) is not None:
        source = pair_tables(context.store.accepted.catalog(context.name).tables, seen.catalog).get(table.ref)
        key_columns = source.key if source else ()
    if not table.key:
        return "the source has none" if not key_columns else f"not approved: the source has ({', '.join(key_columns)})"
    if chosen is not None and not settings.key:
        return f"set by {chosen.who} on {chosen.at:%Y-%m-%d}"
    if key_columns:
        return (
            "the source"
            if set(key_columns) == set(table.key)
            else f"the source, which now has ({', '.join(key_columns)})"
        )
    return "instep.yml" if settings.key else "the source, which now has none"


def _cursor_from(context: SyncContext, table: Table) -> str:
    settings, chosen = context.settings(table), context.store.choices.of(context.name).get((table.ref, "cursor"))
    if settings.cursor:
        return "instep.yml"
    if chosen is None:
        origin = "the connector's default" if settings.mode == "stream" else "set before"
        return "nobody has set one" if table.cursor is None else origin
    start = f", first read from {chosen.start}" if chosen.start else ""
    return f"set by {chosen.who} on {chosen.at:%Y-%m-%d}{start}"


def statuses(
    project: Project,
    store: Store,
    versions: Mapping[str, tuple[AcceptedVersion, Mapping[str, Any]]],
    names: Sequence[str],
    context: Opens,
    trouble: Callable[[str], None] = lambda _: None,
) -> list[LoadStatus]:
    """Return the status of each connection, by as many statements as for one, and from the store.

    `versions`: the latest accepted version of each connection and its catalog as JSON has it. A destination is asked
    only about quarantined values and for a budget of backfills, a source never. `trouble` is told why something could
    not be looked at.
    """
    runs = store.pages.latest_runs(names)
    pauses, copies = store.pauses.active_of(names), store.copies.existing_of(names)
    old_names, maintained = store.old_names.of_many(names), store.events.maintained(names)
    outcomes, quarantining = store.runs.latest_outcomes_of(names), store.runs.with_quarantined(names)
    backfills, unread = store.backfills.waiting_of(names), store.discoveries.unread(names)
    results = []
    for name in names:
        run, (accepted, catalog) = runs.get(name), versions.get(name, (None, {}))
        refs = [(t["schema"], t["name"]) for t in catalog.get("tables", ()) if not t.get("retained")]
        shown = shown_outcomes(refs, outcomes[name], run)
        quarantine = quarantined_counts(name, context, trouble) if name in quarantining else {}
        results.append(
            LoadStatus(
                connection=name,
                last_run=run,
                schema_version=accepted.version if accepted else 0,
                schema_label=accepted.label if accepted else "",
                pauses=tuple(sorted(pauses[name], key=lambda pause: pause.table is not None)),
                copies=tuple(copies[name]),
                old_names=old_name_statuses(old_names[name]),
                outcomes=dict(Counter(outcome.status for outcome in shown if outcome.mode != PATTERN)),
                unmatched=sum(outcome.mode == PATTERN for outcome in shown),
                maintained=len(maintained[name]),
                last_maintained=_maintained(maintained[name][-1]) if maintained[name] else None,
                backfills=_waiting(project, store, name, context, backfills[name]),
                quarantine=quarantine,
                quarantined=sum(quarantine.values()),
                unread={".".join(filter(None, ref)): why for ref, why in sorted(unread.get(name, {}).items())},
            )
        )
    return results


def _maintained(event: LoggedEvent) -> LastMaintenance:
    names = {field.name: event.data[field.name] for field in fields(LastMaintenance) if field.name != "at"}
    return LastMaintenance(at=event.at, **names)


def shown_outcomes(
    accepted: Iterable[tuple[str, str]], outcomes: Sequence[LatestOutcome], last: Run | None
) -> list[LatestOutcome]:
    """Return how each table fared last: those that are accepted, and those of the last run. Others have been renamed or
    have left the source."""
    live = set(accepted)
    return [outcome for outcome in outcomes if outcome.table in live or (last is not None and outcome.run == last.id)]


def table_loads(store: Store, connection: str, shown: Sequence[LatestOutcome]) -> list[TableLoad]:
    """Return what the last run did to each of these tables, with its last maintenance."""
    maintained = {
        outcome.table: outcome for outcome in map(_maintained, store.events.maintained([connection])[connection])
    }
    loads = store.runs.tables_of_runs([(outcome.run, outcome.table) for outcome in shown])
    return [_table_load(connection, load, maintained) for load in loads]


def _table_load(connection: str, load: TableRun, maintained: Mapping[str, LastMaintenance]) -> TableLoad:
    path = ".".join(filter(None, load.table))
    again = load.status == "failed" and load.mode != PATTERN
    command = f"instep sync {argument(connection)} --table {argument(path)}" if again else ""
    return TableLoad(**vars(load), maintained=maintained.get(path), next_command=command)


_REPEATED = ("apply", "detect", "maintain")


def next_command(connection: str, last: Run | None) -> str:
    """Return the command that tries a failed run again; "" if it did not fail. A sync also carries out the backfills
    that are requested, and goes on with what an interrupted run has left."""
    if last is None or last.status not in ("failed", "partial"):
        return ""
    return f"instep {last.kind if last.kind in _REPEATED else 'sync'} {argument(connection)}"


def old_name_statuses(names: Iterable[OldName]) -> tuple[OldNameStatus, ...]:
    """Return the status of old names, without those that plans in progress have recorded."""
    return tuple(
        OldNameStatus(".".join(n.table), n.old, n.column or None, n.shown or None, n.until, n.trouble or None)
        for n in names
        if not n.batch
    )


def old_names_data(names: Iterable[OldName]) -> list[dict[str, Any]]:
    """Return the status of old names as JSON has it."""
    return [asdict(status) for status in old_name_statuses(names)]


def _waiting(
    project: Project, store: Store, name: str, context: Opens, backfills: Sequence[Backfill]
) -> tuple[WaitingBackfill, ...]:
    """Return backfills that are not done yet; `waits` says what blocks one of a column. The destination's metadata
    is only read for a budget."""
    limits = project.connection(name).backfill_limits.limits()
    columns = [b for b in backfills if b.scope == "column"]
    why = dict.fromkeys((b.number for b in columns), waits(limits, datetime.now(UTC)))
    if columns and limits.max_bytes:
        from instep.sync.schema_changes.backfill_plan import fill_size, pending_backfills

        opened = context(name)
        for pending in pending_backfills(opened, store.accepted.catalog(name)):
            size = fill_size(opened, pending.table, pending.numbers)
            why |= {b.number: waits(limits, datetime.now(UTC), size.bytes) for b in pending.backfills}
    return tuple(WaitingBackfill(**vars(b), waits=why.get(b.number, "")) for b in backfills)


def quarantined_counts(name: str, context: Opens, trouble: Callable[[str], None]) -> dict[str, int]:
    """Return how many entries each table holds, those with the most first, for a connection of which a run has
    ever held something. A destination that cannot be reached is no reason to show nothing."""
    from instep.sync.quarantine.quarantine import quarantined_counts as counts_of

    try:
        counts = counts_of(context(name))
    except InstepError as error:
        trouble(f"quarantine of {name}: {error.message}")
        return {}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
