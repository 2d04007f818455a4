"""Send due notifications: group them, make their messages, and record the result of each delivery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from instep.errors import InstepError
from instep.notify.channel import Channel, NotDelivered
from instep.notify.hooks import PREFIX
from instep.notify.lines import Link, MessageLine, lines_of
from instep.notify.message import Message
from instep.schema.catalog.catalog import Catalog
from instep.schema.changes.version import Count, Counts
from instep.spans import span, tell
from instep.store.history.outbox import Delivery
from instep.store.store import Store


def counted(store: Store, lines: Iterable[MessageLine]) -> Mapping[str, Counts]:
    """Return counts by connection, for those with a detected schema change."""
    by_name: dict[str, list[MessageLine]] = {}
    for line in lines:
        if line.kind and line.tone != "stopped":
            by_name.setdefault(line.connection, []).append(line)
    seen = {name: store.discoveries.get(name) for name in by_name}
    return {name: counts_of(d.catalog, by_name[name]) for name, d in seen.items() if d}


def counts_of(now: Catalog, lines: Iterable[MessageLine]) -> Counts:
    """Return the counts of a message. `now` is the source as last seen; tables of a connection that are not read
    count as unchanged."""
    notified = list(lines)
    fresh = {line.table for line in notified if line.kind == "table.added"}
    touched = {line.table for line in notified if line.kind.startswith(("column.", "key.", "cursor.", "table."))}
    gone = {line.table for line in notified if line.kind == "table.removed"}
    columns = {(line.table, line.column) for line in notified if line.column and _changed(line)}
    schemas = {table.partition(".")[0] for table in touched if "." in table}
    new = {line.table for line in notified if line.kind == "schema.added"}
    return Counts(
        _count(len(new), _of(notified, "schema.removed"), len(schemas - new), len({t.schema for t in now.tables})),
        _count(len(fresh), len(gone), len(touched - fresh - gone), len(now.tables)),
        _count(
            _of(notified, "column.added") + sum(line.columns for line in notified if line.kind == "table.added"),
            _of(notified, "column.removed") + sum(line.columns for line in notified if line.kind == "table.removed"),
            len(columns),
            sum(len(t.live) for t in now.tables),
        ),
    )


def _changed(line: MessageLine) -> bool:
    return line.kind.startswith("column.") and not line.kind.endswith((".added", ".removed"))


def _of(lines: Iterable[MessageLine], kind: str) -> int:
    return sum(line.kind == kind for line in lines)


def _count(new: int, deleted: int, updated: int, total: int) -> Count:
    return Count(new, deleted, updated, max(0, total - new - updated))


BACKOFF = (10.0, 30.0, 90.0, 300.0, 900.0, 3_600.0, 3 * 3_600.0, 6 * 3_600.0) + 5 * (12 * 3_600.0,)
"""Seconds before each further attempt: 13 of them, over three days."""
HOOK_BACKOFF = tuple(300.0 * number for number in range(1, 24))
"""Seconds before each further attempt of a webhook of the compatible API: 23 within a day, growing by five minutes."""
HOOK_RETRIED_FOR = timedelta(days=1)
"""No webhook of the compatible API is tried later than that after its first try."""
SILENCE = 1.5 * HOOK_RETRIED_FOR
"""Seconds without an attempt, as when no worker ran or the hook was off, after which the next is a first one."""
LONGEST = 24 * 3_600.0
RETENTION = timedelta(days=90)
"""The time that deliveries stay in the log."""


@dataclass(frozen=True)
class Result:
    """One attempt: `error` is empty if the message has arrived; `again` is when it is tried next, None if never."""

    delivery: Delivery
    error: str = ""
    again: datetime | None = None


@dataclass
class Sender:
    """Delivers due notices to their channels."""

    store: Store
    channel: Callable[[str], Channel]
    """Answers a channel by its name (InstepError if there is none)."""
    source_of: Callable[[str], str]
    """The source of a connection."""
    link: Link
    """The address of a change or run."""
    now: Callable[[], datetime]
    draw: Callable[[], float] = field(default=random.random, repr=False)
    retention: timedelta = RETENTION

    def send(
        self, *, seconds: float = 3_600.0, most: int = 10_000, longest_wait: timedelta = timedelta()
    ) -> list[Result]:
        """Send what is due, and begins with no further delivery after so many `seconds`. A channel that fails
        stops nobody: its delivery is tried again later. `longest_wait`: as the outbox gathers."""
        begun, done = time.monotonic(), list[Result]()
        self.store.outbox.gather(longest_wait)
        while len(done) < most and time.monotonic() - begun < seconds:
            delivery = self.store.outbox.claim()
            if delivery is None:
                break
            with span("notify", channel=delivery.channel, delivery=delivery.id):
                done.append(self._one(delivery))
                tell(error=done[-1].error)
        if done:
            self.store.outbox.forget(self.retention)
        return done

    def message(self, delivery: Delivery) -> Message:
        """Return the message of a delivery: the same at every attempt, as far as its changes are."""
        notified = self.store.outbox.events_of(delivery)
        lines = lines_of(self.store, notified, self.source_of, self.link)
        counts = counted(self.store, lines)
        return Message(
            delivery.id,
            delivery.created,
            tuple(lines),
            digest=not delivery.batch,
            counts=counts,
            notified=tuple(notified),
        )

    def _one(self, delivery: Delivery) -> Result:
        begun = time.monotonic()
        try:
            code = self.channel(delivery.channel).send(self.message(delivery))
        except InstepError as error:
            return self._failed(delivery, error, time.monotonic() - begun)
        except Exception as error:  # one message that cannot be made must not be tried for ever, nor stop the others
            return self._failed(delivery, InstepError(f"it cannot be sent: {type(error).__name__}"), 0.0)
        self.store.outbox.sent(delivery, seconds=time.monotonic() - begun, code=code)
        return Result(delivery)

    def _failed(self, delivery: Delivery, error: InstepError, seconds: float) -> Result:
        refused = error if isinstance(error, NotDelivered) else None
        hook = delivery.channel.startswith(PREFIX)
        begun, tries = self._day(delivery) if hook else (None, delivery.attempt - delivery.spent)
        again = self.next_attempt(tries, refused.after if refused else 0.0, begun + HOOK_RETRIED_FOR if begun else None)
        with self.store.transaction():
            self.store.outbox.failed(
                delivery, error.message, seconds=seconds, code=refused.code if refused else 0, again=again
            )
            if (refused and refused.gone) or (again is None and hook):
                self.store.outbox.close(delivery.channel, error.message)  # a hook that never answers is switched off
        return Result(delivery, error.message, again)

    def _day(self, delivery: Delivery) -> tuple[datetime, int]:
        """Return when the attempts of a delivery began, the present one included, and how many these are. Those before
        somebody had it tried again do not count."""
        begun, tries = self.now(), 1
        for earlier in reversed(self.store.outbox.attempts(delivery.number)):
            if earlier.attempt <= delivery.spent or begun - earlier.at > SILENCE:
                break
            begun, tries = earlier.at, tries + 1
        return begun, tries

    def next_attempt(self, attempt: int, after: float = 0.0, end: datetime | None = None) -> datetime | None:
        """Return the time of the next attempt after a failure: up to a fifth earlier or later than planned, and
        not before the receiver wants it; None after the last. A hook has an `end`, and its attempts count from when
        these tries began: its steps are never longer than planned, and what the receiver wants later than that is
        tried at the end, for the last time."""
        steps = HOOK_BACKOFF if end else BACKOFF
        now = self.now()
        if attempt > len(steps) or (end and now >= end):
            return None
        seconds = steps[attempt - 1] * (0.8 + (0.2 if end else 0.4) * self.draw())
        next_attempt = now + timedelta(seconds=max(seconds, min(after, LONGEST)))
        return min(next_attempt, end) if end else next_attempt
