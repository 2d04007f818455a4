"""What the first sync of a day does beside its tables."""

from __future__ import annotations

from contextlib import suppress

from instep.errors import InstepError
from instep.model import Run
from instep.schema.planning.naming import destination_ref
from instep.sync.aliases import refresh
from instep.sync.context import SyncContext


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
    """Let go of what the destination keeps for undoing once its time is over, of all tables; names what went. What
    cannot be let go now is tried again the next day."""
    if not is_first_today(context, run):
        return []
    tables = context.store.accepted.catalog(context.name).tables
    with suppress(InstepError):
        return context.destination.lifecycle.purge_expired(
            [destination_ref(t, context.naming) for t in tables if t.alias], run.fence
        )
    return []
