"""Restore one table to an earlier snapshot, cursor included, so that the next sync continues from there.

Only rows go back. The schema stays as it is accepted now; the cursor goes back with the rows, in the same commit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from instep.crash import crashpoint
from instep.destinations.base import Commit, Savepoint
from instep.destinations.facets import SavepointsFacet
from instep.errors import Blocked, Conflict, InstepError
from instep.events import TableRestored
from instep.model import Run, TableRun
from instep.operations.repair.list_savepoints import ListSavepointsRequest
from instep.operations.repair.restore import RestoreRequest
from instep.operations.spec import DirectWork, Preview, Work
from instep.operations.values import RunKind
from instep.schema.catalog.catalog import Table, table_fingerprint
from instep.schema.catalog.globs import fits_glob
from instep.schema.planning.naming import destination_ref
from instep.sources.stream import Streams
from instep.store.catalogs.backfills import Backfill
from instep.sync.claim import claimed
from instep.sync.context import Ref, SyncContext
from instep.sync.detection.chosen_keys import starts
from instep.sync.schema_changes.column_treatments import ColumnTreatments
from instep.sync.schema_changes.overflow_columns import EXTRA
from instep.sync.two_people import in_text, two_people

_MENDING: tuple[RunKind, ...] = ("replay", "repair")
_SENT_AGAIN = "the next sync lets the source send everything again: it does not know which rows went back"


@dataclass(frozen=True)
class RestorePreview:
    """Preview of a restore from `now` to `point`, which has `rows`."""

    table: Table
    ref: Ref
    now: Savepoint
    point: Savepoint
    rows: int
    since: int  # commits that are taken back
    again: tuple[str, ...] = ()  # live columns without a value in the old rows, or filled since: filled again
    lost: tuple[str, ...] = ()  # columns that came later and the source no longer has
    whole: bool = False  # rows came since by more than a cursor tells: the table is read in full once more
    promoted: tuple[tuple[str, str], ...] = ()  # (column, change): values that were taken out of JSON since
    hidden: tuple[str, ...] = ()  # hashed columns that the old rows may have in clear
    sent: bool = False  # its stream has to send everything again
    interrupted: str = ""  # the run that restored the rows and was killed before it recorded that

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the preview's lines for people."""
        if self.interrupted:
            back = f"{self.table.path} was restored to snapshot {self.point.id} by run {self.interrupted}"
            return (f"{back}, which was interrupted: its record is completed",)
        path, by_run = self.table.path, f" (run {self.point.run})" if self.point.run else ""
        lines = [
            f"{path} goes back to snapshot {self.point.id} of {self.point.at:%Y-%m-%d %H:%M:%S} UTC{by_run}",
            f"{self.now.rows:,} rows now, {self.rows:,} then; commits since then: {self.since}",
            _SENT_AGAIN if self.sent else _reads(self.now.cursor, self.point.cursor),
        ]
        lines += [f"column {name} was added or filled later: a backfill fills it again" for name in self.again]
        lines += [f"values of column {name} are taken out of the kept JSON again" for name, _ in self.promoted]
        if self.whole and not self.sent:
            lines.append(
                f"{path} was read as a whole since then, by another cursor, or its rows were repaired or replayed: "
                "the next sync reads the whole table"
            )
        lines += [
            f"column {name} is hashed: if it was not then, its values are in clear until the table has been read, and "
            "for good in rows that the source has deleted"
            for name in self.hidden
        ]
        lines += [
            f"column {name} was added later and is no longer at the source: its values are lost" for name in self.lost
        ]
        return tuple(lines)

    def document(self) -> dict[str, Any]:
        """Return the record as JSON has it; `snapshot` is a text, as its number is larger than some readers of JSON
        can hold."""
        return {
            "table": self.table.path,
            "snapshot": str(self.point.id),
            "at": self.point.at,
            "rows_now": self.now.rows,
            "rows_then": self.rows,
            "commits_since": self.since,
            "filled_again": list(self.again),
            "read_again": self.whole,
            "lost": list(self.lost),
            "does": list(self.lines),
        }


def _reads(now: str, then: str) -> str:
    old, new = (json.loads(text) if text else None for text in (then, now))
    if old is None or (new is not None and old.get("column") != new.get("column")):
        return "the next sync reads the whole table again"
    if "log" in old:
        return "the next sync reads the log from there on, or the whole table if the server no longer has it"
    reached = f", which had reached {new['upper']}" if new else ""
    return f"the next sync reads again from {old['column']} {old['upper']} on{reached}"


def savepoints(context: SyncContext, path: str) -> tuple[Table, Sequence[Savepoint]]:
    """Return what the table with this path can be put back to, newest first. InstepError for an unknown table."""
    table = context.table(path)
    return table, _keeper(context).savepoints(destination_ref(table, context.naming))


