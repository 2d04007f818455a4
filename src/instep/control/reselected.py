"""What instep.yml or a command has chosen otherwise since the last load, for `status`: from the store alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from instep.control.reviews import waiting
from instep.control.selections import Place, place_of
from instep.project.project import Project
from instep.schema.read import ColumnRead, TableRead
from instep.schema.reselect import Turned, is_read_again, turned
from instep.schema.selection import column_is_on, hashed, is_on
from instep.schema.table import Table
from instep.store.store import Store


def reselected(project: Project, store: Store, connection: str) -> list[tuple[Turned, bool]]:
    """The columns, and whether the next sync reads their whole table. Tables of which a whole backfill is recorded
    are left out."""
    known = store.loaded.of(connection)
    if not known:
        return []
    whole = {b.table for b in store.backfills.waiting(connection) if b.scope == "table"}
    place = place_of(project, store, connection)
    tables = (t for t in place.accepted.tables if not t.retained and t.ref not in whole and is_on(place.now, t)[0])
    found = (one for t in tables for one in turned(_read(place, t), known.get(t.ref, ())))
    return [(one, _whole(place, one)) for one in found]


def decided(project: Project, store: Store, connection: str) -> dict[str, Any]:
    """What `status` says of decisions: how many changes wait for one, and what was chosen since the last load."""
    chosen = [{"column": t.path, "is": t.what, "reads_table": w} for t, w in reselected(project, store, connection)]
    return {"waiting_changes": len(waiting(store, connection)), "reselected": chosen}


def _read(place: Place, table: Table) -> TableRead:
    return TableRead(table, table, tuple(_columns(place, table)))


def _columns(place: Place, table: Table) -> Iterator[ColumnRead]:
    for column in table.live:
        on = column_is_on(place.now, table, column)[0]
        yield ColumnRead(column, column if on else None, hashed(place.now, table.ref, column.name))


def _whole(place: Place, one: Turned) -> bool:
    return is_read_again(one.table.ref, one.column, one.what, place.policy, place.tags)
