"""Freshness of tables against their targets: as it is now, and what channels are told of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from instep.control.selection.partial import PartialSelection
from instep.errors import ProjectError
from instep.events import FreshnessLate, FreshnessRecovered
from instep.project.project import Project
from instep.project.sections.models import ConnectionSection
from instep.schema.catalog.catalog import Catalog
from instep.schema.selection.overrides import with_switches
from instep.schema.selection.selection import is_on
from instep.store.catalogs.connection_status import FreshnessSummary, TableFreshness
from instep.store.catalogs.freshness import FreshTable
from instep.store.store import Store

Ref = tuple[str, str]
AT_ONCE = 100
"""Connections that are looked at by the same statements."""
ROUND = 60.0
"""Seconds from the begin of one look at all connections to the next."""
NAMED = 20
"""Tables that an event names."""
_WHOLE = ("", "")


def has_target(section: ConnectionSection) -> bool:
    """Return whether a connection, or one of its tables, has a freshness target."""
    return bool(section.freshness) or any(table.freshness for table in section.tables.values())


def freshness_of(
    store: Store,
    project: Project,
    names: Sequence[str],
    now: datetime,
    *,
    whole: bool = False,
    only: Collection[Ref] | None = None,
) -> dict[str, dict[Ref, TableFreshness]]:
    """Return the freshness of the tables that have a target and are read, by connection. `whole`: also those that no
    sync has loaded yet, for which the accepted catalogs are read; else these are read where a table is late. `only`:
    these tables, such as those of a page."""
    loaded, resumed = store.fresh_tables.of(names, only), store.fresh_tables.resumed(names)
    paused = _paused(store, names)
    freshness: dict[str, dict[Ref, TableFreshness]] = {}
    for name in names:
        targeted = has_target(project.connection(name))
        read = _read_tables(store, project, name, only) if whole and targeted else None
        refs = sorted(loaded[name] if read is None else read) if targeted else ()
        freshness[name] = {
            ref: _fresh(
                ref,
                target,
                loaded[name].get(ref),
                max((at for of in (ref, _WHOLE) if (at := resumed[name].get(of))), default=None),
                bool(paused[name] & {ref, _WHOLE}),
                now,
            )
            for ref, target in project.freshness_targets(name, refs).items()
        }
        if read is None and any(one.state == "late" for one in freshness[name].values()):
            read = _read_tables(store, project, name, only)
            freshness[name] = {ref: one for ref, one in freshness[name].items() if ref in read}
    return freshness


def _read_tables(store: Store, project: Project, name: str, only: Collection[Ref] | None) -> frozenset[Ref]:
    """Return the accepted tables that are switched on: of the others no sync is expected to load any."""
    selection, switches = PartialSelection(project, store, name), store.switches.of(name)
    source = Catalog.of(selection.source.outlines.values()) if switches else Catalog()
    now = with_switches(project.selection(name), switches, source, selection.seen.identity)
    outlines = selection.accepted.outlines
    refs = outlines if only is None else [ref for ref in only if ref in outlines]
    return frozenset(ref for ref in refs if not outlines[ref].retained and is_on(now, outlines[ref])[0])


def _paused(store: Store, names: Sequence[str]) -> dict[str, set[Ref]]:
    active = store.pauses.active_of(names)
    return {name: {pause.table or _WHOLE for pause in active[name]} for name in names}


def _fresh(
    ref: Ref, target: float, loaded: FreshTable | None, resumed: datetime | None, paused: bool, now: datetime
) -> TableFreshness:
    """Return the freshness of one table. Its time counts from its last load, or from the end of a pause since then."""
    path = ".".join(filter(None, ref))
    as_of = loaded.as_of if loaded else None
    if paused or as_of is None:
        return TableFreshness(path, "paused" if paused else "not_loaded", target, as_of, None)
    due = max(as_of, resumed or as_of) + timedelta(seconds=target)
    return TableFreshness(path, "late" if now > due else "on_time", target, as_of, due)


_WORST = ("late", "not_loaded", "on_time", "paused")


def worst_first(freshness: Iterable[TableFreshness]) -> tuple[TableFreshness, ...]:
    """Return them with the late ones first, those that are late for the longest before the others."""
    return tuple(sorted(freshness, key=lambda one: (_WORST.index(one.state), one.due.timestamp() if one.due else 0)))


def summary(freshness: Iterable[TableFreshness]) -> FreshnessSummary | None:
    """Return the freshness of a connection; None if none of its tables has a target."""
    ordered = worst_first(freshness)
    if not ordered:
        return None
    late = [one for one in ordered if one.state == "late"]
    return FreshnessSummary(ordered[0].state, len(late), late[0].due if late else None)


class FreshnessWatch:
    """Notes which tables have become late or are on time again, and adds an event once for each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: set[str] = set()
        self._left: list[str] = []
        self._begun = float("-inf")

    def follow(self, connection: str, section: ConnectionSection | None) -> None:
        """Watch the connection if it has a target; None: it is gone, or cannot be read."""
        if section is not None and has_target(section):
            self._watched.add(connection)
        else:
            self._watched.discard(connection)

    def check_next(self, store: Store, project: Project, now: datetime) -> list[str]:
        """Look at some of the connections: a worker's turn is to be short. Answers what could not be looked at."""
        if not self._left and self._clock() >= self._begun + ROUND:
            self._begun, self._left = self._clock(), sorted(self._watched)
        names, self._left = self._left[:AT_ONCE], self._left[AT_ONCE:]
        names = [name for name in names if name in self._watched]
        try:
            if names:
                note_freshness(store, project.for_connections(names), names, now)
        except ProjectError as error:  # one that is written meanwhile is looked at in the next round
            return [f"freshness: {error.message}"]
        return []


def note_freshness(store: Store, project: Project, names: Sequence[str], now: datetime) -> None:
    """Record which tables of these connections have become late or on time, with one event a connection for each."""
    known = store.fresh_tables.of(names)
    for name, freshness in freshness_of(store, project, names, now).items():
        late = {ref: one.due for ref, one in freshness.items() if one.state == "late" and one.due is not None}
        late = {ref: due for ref, due in late.items() if known[name][ref].late is None}
        back = [ref for ref, one in freshness.items() if one.state == "on_time" and known[name][ref].late is not None]
        silent = [
            ref
            for ref, table in known[name].items()
            if table.late is not None and (ref not in freshness or freshness[ref].state == "paused")
        ]
        if late or back or silent:
            with store.transaction(name):
                store.fresh_tables.note_on_time(name, silent)
                _tell(store, name, freshness, store.fresh_tables.note_late(name, late), late)
                if back := store.fresh_tables.note_on_time(name, back):
                    paths = sorted(freshness[ref].table for ref in back)
                    store.events.add(FreshnessRecovered(name, tuple(paths[:NAMED]), len(paths)))


def _tell(
    store: Store, name: str, freshness: Mapping[Ref, TableFreshness], new: Sequence[Ref], since: Mapping[Ref, datetime]
) -> None:
    if not new:
        return
    first = min(new, key=lambda ref: since[ref])
    paths, as_of = sorted(freshness[ref].table for ref in new), freshness[first].as_of
    begun = as_of.isoformat() if as_of else ""
    store.events.add(FreshnessLate(name, tuple(paths[:NAMED]), len(paths), since[first].isoformat(), begun))
