# ruff: noqa: S608 - columns are numbered
"""Values of a column that was dropped and came back, for rows that have none: by key, as they were before the drop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from instep.destinations.base import Commit, Ref
from instep.destinations.delta.change import Change
from instep.destinations.delta.engine import as_table, engine, run, table_rows
from instep.destinations.delta.held import Held, require
from instep.destinations.delta.keep import version_before
from instep.destinations.delta.rewrite import Edit, edited
from instep.destinations.delta.shape import BEFORE
from instep.destinations.delta.warehouse import Warehouse


def refill(warehouse: Warehouse, ref: Ref, column: str, commit: Commit) -> int:
    """In one commit; rows that have a value keep it. Returns how many rows got one. Keys and the column are read."""
    held = require(warehouse, ref)
    held.record.check(commit.fence)
    key, state = held.record.table.key, held.state()
    made = next(f for f in held.columns if f.name == column)
    before = version_before(held, int(made.facts[BEFORE])) if BEFORE in made.facts else None
    names = _names_then(held, before, (*key, column)) if before else None
    if not key or before is None or names is None or state is None:
        return 0
    edit = _lost(held, before, (*key, column), names)
    if not len(edit.at):
        return 0
    own = replace(commit, cursor=state.cursor, accepted=state.accepted)
    change = Change(held, held.record.after_load(own, held.rows, new=0))
    edited(change, [edit], (), commit)
    change.land("UPDATE", own, warehouse)
    return len(edit.at)


def _names_then(held: Held, before: Held, names: tuple[str, ...]) -> list[str] | None:
    """What columns were called in an older version; None if one was not there."""
    then = {f.physical: f.name for f in before.columns}
    now = {f.name: f.physical for f in held.columns}
    found = [then[now[n]] for n in names if now[n] in then]
    return found if len(found) == len(names) else None


def _lost(held: Held, before: Held, names: tuple[str, ...], then: list[str]) -> Edit:
    """The rows without a value that had one, by key, and that value."""
    last = len(names) - 1
    same = " AND ".join(f"t.c{i} = o.c{i}" for i in range(last))
    with engine() as db:
        db.register("was", table_rows(before, then))
        run(db, f"CREATE TEMP TABLE o AS SELECT * FROM was WHERE c{last} IS NOT NULL")
        db.register("t", table_rows(held, names))
        rows = as_table(db, f"SELECT t.f, t.p, o.c{last} FROM t JOIN o ON {same} WHERE t.c{last} IS NULL")
    at = np.stack([rows.column(i).to_numpy().astype(np.int64) for i in (0, 1)], axis=1)
    return Edit(at, rows.select([2]).rename_columns([names[last]]))
