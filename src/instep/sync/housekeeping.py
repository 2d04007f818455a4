"""Housekeeping of a sync: daily maintenance, and removal of staged files that no table references."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from instep.destinations.base import LoadState
from instep.errors import InstepError
from instep.model import Run
from instep.schema.planning.naming import destination_ref
from instep.stage.files.place import remove
from instep.sync.aliases import refresh
from instep.sync.context import Ref, SyncContext

if TYPE_CHECKING:
    from instep.sync.loading.table_load import Load


def is_first_today(context: SyncContext, run: Run) -> bool:
    """Return whether no sync before this run has ended well on its day (UTC)."""
    last = next(
        (r for r in context.store.runs.history(context.name, kind="sync") if r.status in ("done", "partial")), None
    )
    return last is None or last.started.date() != run.started.date()


def forget_old_names(context: SyncContext, run: Run) -> None:
    """End old names whose time is over, and show the others as the tables are by now. Not only once a day: a load may
    have brought a table of another shape."""
    refresh(context, run, last=True)


def forget_dropped(context: SyncContext, run: Run) -> list[str]:
    """Purge expired records for undoing, of all tables; return their names. What cannot be purged now is tried again
    the next day."""
    if not is_first_today(context, run):
        return []
    tables = context.store.accepted.catalog(context.name).tables
    with suppress(InstepError):
        return context.destination.lifecycle.purge_expired(
            [destination_ref(t, context.naming) for t in tables if t.alias], run.fence
        )
    return []


PASSES = 3
"""The most times that tables are read in one run: again if their schema changed while they were read."""


def folder(run: str, attempt: int) -> str:
    """Return where one pass of a run stages the files of a table: no two passes share a folder."""
    return run if attempt == 0 else f"{run}-{attempt}"


def discard(context: SyncContext, loads: Iterable[Load]) -> None:
    """Remove the staged files of loads that will not be committed."""
    for load in loads:
        with suppress(InstepError):
            target = context.destination.write.target(load.ref)
            remove(f"{target.location}/{load.folder}", target.io)


def dead_runs(context: SyncContext, run: Run) -> list[Run]:
    """Return runs before this one that ended badly, as far back as the history is worth reading."""
    runs = context.store.runs.history(context.name, limit=100)
    return [r for r in runs if r.fence < run.fence and r.status not in ("running", "done") and r.kind != "maintain"]


def free_full_disk(context: SyncContext, run: Run) -> None:
    """Remove what runs that ended badly wrote and did not commit if the destination's disk is full: the claim of a
    table, after which that is done else, could not be written."""
    dead = dead_runs(context, run)
    if not dead or context.destination.lifecycle.has_space():
        return
    over = context.store.runs.unable_to_commit(r.id for r in dead)
    dead = [r for r in dead if r.id in over]
    for table in context.store.accepted.catalog(context.name).tables:
        ref = destination_ref(table, context.naming)
        with suppress(InstepError):
            remove_uncommitted_files(context, dead, ref, context.destination.schema.state(ref))


def remove_uncommitted_files(context: SyncContext, dead: Iterable[Run], ref: Ref, state: LoadState | None) -> None:
    """Remove what dead runs wrote for a table and did not commit.

    The files of runs before the table's last data commit were removed before that commit. The run of that commit
    itself may have died before it cleared what it had staged.
    """
    if left := uncommitted(dead, state):
        context.destination.lifecycle.remove_uncommitted_files(ref, left)


def uncommitted(dead: Iterable[Run], state: LoadState | None) -> dict[str, int]:
    """Return the fences, by id, of runs that have not committed to a table, judged by its last data commit."""
    last = state.fence if state else 0
    return {r.id: r.fence for r in dead if r.fence > last or (r.fence == last and r.status == "failed")}