def _keeper(context: SyncContext) -> SavepointsFacet:
    if (keeper := context.destination.lifecycle.savepoints) is not None:
        return keeper
    if context.destination.shard is not None:
        raise InstepError(
            "a shared table cannot be restored: its snapshots have the rows of all its connections",
            hint="`instep sync --full` loads the rows of this connection again",
        )
    raise InstepError(f"a destination of type {context.destination.kind} keeps no snapshots", hint="restore a backup")


def prepare(context: SyncContext, path: str, snapshot: int | None = None, at: datetime | None = None) -> RestorePreview:
    """Return what putting a table back does: to a snapshot, or to what it was `at` a time. Writes nothing.

    Raises InstepError if there is no such snapshot, Blocked with the reason if the table cannot be put back to it.
    """
    table, points = savepoints(context, path)
    point = _point(path, points, snapshot, at)
    if point.why_not:
        raise Blocked(f"{path} cannot be restored to snapshot {point.id}: {point.why_not}", hint=_LIST.format(path))
    if point.current and (run := _interrupted(context, destination_ref(table, context.naming))):
        before = next((p for p in points if not p.current), point)
        return RestorePreview(
            table, destination_ref(table, context.naming), before, point, point.rows, 0, interrupted=run
        )
    if point.current:
        raise Blocked(f"{path} is at snapshot {point.id} already", hint=_LIST.format(path))
    now = next(p for p in points if p.current)
    ref = destination_ref(table, context.naming)
    rows = _keeper(context).rows_at(ref, point.id)
    later = [c for c in table.columns if (c.alias or c.name) in point.later]
    done = _filled_since(context, table, point)
    filled = {b.column for b in done if b.scope != EXTRA}
    again = tuple(c.name for c in table.live if c in later or c.name in filled)
    promoted = tuple((b.column, b.change) for b in done if b.scope == EXTRA and b.column in table.by_name)
    lost = tuple(c.name for c in later if c.retained and c.name not in dict(promoted))
    whole = "" in filled or _starts_later(context, table, point) or _is_mended_since(context, table, point)
    treatments = ColumnTreatments(context, table)
    hidden = tuple(c.name for c in table.live if "" in filled and treatments.of(c.name).is_hashed)
    if sent := isinstance(context.source, Streams):
        again, whole = (), True
    since = points.index(point)
    return RestorePreview(table, ref, now, point, rows, since, again, lost, whole, promoted, hidden, sent)


def _starts_later(context: SyncContext, table: Table, point: Savepoint) -> bool:
    """Return whether the cursor of today was not the one of the savepoint and begins at a value: the rows below it that
    came after the savepoint would be missed."""
    then = json.loads(point.cursor).get("column") if point.cursor else None
    return bool(table.cursor and starts(context)(table)) and then != table.cursor


def _interrupted(context: SyncContext, ref: Ref) -> str:
    """Return the run that made the table's last commit, if that was a restore which is not on record."""
    state = context.destination.schema.state(ref)
    with suppress(InstepError):
        if state and context.store.runs.get(state.run).kind == "restore" and not context.store.runs.tables(state.run):
            return state.run
    return ""


def _filled_since(context: SyncContext, table: Table, point: Savepoint) -> list[Backfill]:
    """Return backfills that ended after the savepoint: its rows may lack their values."""
    done = context.store.backfills.find(context.name, ("done",))
    return [b for b in done if b.table == table.ref and b.ended is not None and b.ended > point.at]


def _is_mended_since(context: SyncContext, table: Table, point: Savepoint) -> bool:
    """Return whether a repair or a replay has changed rows after the savepoint that no cursor tells of. A run that died
    has recorded no table, and one of a table that was renamed names another."""
    known = context.store.accepted.catalog(context.name).by_ref
    for run, tables in context.store.runs.with_tables(context.name, _MENDING, point.at):
        mine = [t for t in tables if t.table == table.ref or t.table not in known]
        if any(t.inserted or t.updated or t.deleted for t in mine) or (run.status != "done" and not tables):
            return True
    return False


_LIST = "see `instep restore {} --list`"


def _point(path: str, points: Sequence[Savepoint], snapshot: int | None, at: datetime | None) -> Savepoint:
    if at is not None:
        point = next((p for p in points if p.at <= at), None)
        what = f"of {at:%Y-%m-%d %H:%M:%S %Z} or before"
    else:
        point, what = next((p for p in points if p.id == snapshot), None), f"{snapshot}"
    if point is None:
        why = "it has expired, or is not one of the table"
        raise InstepError(f"{path} has no snapshot {what}: {why}", hint=_LIST.format(path))
    return point


