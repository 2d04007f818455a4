"""What an applied change has made of a table at the destination, as OpenLineage tells of it: created, altered, renamed,
written anew or dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from instep.errors import InstepError
from instep.ops.lineage_tables import LineageTables
from instep.ops.openlineage import Lifecycle, facet
from instep.project.project import Project
from instep.schema.change import TableRenamed, TableReplaced, change_from_dict, reverse, table_of
from instep.schema.kinds import Ref
from instep.schema.table import Table
from instep.store.logged import LoggedEvent
from instep.store.store import Store

CHANGES = ("change.applied", "change.undone", "change.mapped")


def altered(project: Project, store: Store, logged: LoggedEvent) -> Iterator[dict[str, Any]]:
    """The dataset that one event of `CHANGES` is about; none where nothing of the destination is another one, where
    the change is forgotten, and for a mapping that is on record as a change."""
    name, version = logged.connection, int(logged.data["version"])
    try:
        settings = project.of(name)
        before = LineageTables(settings, store, name, version - 1)
        after = LineageTables(settings, store, name, version)
        was, now, anew = _sides(store, logged, before, after)
    except InstepError:
        return
    if now is not None and now.alias:
        state = _state(was, now, anew)
        if state is not None:
            yield after.target(now).document(after.described(now) | _lifecycle(state, before, was))
    elif was is not None and was.alias and now is None:
        yield before.target(was).document(after.version() | _lifecycle("DROP", before, None))


def _sides(
    store: Store, logged: LoggedEvent, before: LineageTables, after: LineageTables
) -> tuple[Table | None, Table | None, bool]:
    """The table before and after, and whether it is another one of the same name."""
    if logged.type == "change.mapped":
        ref = None if logged.data.get("change") else _at(after, logged.data["table"])
        return (None, None, False) if ref is None else (before.catalog.get(ref), after.catalog.get(ref), False)
    change = change_from_dict(store.reviews.get(logged.data["change"]).change)
    change = reverse(change) if logged.type == "change.undone" else change
    ref = table_of(change)
    if ref is None:
        return None, None, False
    old = change.before.ref if isinstance(change, TableRenamed | TableReplaced) else ref
    return before.catalog.get(old), after.catalog.get(ref), isinstance(change, TableReplaced)


def _at(tables: LineageTables, path: str) -> Ref | None:
    return next((t.ref for t in tables.catalog.tables if t.path == path), None)


def _state(was: Table | None, now: Table, anew: bool) -> Lifecycle | None:
    if was is None or not was.alias:
        return "CREATE"
    if anew:
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
