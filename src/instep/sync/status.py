"""What stands of a connection, as a document: last run, pauses, tables, wanted backfills, what is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.model import Run, TableRun
from instep.project.project import Project
from instep.schema.limits import waits
from instep.schema.old_names import OldName
from instep.schema.table import Catalog
from instep.store.backfills import Backfill
from instep.store.logged import LoggedEvent
from instep.store.store import Store

if TYPE_CHECKING:
    from instep.sync.pipe import Pipe

    Opens = Callable[[str], Pipe]


def statuses(
    project: Project, store: Store, names: Sequence[str], pipe: Opens, trouble: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Of each connection, by as many statements as for one, and from the store; a destination is asked only about what
    is held there and for a budget of backfills, a source never. `trouble` is told why something could not be looked
    at."""
    runs, versions = store.pages.latest_runs(names), store.accepted.latest_of(names)
    pauses, copies = store.pauses.active_of(names), store.copies.standing_of(names)
    old_names, maintained = store.old_names.of_several(names), store.events.maintained(names)
    tables, that_held = store.runs.latest_tables_of(names), store.runs.that_held(names)
    backfills = store.backfills.waiting_of(names)
    found = []
    for name in names:
        run, (accepted, catalog) = runs.get(name), versions.get(name, (None, Catalog()))
        found.append({
            "connection": name,
            "last_run": asdict(run) if run else None,
            "schema_version": accepted.version if accepted else 0,
            "schema_label": accepted.label if accepted else "",
            "pauses": [asdict(p) for p in pauses[name]],
            "copies": [asdict(c) for c in copies[name]],
            "old_names": old_names_data(old_names[name]),
            "maintained": [_maintained(event) for event in maintained[name]],
            "tables": [asdict(t) for t in _tables(catalog, tables[name], run)],
            "backfills": _waiting(project, store, name, pipe, backfills[name]),
            "quarantine": held(name, pipe, trouble) if name in that_held else {},
        })  # fmt: skip
    return found


def _maintained(event: LoggedEvent) -> dict[str, Any]:
    """How a table was left by its last maintenance."""
    told = ("table", "files_before", "files", "bytes_before", "bytes", "snapshots")
    return {"at": event.at, **{key: event.data[key] for key in told}}


def _tables(accepted: Catalog, found: Mapping[tuple[str, str], TableRun], last: Run | None) -> list[TableRun]:
    """How each table fared last: those that are accepted, and those of the last run. Others have been renamed or have
    left the source."""
    live = {t.ref for t in accepted.tables if not t.retained}
    return [t for ref, t in found.items() if ref in live or (last is not None and t.run == last.id)]


def old_names_data(names: Iterable[OldName]) -> list[dict[str, Any]]:
    """Those that plans on the way have recorded are none yet."""
    return [
        {"table": ".".join(n.table), "name": n.old, "column": n.column or None, "view": n.shown or None,
         "until": n.until, "trouble": n.trouble or None}
        for n in names if not n.batch
    ]  # fmt: skip


def _waiting(project: Project, store: Store, name: str, pipe: Opens, found: Sequence[Backfill]) -> list[dict[str, Any]]:
    """Backfills that are not done yet; `waits` says what holds up one of a column. Only a budget makes the
    destination's metadata be read."""
    limits = project.connection(name).backfill_limits.limits()
    columns = [b for b in found if b.scope == "column"]
    why = dict.fromkeys((b.number for b in columns), waits(limits, datetime.now(UTC)))
    if columns and limits.max_bytes:
        from instep.sync.changes.fill_plan import fill_size, wishes

        opened = pipe(name)
        for wish in wishes(opened, store.accepted.catalog(name)):
            size = fill_size(opened, wish.table, wish.numbers)
            why |= {b.number: waits(limits, datetime.now(UTC), size.bytes) for b in wish.backfills}
    return [asdict(b) | {"waits": why.get(b.number, "")} for b in found]


def held(name: str, pipe: Opens, trouble: Callable[[str], None]) -> dict[str, int]:
    """How many entries each table holds, for a connection of which a run has ever held something. A destination that
    cannot be reached is no reason to show nothing."""
    from instep.sync.held.quarantine import holdings

    try:
        found = {h.table.path: len(h.held) for h in holdings(pipe(name))}
    except InstepError as error:
        trouble(f"quarantine of {name}: {error.message}")
        return {}
    return {table: count for table, count in sorted(found.items()) if count}
