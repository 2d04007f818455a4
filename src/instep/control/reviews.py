"""A person's answers to changes that wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from instep.control.times import utc
from instep.errors import InstepError, visible
from instep.events import ChangeApproved, ChangeIgnored, ChangeRejected, ChangeReopened, ChangeSnoozed, Event
from instep.model import Review
from instep.operations.values import Answer, ReviewStatus
from instep.schema.catalog.globs import fits_glob

if TYPE_CHECKING:
    from instep.store.store import Store

_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True)
class ChangeFilter:
    """Filter for changes: by id, or open ones that match."""

    ids: tuple[str, ...] = ()
    connection: str | None = None
    patterns: tuple[str, ...] = ()
    """Fit table.column or the kind."""
    kinds: tuple[str, ...] = ()
    """A kind or family."""
    tables: tuple[str, ...] = ()
    """The table. Those of different sorts must all fit, of one sort any."""

    @property
    def filters(self) -> bool:
        return bool(self.patterns or self.kinds or self.tables)

    def fits(self, review: Review) -> bool:
        table = ".".join(filter(None, review.table))
        path = ".".join(filter(None, (*review.table, review.column)))
        return (
            _any(self.patterns, path, review.kind)
            and _any(self.kinds, review.kind, review.kind.partition(".")[0])
            and _any(self.tables, table)
        )


def _any(patterns: Sequence[str], *texts: str) -> bool:
    return not patterns or any(fits_glob(text, p) for p in patterns for text in texts)


def waits(review: Review, now: datetime) -> bool:
    """Return whether an open change needs a person now; one that policy accepts or has listed as switched off does not,
    nor does a snoozed one."""
    asleep = review.snoozed_until is not None and review.snoozed_until > now
    return review.action not in ("apply", "ignore") and not asleep


def choose(store: Store, change_filter: ChangeFilter, scope: Collection[str] | None = None) -> list[Review]:
    """Return the changes that are meant; InstepError if there are none. A connection alone means none. `scope`:
    patterns find changes of these connections only, None for all."""
    return selected(change_filter, store.reviews.get, lambda name: store.reviews.find(name, ("open",), scope=scope))


def selected(
    change_filter: ChangeFilter, named: Callable[[str], Review], unanswered: Callable[[str | None], Sequence[Review]]
) -> list[Review]:
    """Choose changes as `choose` does, from any source of changes: `named` finds one by its id, `unanswered` the open
    ones of a connection or of all."""
    by_id = {r.id: r for r in map(named, change_filter.ids)}
    for review in unanswered(change_filter.connection) if change_filter.filters else ():
        if change_filter.fits(review):
            by_id[review.id] = review
    if not by_id:
        raise none_found(change_filter)
    return list(by_id.values())


def none_found(change_filter: ChangeFilter, *, searched: bool = False) -> InstepError:
    """Return the error for a request that no change fits, or that names none. `searched`: it has further filters."""
    if not change_filter.filters and not searched:
        return InstepError("no change was named", hint="give ids from `instep changes list`, or --match PATTERN")
    given = ", ".join([*change_filter.patterns, *change_filter.kinds, *change_filter.tables])
    return InstepError(f"no open change fits {visible(given) or 'the filters'}", hint="see `instep changes list --all`")


def answer(store: Store, reviews: Sequence[Review], status: Answer, who: str) -> list[Review]:
    """Record the answers in one transaction; the next plan, apply or sync acts on them. Ignored changes are rejected
    ones that nobody is told about again."""
    with store.transaction():
        decision: ReviewStatus = "approved" if status == "approved" else "rejected"
        done = store.reviews.decide_many([r.id for r in reviews], decision, who)
        store.events.add(*(_event(r, status, who) for r in done))
    return done


def _event(review: Review, status: Answer, who: str) -> Event:
    if status == "approved":
        return ChangeApproved(review.connection, review.id, who, review.summary)
    if status == "rejected":
        return ChangeRejected(review.connection, review.id, who, review.summary)
    why = f"ignored by {who}: not asked again until the change itself differs"
    return ChangeIgnored(review.connection, review.id, review.summary, why)


def snooze(store: Store, reviews: Sequence[Review], until: datetime, who: str) -> list[Review]:
    """Snooze open changes until then, in one transaction; raises Conflict if one of them is not open."""
    with store.transaction():
        done = store.reviews.snooze_many([r.id for r in reviews], until)
        store.events.add(*(ChangeSnoozed(r.connection, r.id, who, until.isoformat(), r.summary) for r in done))
    return done


def reopen(store: Store, reviews: Sequence[Review], who: str) -> list[Review]:
    """Take back the answers to these changes, and their snoozes, in one transaction; Conflict for one that was applied
    or is obsolete. Who has answered stays recorded. One that waits already is left as it is."""
    with store.transaction():
        ids = [r.id for r in reviews]
        waiting = {r.id for r in store.reviews.of_ids(ids) if r.status == "open" and not store.reviews.is_asleep(r)}
        done = store.reviews.reopen_many(ids)
        again = [r for r in done if r.id not in waiting]
        store.events.add(*(ChangeReopened(r.connection, r.id, r.summary, f"reopened by {who}", who) for r in again))
    return done


def until(duration: str | None, date: str | None, now: datetime) -> datetime:
    """Return the end of a snooze from a duration (`90m`, `4h`, `3d`, `2w`) or a date (`2026-12-01`, `2026-12-01T08:00`,
    UTC unless it has an offset); InstepError if it is neither, both, or not ahead of `now`."""
    if (duration is None) == (date is None):
        raise InstepError("until when?", hint="give either --for 3d or --until 2026-12-01")
    end = now + _length(duration) if duration is not None else _date(date or "")
    if end <= now:
        raise InstepError(
            f"{date or duration} is not ahead of now ({now:%Y-%m-%d %H:%M} UTC)", hint="give a later time"
        )
    return end


def _length(text: str) -> timedelta:
    match = re.fullmatch(r"([1-9]\d{0,3})([mhdw])", text.strip())
    if match is None:
        raise InstepError(f"{text!r} is not a duration", hint="a number and m, h, d or w: 90m, 4h, 3d, 2w")
    return int(match[1]) * _UNITS[match[2]]


def _date(text: str) -> datetime:
    try:
        return utc(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InstepError(f"{text!r} is not a date", hint="write 2026-12-01 or 2026-12-01T08:00 (UTC)") from None
