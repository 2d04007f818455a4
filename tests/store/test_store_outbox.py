"""Notices are written with their events, gathered at most once a minute, and delivered by one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_world import Clock

from instep.errors import Conflict, InstepError
from instep.events import ChangeDetected, Event, Paused, RunStarted
from instep.store.history.outbox import LEASE, Notice
from instep.store.store import Store


def routing(event: Event, at: datetime) -> Iterator[Notice]:
    """Changes and pauses go to `ops`, pauses to `pager` as well; pauses are urgent."""
    if isinstance(event, ChangeDetected | Paused):
        urgent = isinstance(event, Paused)
        for channel in ("ops", "pager") if urgent else ("ops",):
            yield Notice(channel, event.connection, "paused" if urgent else "detected", "info", urgent, at)


@pytest.fixture(name="told")
def _told(any_store: Store) -> Store:
    any_store.outbox.routing = routing
    return any_store


def changed(number: int = 1, connection: str = "shop") -> ChangeDetected:
    return ChangeDetected(connection, f"c-{number}", "column.added", f"column {number} added")


def sends(store: Store) -> list[tuple[str, list[str]]]:
    """Gathers and sends all that is due: (channel, types of events)."""
    store.outbox.gather()
    found = []
    while delivery := store.outbox.claim():
        told = store.outbox.events_of(delivery)
        assert len(told) == delivery.notices
        found.append((delivery.channel, [t.event.type for t in told]))
        assert store.outbox.sent(delivery, seconds=0.1, code=200)
    return found


def test_notices_are_written_with_their_events_or_not_at_all(told: Store) -> None:
    with pytest.raises(ZeroDivisionError), told.transaction():  # noqa: PT012
        told.events.add(changed())
        raise ZeroDivisionError
    assert told.outbox.waiting() == {}
    told.events.add(RunStarted("shop", "r", "sync"), changed(), Paused("shop", "why"))
    assert told.outbox.waiting() == {"ops": 2, "pager": 1}
    assert sends(told) == [("ops", ["change.detected", "connection.paused"]), ("pager", ["connection.paused"])]
    assert told.outbox.waiting() == {}


def test_at_most_one_delivery_a_minute_and_none_is_lost(told: Store, clock: Clock) -> None:
    told.events.add(changed(1), changed(2))
    assert sends(told) == [("ops", ["change.detected"] * 2)]
    for number in range(3, 9):
        clock.forward(9)
        told.events.add(changed(number))
        assert sends(told) == []
    told.events.add(changed(1, "billing"))
    assert sends(told) == [("ops", ["change.detected"])]
    clock.forward(6.1)
    assert sends(told) == [("ops", ["change.detected"] * 6)]


def test_a_pause_is_never_delayed(told: Store, clock: Clock) -> None:
    told.events.add(changed(1))
    sends(told)
    told.events.add(changed(2), Paused("shop", "why"))
    assert [channel for channel, _ in sends(told)] == ["ops", "pager"]
    told.events.add(Paused("shop", "why again"))
    assert [channel for channel, _ in sends(told)] == ["ops", "pager"]
    told.events.add(changed(3))
    assert sends(told) == []  # the minute still runs; the second change went with the first pause
    clock.forward(61)
    assert sends(told) == [("ops", ["change.detected"])]


def test_notices_that_are_due_later_wait(store: Store, clock: Clock) -> None:
    store.outbox.routing = lambda event, at: [Notice("mail", "", "detected", "info", False, at + timedelta(hours=1))]
    store.events.add(changed(1), changed(2, "billing"))
    assert sends(store) == []
    clock.forward(3600)
    assert sends(store) == [("mail", ["change.detected"] * 2)]


def test_one_process_has_a_delivery_until_its_lease_ends(told: Store, clock: Clock) -> None:
    told.events.add(changed())
    told.outbox.gather()
    first = told.outbox.claim()
    assert first is not None
    assert told.outbox.claim() is None
    clock.forward(LEASE.total_seconds() + 1)
    second = told.outbox.claim()
    assert second is not None
    assert (second.id, second.attempt) == (first.id, 2)
    assert not told.outbox.sent(first, seconds=130)
    assert told.outbox.sent(second, seconds=0.1)
    assert [a.attempt for a in told.outbox.attempts(first.number)] == [1, 2]


def test_a_failed_delivery_is_tried_again_and_may_die(told: Store, clock: Clock) -> None:
    told.events.add(changed())
    told.outbox.gather()
    first = told.outbox.claim()
    assert first is not None
    told.outbox.failed(first, "answered 503", seconds=1, code=503, again=clock() + timedelta(minutes=5))
    assert told.outbox.claim() is None
    clock.forward(300)
    second = told.outbox.claim()
    assert second is not None
    told.outbox.failed(second, "answered 500", seconds=1, code=500)
    [dead] = told.outbox.log("ops")
    assert (dead.status, dead.error, dead.attempt) == ("dead", "answered 500", 2)
    assert [(a.code, a.error) for a in told.outbox.attempts(dead.number)] == [(503, "answered 503"),
                                                                               (500, "answered 500")]  # fmt: skip
    assert told.outbox.waiting() == {}
    told.outbox.retry(dead.number)
    assert told.outbox.waiting() == {"ops": 1}
    third = told.outbox.claim()
    assert third is not None
    assert third.attempt == 3
    told.outbox.sent(third, seconds=1)
    with pytest.raises(Conflict, match="is sent, not dead"):
        told.outbox.retry(dead.number)
    with pytest.raises(InstepError, match="no delivery 99"):
        told.outbox.retry(99)


def test_a_closed_channel_keeps_its_notices(told: Store) -> None:
    told.outbox.close("ops", "it answered 410")
    told.events.add(changed())
    assert sends(told) == []
    assert told.outbox.closed() == {"ops": "it answered 410"}
    assert told.outbox.open("ops")
    assert not told.outbox.open("ops")
    assert sends(told) == [("ops", ["change.detected"])]


def test_old_deliveries_are_forgotten(told: Store, clock: Clock) -> None:
    told.events.add(changed(1))
    sends(told)
    clock.forward(3600)
    told.events.add(changed(2))
    sends(told)
    told.events.add(Paused("shop", "why"))
    told.outbox.gather()
    clock.forward(3600)
    assert told.outbox.forget(timedelta(seconds=5400)) == 1
    assert told.outbox.forget(timedelta(seconds=5400)) == 0
    assert [d.number for d in told.outbox.log()] == [4, 3, 2]
    assert told.outbox.attempts(1) == []
    assert told.outbox.waiting() == {"ops": 1, "pager": 1}


@given(st.lists(st.tuples(st.sampled_from("ec"), st.integers(0, 90)), max_size=30))
def test_every_notice_is_in_one_delivery_and_those_of_a_batch_are_apart(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    clock = Clock()
    with Store(f"sqlite:///{tmp_path_factory.mktemp('s') / 'state.db'}", now=clock) as store:
        store.outbox.routing = routing
        seen: list[int] = []
        for number, (what, seconds) in enumerate(steps):
            if what == "e":
                store.events.add(changed(number))
            clock.forward(seconds)
            store.outbox.gather()
        clock.forward(60)
        store.outbox.gather()
        while delivery := store.outbox.claim():
            seen += [t.event.number for t in store.outbox.events_of(delivery)]
            store.outbox.sent(delivery, seconds=0)
        made = sorted(d.created for d in store.outbox.log())
    assert sorted(seen) == list(range(1, 1 + sum(what == "e" for what, _ in steps)))
    assert all(later - earlier >= timedelta(seconds=60) for earlier, later in pairwise(made))
