"""Pausing and resuming a connection or one of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from instep.errors import Blocked, argument
from instep.events import Paused, Resumed
from instep.model import Pause, Review
from instep.store.store import Store

Ref = tuple[str, str]
BREAKING = ("key.changed", "key.removed", "cursor.changed", "cursor.removed")
PAUSES = ("pause_table", "pause_connection")


@dataclass(frozen=True)
class ActivePause:
    """A pause in effect."""

    reason: str
    """Reason why it was paused."""
    since: datetime
    """Time when it was paused."""
    change: str
    """The id of the change that has paused it; "" for a person's pause."""
    table: str | None
    """The table as `schema.table`; None for the whole connection."""


def active(store: Store, connection: str) -> tuple[ActivePause, ...]:
    """Return the pauses of a connection and its tables that hold now."""
    pauses = store.pauses.active(connection)
    return tuple(
        ActivePause(p.reason, p.since, p.change, ".".join(filter(None, p.table or ())) or None) for p in pauses
    )


def pause(store: Store, connection: str, reason: str, table: Ref | None = None) -> bool:
    """False if it is paused manually already."""
    with store.transaction():
        new = store.pauses.pause(connection, reason, table=table)
        if new:
            store.events.add(Paused(connection, reason, ".".join(table) if table else ""))
    return new


def resume(store: Store, connection: str, who: str, table: Ref | None = None) -> list[Pause]:
    """End the pauses. Blocked as `check_resumable` has it."""
    check_resumable(store, connection, table)
    with store.transaction():
        ended = store.pauses.resume(connection, who=who, table=table)
        if ended:
            store.events.add(Resumed(connection, who, ".".join(table) if table else ""))
    return ended


def check_resumable(store: Store, connection: str, table: Ref | None = None) -> None:
    """Raise Blocked while a change is open that stops the connection, or breaks the table."""
    for review in store.reviews.find(connection, ("open",)):
        if _stops(review, table):
            raise Blocked(
                f"change {review.id} is still open: {review.summary}",
                hint=f"decide it first: `instep changes approve {review.id}` or `reject`{_command(review)}",
            )


def _command(review: Review) -> str:
    """Return the command that settles a change of a key or cursor by another one."""
    what = review.kind.partition(".")[0]
    path = ".".join(filter(None, review.table))
    return f", or `instep table set-{what} {argument(path)} ...`" if review.kind in BREAKING else ""


def _stops(review: Review, table: Ref | None) -> bool:
    """Return whether the review blocks the connection, or this table of it. A table's own change never blocks the
    rest of its connection."""
    if table is None:
        return review.action == "pause_connection"
    return review.table == table and (review.kind in BREAKING or review.action in PAUSES)
