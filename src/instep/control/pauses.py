"""Pausing and resuming a connection or one of its tables."""

from __future__ import annotations

from instep.errors import Blocked
from instep.events import Paused, Resumed
from instep.model import Pause, Review
from instep.store.store import Store

Ref = tuple[str, str]
BREAKING = ("key.changed", "key.removed", "cursor.changed", "cursor.removed")
PAUSES = ("pause_table", "pause_connection")


def pause(store: Store, connection: str, reason: str, table: Ref | None = None) -> bool:
    """False if it is paused by hand already."""
    with store.transaction():
        new = store.pauses.pause(connection, reason, table=table)
        if new:
            store.events.add(Paused(connection, reason, ".".join(table) if table else ""))
    return new


def resume(store: Store, connection: str, who: str, table: Ref | None = None) -> list[Pause]:
    """Ends the pauses; refused (Blocked) while a change is open that stops the connection, or breaks the table."""
    for review in store.reviews.find(connection, ("open",)):
        if _stops(review, table):
            raise Blocked(
                f"change {review.id} is still open: {review.summary}",
                hint=f"decide it first: `instep changes approve {review.id}` or `reject`{_command(review)}",
            )
    with store.transaction():
        ended = store.pauses.resume(connection, who=who, table=table)
        if ended:
            store.events.add(Resumed(connection, who, ".".join(table) if table else ""))
    return ended


def _command(review: Review) -> str:
    """The command that settles a change of a key or cursor by another one."""
    what = review.kind.partition(".")[0]
    path = ".".join(filter(None, review.table))
    return f", or `instep table set-{what} {path} ...`" if review.kind in BREAKING else ""


def _stops(review: Review, table: Ref | None) -> bool:
    """A table's own change never keeps the rest of its connection from running."""
    if table is None:
        return review.action == "pause_connection"
    return review.table == table and (review.kind in BREAKING or review.action in PAUSES)
