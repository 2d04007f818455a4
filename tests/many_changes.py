"""Stores with changes: some by hand, or as many as a large installation has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import insert

from instep.store.store import Store, utc_now
from instep.store.tables.catalogs import connections, reviews

KINDS = ("column.added", "column.removed", "table.added", "column.widened")


def fill(store: Store, changes: int, names: int, **more: Any) -> None:
    """Record this many changes of so many connections; `more`: columns that all of them have."""
    now = utc_now()
    with store._db.write() as transaction:
        known = {row[0] for row in transaction.execute(connections.select().with_only_columns(connections.c.name))}
        rows = [{"name": name_of(one), "created": now, "updated": now} for one in range(names)]
        transaction.execute(insert(connections), [one for one in rows if one["name"] not in known])
        transaction.execute(insert(reviews), [_row(at, names, now) | more for at in range(changes)])


def name_of(number: int) -> str:
    return f"conn{number:04d}"


def _row(at: int, names: int, now: Any) -> dict[str, Any]:
    table, column = f"table_{at // names}", f"col_{at % 40}"
    return {
        "id": f"c-{at:06x}",
        "connection": name_of(at % names),
        "key": f"k{at}",
        "kind": KINDS[at % 4],
        "table_schema": "public",
        "table_name": table,
        "column_name": column,
        "summary": f"column public.{table}.{column} is new",
        "change": {"kind": "column.added", "table": ["public", table], "after": {"name": column, "type": "string"},
                   "position": 1},
        "action": "review",
        "rule": "preset approve",
        "why": "waits for a review",
        "modifiers": {},
        "status": "open",
        "source_fingerprint": "f",
        "first_seen": now - timedelta(seconds=at // 10),
        "last_seen": now,
        "seen": 1,
        "evidence": {},
    }  # fmt: skip
