"""The effect of an applied change on a table at the destination, as OpenLineage has it: created, altered, renamed,
rewritten or dropped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from instep.errors import InstepError
from instep.monitoring.openlineage import Lifecycle, LineageTables, facet
from instep.project.project import Project
from instep.schema.catalog.catalog import Table
from instep.schema.changes.describe import (
    TableAdded,
    TableRemoved,
    TableRenamed,
    TableReplaced,
    change_from_dict,
    reverse,
    table_of,
)
from instep.schema.changes.kinds import Ref
from instep.store.history.recorded_event import LoggedEvent
from instep.store.store import Store

CHANGES = ("change.applied", "change.undone", "change.mapped")
PAGE = 1_000


@dataclass(frozen=True)
class AcceptedVersion:
    """The tables before and after one version of the accepted schema, of which `logged` is an event."""

    store: Store
    logged: LoggedEvent
    before: LineageTables
    after: LineageTables

    @cached_property
    def renamed(self) -> Mapping[Ref, Ref]:
        """New to old name of the tables whose rename was applied with it, or is taken back with it."""
        ids = [e.data["change"] for page in self._events() for e in page]
        parts = (ids[at : at + PAGE] for at in range(0, len(ids), PAGE))
        changes = (r.change for part in parts for r in self.store.reviews.of_ids(part) if r.kind == TableRenamed.kind)
        return {c.after.ref: c.before.ref for c in map(change_from_dict, changes) if isinstance(c, TableRenamed)}

    def _events(self) -> Iterator[list[LoggedEvent]]:
        """Yield the earlier ones, then the later ones: all were logged in one transaction."""
        log, logged = self.store.events, self.logged
        number = logged.number + 1
        while page := self._own(
            log.latest(connection=logged.connection, types=(logged.type,), limit=PAGE, before=number)
        ):
            yield page
            number = page[-1].number
        number = logged.number
        while page := self._own(log.after(number, connection=logged.connection, types=(logged.type,), limit=PAGE)):
            yield page
            number = page[-1].number

    def _own(self, page: list[LoggedEvent]) -> list[LoggedEvent]:
        return [e for e in page if e.data["version"] == self.logged.data["version"]]


class Versions:
    """Keeps the last one: its events come one after the other, and a first load has one for each of its tables."""

    def __init__(self, project: Project, store: Store) -> None:
        self._project, self._store = project, store
        self._last: tuple[tuple[str, int, str], AcceptedVersion] | None = None

    def of(self, logged: LoggedEvent) -> AcceptedVersion:
        """Raise InstepError for a connection or a version that there is no more."""
        name, number = logged.connection, int(logged.data["version"])
        version = (name, number, logged.type)
        if self._last is None or self._last[0] != version:
            settings = self._project.of(name)
            before, after = (LineageTables(settings, self._store, name, at) for at in (number - 1, number))
            self._last = version, AcceptedVersion(self._store, logged, before, after)
        return self._last[1]


def altered(versions: Versions, store: Store, logged: LoggedEvent) -> Iterator[dict[str, Any]]:
    """Yield the dataset that one event of `CHANGES` is about; none where nothing of the destination is another one,
    where the change is forgotten, and for a mapping that is on record as a change."""
    try:
        version = versions.of(logged)
        was, now, is_replaced = _sides(store, logged, version)
    except InstepError:
        return
    before, after = version.before, version.after
    if now is not None and now.alias:
        state = _state(was, now, is_replaced)
        if state is not None:
            yield after.target(now).document(after.described(now) | _lifecycle(state, before, was))
    elif was is not None and was.alias and now is None:
        yield before.target(was).document(after.version() | _lifecycle("DROP", before, None))


def _sides(store: Store, logged: LoggedEvent, version: AcceptedVersion) -> tuple[Table | None, Table | None, bool]:
    """Return the table before and after, and whether it is another one of the same name."""
    before, after = version.before.catalog, version.after.catalog
    if logged.type == "change.mapped":
        ref = None if logged.data.get("change") else _at(version.after, logged.data["table"])
        return (None, None, False) if ref is None else (before.get(ref), after.get(ref), False)
    change = change_from_dict(store.reviews.get(logged.data["change"]).change)
    undone = logged.type == "change.undone"
    change = reverse(change) if undone else change
    ref = table_of(change)
    if ref is None:
        return None, None, False
    if isinstance(change, TableAdded | TableRemoved | TableRenamed | TableReplaced):
        old = change.before.ref if isinstance(change, TableRenamed | TableReplaced) else ref
        return before.get(old), after.get(ref), isinstance(change, TableReplaced)
    old = version.renamed.get(ref, ref)
    was, now = (before.get(ref), after.get(old)) if undone else (before.get(old), after.get(ref))
    return _called(was, now) if old != ref else was, now, False


def _called(was: Table | None, now: Table | None) -> Table | None:
    """Return the table under its new name, so that a change of a part does not tell of the table's rename once more."""
    if was is None or now is None or not was.alias:
        return was
    return replace(was, schema=now.schema, name=now.name, alias=now.alias)


def _at(tables: LineageTables, path: str) -> Ref | None:
    return next((t.ref for t in tables.catalog.tables if t.path == path), None)


def _state(was: Table | None, now: Table, is_replaced: bool) -> Lifecycle | None:
    if was is None or not was.alias:
        return "CREATE"
    if is_replaced:
        return "OVERWRITE"
    if was.alias != now.alias:
        return "RENAME"
    return None if was == replace(now, retained=was.retained) else "ALTER"  # what is kept is as it was


def _lifecycle(state: Lifecycle, before: LineageTables, was: Table | None) -> dict[str, Any]:
    if state != "RENAME" or was is None:
        return facet("lifecycleStateChange", lifecycleStateChange=state)
    old = before.target(was)
    previous = {"namespace": old.namespace, "name": old.name}
    return facet("lifecycleStateChange", lifecycleStateChange=state, previousIdentifier=previous)
