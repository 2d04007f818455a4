"""Puts one table back to what it was, so that the next sync reads again from there.

Only rows go back. The schema stays as it is accepted now; the cursor goes back with the rows, in the same commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase

from instep.crash import crashpoint
from instep.destinations.base import Commit
from instep.destinations.savepoints import KeepsSavepoints, Savepoint
from instep.errors import Blocked, InstepError
from instep.events import TableRestored
from instep.model import Run, TableRun
from instep.schema.names import destination_ref
from instep.schema.table import Table, table_fingerprint
from instep.sync.claim import claimed
from instep.sync.pipe import Pipe, Ref


@dataclass(frozen=True)
class Restoring:
    """From `now` to `point`, which has `rows`. `since`: how many commits are taken back. `again`: live columns that
    have no value in the old rows, or were filled since, and are filled again; `whole`: the whole table was read again
    since, and is so once more; `lost`: columns that came later and the source has no more."""

    table: Table
    ref: Ref
    now: Savepoint
    point: Savepoint
    rows: int
    since: int
    again: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    whole: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """For people, before it happens."""
        path, made = self.table.path, f" (run {self.point.run})" if self.point.run else ""
        found = [
            f"{path} goes back to snapshot {self.point.id} of {self.point.at:%Y-%m-%d %H:%M:%S} UTC{made}",
            f"{self.now.rows:,} rows now, {self.rows:,} then; commits since then: {self.since}",
            _reads(self.now.cursor, self.point.cursor),
        ]
        found += [f"column {name} came or was filled later: it is filled again by a backfill" for name in self.again]
        found += (
            [f"{path} was read again as a whole since then: the next sync does that once more"] if self.whole else []
        )
        found += [f"column {name} came later and is not at the source any more: its values go" for name in self.lost]
        return tuple(found)


def _reads(now: str, then: str) -> str:
    old, new = (json.loads(text) if text else None for text in (then, now))
    if old is None:
        return "the next sync reads the whole table again"
    reached = f", which had reached {new['upper']}" if new else ""
    return f"the next sync reads again from {old['column']} {old['upper']} on{reached}"


def savepoints(pipe: Pipe, path: str) -> tuple[Table, Sequence[Savepoint]]:
    """What the table with this path can be put back to, newest first. InstepError for an unknown table."""
    table, ref = _table(pipe, path)
    return table, _keeper(pipe).savepoints(ref)


def _keeper(pipe: Pipe) -> KeepsSavepoints:
    if isinstance(pipe.destination, KeepsSavepoints):
        return pipe.destination
    raise InstepError(f"a destination of type {pipe.destination.kind} keeps no snapshots", hint="restore a backup")


def _table(pipe: Pipe, path: str) -> tuple[Table, Ref]:
    known = {t.path: t for t in pipe.store.accepted.catalog(pipe.name).tables}
    if path not in known:
        near = get_close_matches(path, list(known), 1)
        hint = f"did you mean {near[0]}?" if near else "see `instep status` for the tables that are synced"
        raise InstepError(f"connection {pipe.name} has no table {path}", hint=hint)
    return known[path], destination_ref(known[path], pipe.naming)


def prepare(pipe: Pipe, path: str, snapshot: int | None = None, at: datetime | None = None) -> Restoring:
    """What putting a table back does: to a snapshot, or to what it was `at` a time. Writes nothing.

    Raises InstepError if there is no such snapshot, Blocked with the reason if the table cannot be put back to it.
    """
    table, points = savepoints(pipe, path)
    point = _point(path, points, snapshot, at)
    if point.why_not:
        raise Blocked(f"{path} cannot be put back to snapshot {point.id}: {point.why_not}", hint=_LIST.format(path))
    if point.current:
        raise Blocked(f"{path} is at snapshot {point.id} already", hint=_LIST.format(path))
    now = next(p for p in points if p.current)
    ref = destination_ref(table, pipe.naming)
    rows = _keeper(pipe).rows_at(ref, point.id)
    later = [c for c in table.columns if (c.alias or c.name) in point.later]
    filled = _filled_since(pipe, table, point)
    again = tuple(c.name for c in table.live if c in later or c.name in filled)
    lost = tuple(c.name for c in later if c.retained)
    return Restoring(table, ref, now, point, rows, points.index(point), again, lost, "" in filled)


def _filled_since(pipe: Pipe, table: Table, point: Savepoint) -> frozenset[str]:
    """Columns whose backfills ended after the savepoint: its rows may lack their values. "" for the whole table."""
    done = pipe.store.backfills.find(pipe.name, ("done",))
    return frozenset(b.column for b in done if b.table == table.ref and b.ended is not None and b.ended > point.at)


_LIST = "see `instep restore {} --list`"


def _point(path: str, points: Sequence[Savepoint], snapshot: int | None, at: datetime | None) -> Savepoint:
    if at is not None:
        found = next((p for p in points if p.at <= at), None)
        what = f"of {at:%Y-%m-%d %H:%M:%S %Z} or before"
    else:
        found, what = next((p for p in points if p.id == snapshot), None), f"{snapshot}"
    if found is None:
        why = "it has expired, or never was the table's"
        raise InstepError(f"{path} has no snapshot {what}: {why}", hint=_LIST.format(path))
    return found


def restore(pipe: Pipe, made: Restoring, allowed: Iterable[str] = ()) -> Run:
    """Does it as one run. Blocked unless one of the patterns `allowed` names the table, Conflict if the table has moved
    since `prepare`. Interrupted, the table is either as before or put back whole."""
    path = made.table.path
    if not any(fnmatchcase(path, pattern) for pattern in allowed):
        raise Blocked(f"the rows of {path} are put back", hint=f"name it: --allow-destructive '{path}'")
    with claimed(pipe, "restore", paused_too=True) as run:
        held = replace(pipe, run=run)
        _go_back(held, run, made)
        crashpoint("restore.before")
        pipe.destination.claim(made.ref, run.fence)
        commit = Commit(run.id, run.fence, made.point.cursor, table_fingerprint(made.table))
        _keeper(pipe).restore(made.ref, made.point.id, made.now.id, made.rows, commit)
        crashpoint("restore.after")
        _record(held, run, made)
        return run


def _go_back(pipe: Pipe, run: Run, made: Restoring) -> None:
    """Before the rows do: a crash in between must leave neither columns without values nor a cursor ahead of the
    rows."""
    with pipe.transaction():
        for name in (*made.again, *([""] if made.whole else [])):
            why = f"{made.table.path} was put back to what it was on {made.point.at:%Y-%m-%d %H:%M} UTC"
            pipe.store.backfills.want(pipe.name, made.table.ref, column=name, why=why)
        cursor = {made.table.ref: made.point.cursor}
        pipe.store.cursors.save(pipe.name, cursor, run=run.id, fence=run.fence)


def _record(pipe: Pipe, run: Run, made: Restoring) -> None:
    ref, path = made.table.ref, made.table.path
    with pipe.transaction():
        pipe.store.runs.record_tables(TableRun(run.id, ref, "done", "restore"))
        pipe.store.events.add(
            TableRestored(
                pipe.name,
                run.id,
                path,
                str(made.point.id),
                made.point.at.isoformat(),
                made.now.rows,
                made.rows,
                pipe.who,
            )
        )
