"""What stands of a connection, as a document: last run, pauses, tables, wanted backfills, what is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from instep.errors import InstepError
from instep.model import Run, TableRun
from instep.project.project import Project
from instep.schema.limits import waits
from instep.schema.old_names import OldName
from instep.store.store import Store

if TYPE_CHECKING:
    from instep.sync.pipe import Pipe

    Opens = Callable[[str], Pipe]


def status(
    project: Project, store: Store, name: str, pipe: Opens, trouble: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """From the store; the destination is asked only about what is held there and for a budget of backfills, the source
    never. `trouble` is told why something could not be looked at."""
    run, accepted = store.runs.latest(name), store.accepted.latest(name)
    return {
        "connection": name,
        "last_run": asdict(run) if run else None,
        "schema_version": accepted.version if accepted else 0,
        "schema_label": accepted.label if accepted else "",
        "pauses": [asdict(p) for p in store.pauses.active(name)],
        "copies": [asdict(c) for c in store.copies.standing(name)],
        "old_names": old_names_data(store.old_names.of(name)),
        "maintained": maintained(store, name),
        "tables": [asdict(t) for t in _tables(store, name, run)],
        "backfills": wanted_backfills(project, store, name, pipe),
        "quarantine": held(store, name, pipe, trouble),
    }


def maintained(store: Store, name: str) -> list[dict[str, Any]]:
    """How each table was left by its last maintenance, by what the store's events say."""
    events = store.events.latest(connection=name, types=("table.maintained",), limit=1000)
    last = {e.data["table"]: e for e in reversed(events)}
    told = ("table", "files_before", "files", "bytes_before", "bytes", "snapshots")
    return [{"at": e.at, **{k: e.data[k] for k in told}} for e in last.values()]


def _tables(store: Store, name: str, last: Run | None) -> list[TableRun]:
    """How each table fared last: those that are accepted, and those of the last run. Others have been renamed or have
    left the source."""
    live = {t.ref for t in store.accepted.catalog(name).tables if not t.retained}
    found = store.runs.latest_tables(name)
    return [t for ref, t in found.items() if ref in live or (last is not None and t.run == last.id)]


def old_names_data(names: Iterable[OldName]) -> list[dict[str, Any]]:
    """Those that plans on the way have recorded are none yet."""
    return [
        {"table": ".".join(n.table), "name": n.old, "column": n.column or None, "view": n.shown or None,
         "until": n.until, "trouble": n.trouble or None}
        for n in names if not n.batch
    ]  # fmt: skip


def wanted_backfills(project: Project, store: Store, name: str, pipe: Opens) -> list[dict[str, Any]]:
    """Those that are not done yet; `waits` says what holds up one of a column. Only a budget makes the lake's metadata
    be read."""
    found = store.backfills.waiting(name)
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


def held(store: Store, name: str, pipe: Opens, trouble: Callable[[str], None]) -> dict[str, int]:
    """How many entries each table holds. The lake is asked only if a run has ever held something; one that cannot be
    reached is no reason to show nothing."""
    if not store.runs.ever_held(name):
        return {}
    from instep.sync.held.quarantine import holdings

    try:
        found = {h.table.path: len(h.held) for h in holdings(pipe(name))}
    except InstepError as error:
        trouble(f"quarantine of {name}: {error.message}")
        return {}
    return {table: count for table, count in sorted(found.items()) if count}