def restore(context: SyncContext, preview: RestorePreview, allowed: Iterable[str] = ()) -> Run:
    """Restore the rows as one run. Blocked unless one of the patterns `allowed` names the table, and if four_eyes want
    a second person; Conflict if the table has moved since `prepare`. Interrupted, the table is either as before or
    restored as a whole."""
    path = preview.table.path
    if not any(fits_glob(path, pattern) for pattern in allowed):
        raise Blocked(f"the rows of {path} are restored", hint=f"name it: --allow-destructive '{path}'")
    what = f"{in_text(path)}: rows as of snapshot {preview.point.id}"
    agreed = nullcontext() if preview.interrupted else two_people(context, "restore", what)
    with agreed, claimed(context, "restore", paused_too=True) as run:
        locked = replace(context, run=run)
        if preview.interrupted:
            if _interrupted(context, preview.ref) != preview.interrupted:
                raise _changed_since_shown(preview)
            _record(locked, preview.interrupted, preview)
            return run
        _go_back(locked, run, preview)
        crashpoint("restore.before")
        context.destination.write.claim(preview.ref, run.fence)
        commit = Commit(run.id, run.fence, preview.point.cursor, table_fingerprint(preview.table))
        _keeper(context).restore(preview.ref, preview.point.id, preview.now.id, preview.rows, commit)
        crashpoint("restore.after")
        _record(locked, run.id, preview)
        return run


def _go_back(context: SyncContext, run: Run, preview: RestorePreview) -> None:
    """Record the restore before the rows change: a crash in between must not lose values or leave the cursor ahead."""
    why = f"{preview.table.path} was restored to its state of {preview.point.at:%Y-%m-%d %H:%M} UTC"
    with context.transaction():
        for name in (*preview.again, *([""] if preview.whole else [])):
            context.store.backfills.request(context.name, preview.table.ref, column=name, why=why)
        for name, change in preview.promoted:
            context.store.backfills.request(
                context.name, preview.table.ref, column=name, why=why, change=change, scope=EXTRA
            )
        context.store.loaded.lack(context.name, preview.table.ref, preview.again)
        cursor = {preview.table.ref: preview.point.cursor}
        context.store.cursors.save(context.name, cursor, run=run.id, fence=run.fence)


def _record(context: SyncContext, run: str, preview: RestorePreview) -> None:
    ref, path = preview.table.ref, preview.table.path
    with context.transaction():
        context.store.runs.record_tables(TableRun(run, ref, "done", "restore"))
        context.store.events.add(
            TableRestored(
                context.name,
                run,
                path,
                str(preview.point.id),
                (preview.point.made or preview.point.at).isoformat(),
                preview.now.rows,
                preview.rows,
                context.who,
            )
        )


class Restore(Work):
    """The work of the operation `restore`."""

    def prepare(self, context: SyncContext, request: RestoreRequest) -> Preview:
        """Find out what the restore does; Conflict if the table is not at the request's base."""
        snapshot = int(request.snapshot) if request.snapshot else None
        preview = prepare(context, request.table, snapshot, request.at)
        base = str(preview.now.id)
        if request.base not in (None, base):
            raise _changed_since_shown(preview)
        bound = RestoreRequest(table=request.table, snapshot=str(preview.point.id), base=base)
        document = {**preview.document(), "at": preview.point.at.isoformat()}
        return Preview(context.name, bound, document, preview.lines, prepared=preview)

    def execute(self, context: SyncContext, preview: Preview, allow: Sequence[str]) -> Mapping[str, Any]:
        """Put the rows back; return the run."""
        return {"run": restore(context, preview.prepared, allow).id}


@dataclass(frozen=True)
class SavepointList:
    """Snapshots that a table can be restored to, newest first."""

    table: str
    savepoints: tuple[Savepoint, ...]


class ListSavepoints(DirectWork):
    """The work of the operation `list_savepoints`."""

    def run(self, context: SyncContext, request: ListSavepointsRequest) -> SavepointList:
        """Look at the table's snapshots; InstepError for an unknown table."""
        table, points = savepoints(context, request.table)
        return SavepointList(table.path, tuple(points))

    def document(self, result: SavepointList) -> Mapping[str, Any]:
        """Return the list with ids as texts: their numbers are larger than some readers of JSON can hold."""
        document = super().document(result)
        return {
            **document,
            "savepoints": [{**savepoint, "id": str(savepoint["id"])} for savepoint in document["savepoints"]],
        }


def _changed_since_shown(preview: RestorePreview) -> Conflict:
    return Conflict(
        f"table {preview.table.path} has changed since it was shown", hint="run the command again, then restore"
    )
