"""From events in the store to a channel that works, that fails for a while, and that fails for good."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.egress.guard import EgressGuard
from instep.errors import ProjectError
from instep.events import ChangeApplied, ChangeDetected, ChangeMapped, Event, Paused, Resumed, ReviewNeeded, RunEnded
from instep.model import TableRun
from instep.notify import chat_services
from instep.notify.channel import Channel, PostChannel
from instep.notify.deliver import BACKOFF, HOOK_BACKOFF, HOOK_RETRIED_FOR, Sender
from instep.notify.lines import MessageLine
from instep.notify.message import Message
from instep.project.sections.channels import PostChannelSection
from instep.schema.catalog.catalog import Column, Table
from instep.schema.catalog.types import parse
from instep.schema.changes.describe import Change, change_to_dict, column_of, describe, table_of
from instep.schema.changes.kinds import (
    ColumnDefault,
    ColumnRenamed,
    ColumnWidened,
    KeyRemoved,
    SchemaAdded,
    TableRenamed,
)
from instep.store.catalogs.reviews import DetectedChange
from instep.store.history.outbox import Notice
from instep.store.store import Store
from receivers import Web, web
from store.store_world import START, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'state.db'}", now=clock) as opened:
        opened.outbox.routing = lambda event, at: [
            Notice("chat", event.connection, "x", "info", isinstance(event, Paused | RunEnded), at)
        ]
        yield opened


@pytest.fixture
def receiver() -> Iterator[Web]:
    with web() as running:
        yield running


def sender(store: Store, receiver: Web | None, clock: Clock, draw: float = 0.5) -> Sender:
    def channel(name: str) -> Channel:
        if receiver is None:
            raise ProjectError(f"unknown channel {name!r}")
        return PostChannel(
            PostChannelSection.resolved(type="slack", url=receiver.url),
            EgressGuard(("127.0.0.1",)),
            chat_services.slack_payload,
        )

    return Sender(
        store, channel, lambda name: f"{name}_db", lambda name, of: f"https://i/{name}/{of}", clock, lambda: draw
    )


def reviewed(store: Store, change: Change, rule: str = "policy careful rule 2") -> str:
    """The id of a change's review."""
    ref, column = table_of(change) or ("", ""), column_of(change)
    made = DetectedChange(
        describe(change), change.kind, ref, column, describe(change), change_to_dict(change), "review", rule, "y"
    )
    return store.reviews.record("shop", [made], "f")[0].id


def lines(store: Store, clock: Clock, *happened: Event) -> list[MessageLine]:
    """What one message says of these events."""
    store.events.add(*happened)
    store.outbox.gather()
    delivery = store.outbox.claim()
    assert delivery is not None
    return list(sender(store, None, clock).message(delivery).lines)


def column(name: str, type: str = "int64", **more: object) -> Column:
    return Column(name, parse(type), **more)  # type: ignore[arg-type]


ORDER = ("public", "order")
CHANGES: list[tuple[Change, tuple[str, ...]]] = [
    (ColumnRenamed(ORDER, column("amount"), column("total")), ("renamed", "public.order", "total", "amount", "total")),
    (ColumnWidened(ORDER, column("a", "int32"), column("a")), ("changed", "public.order", "a", "int32", "int64")),
    (KeyRemoved(ORDER, ("a", "b")), ("changed", "public.order", "", "a, b", "")),
    (SchemaAdded("crm"), ("added", "crm", "", "", "")),
    (TableRenamed(Table("public", "a", (column("x"),)), Table("public", "b", (column("x"),))),
     ("renamed", "public.b", "", "public.a", "public.b")),
]  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), CHANGES, ids=[c[0].kind for c in CHANGES])
def test_a_line_names_what_has_changed(store: Store, clock: Clock, change: Change, expected: tuple[str, ...]) -> None:
    id = reviewed(store, change)
    [said] = lines(store, clock, ChangeDetected("shop", id, change.kind, "summary"))
    assert (said.tone, said.table, said.column, said.old, said.new) == expected
    assert (said.source, said.connection, said.rule) == ("shop_db", "shop", "policy careful rule 2")
    assert (said.change, said.link, said.command) == (id, f"https://i/shop/{id}", f"instep changes show {id}")


def test_defaults_are_not_told(store: Store, clock: Clock) -> None:
    change = ColumnDefault(ORDER, column("a", default="'canary'"), column("a", default="'canary2'"))
    id = reviewed(store, change)
    [said] = lines(store, clock, ChangeDetected("shop", id, change.kind, describe(change)))
    assert "canary" in describe(change)
    assert "canary" not in str(said)


def test_what_has_become_of_a_change_is_one_line(store: Store, clock: Clock) -> None:
    id = reviewed(store, CHANGES[0][0])
    [said] = lines(
        store, clock, ChangeDetected("shop", id, "column.renamed", "s"), ReviewNeeded("shop", id, "s", "pending"),
        ChangeApplied("shop", id, "s", 4),
    )  # fmt: skip
    assert (said.status, said.what, said.numbers) == ("applied, schema version 4", "column renamed", (1, 2, 3))


LONGEST_WAIT = timedelta(seconds=5)


def test_the_end_of_a_run_waits_a_moment_for_that_of_its_job(store: Store, clock: Clock) -> None:
    job = store.jobs.enqueue("shop", "sync")[0]
    claimed = store.jobs.claim("w")
    assert claimed is not None
    store.events.add(Resumed("shop", "ann"), Resumed("other", "ann"))
    store.events.add(RunEnded("shop", "r-1", "sync", "failed", "no route"))
    store.events.add(RunEnded("other", "r-2", "sync", "failed", "no route"))
    assert store.outbox.gather(LONGEST_WAIT) == 1, "that of the other one, which has no job"
    clock.forward(4)
    assert store.outbox.gather(LONGEST_WAIT) == 0
    store.jobs.finish(claimed, "dead", error="no route")
    assert store.outbox.gather(LONGEST_WAIT) == 1
    other, both = store.outbox.claim(), store.outbox.claim()
    assert other is not None
    assert both is not None
    assert [told.event.type for told in store.outbox.events_of(other)] == ["connection.resumed", "run.ended"]
    assert [told.event.type for told in store.outbox.events_of(both)] == ["connection.resumed", "run.ended", "job.dead"]
    assert store.jobs.get(job.id).over


def test_nobody_waits_longer_than_that(store: Store, clock: Clock) -> None:
    """A pause in the midst of a long sync; and commands, which end, do not wait at all."""
    store.jobs.enqueue("shop", "sync")
    store.jobs.claim("w")
    store.events.add(Paused("shop", "key gone"))
    assert store.outbox.gather(LONGEST_WAIT) == 0
    clock.forward(3)
    store.events.add(Paused("shop", "and a cursor"))
    clock.forward(2)
    assert store.outbox.gather(LONGEST_WAIT) == 1, "the first has waited long enough, and takes the second along"
    store.events.add(Paused("shop", "a third"))
    assert store.outbox.gather() == 1


def test_pauses_runs_and_people(store: Store, clock: Clock) -> None:
    run = store.runs.claim("shop", "sync")
    store.runs.record_tables(TableRun(run.id, ORDER, "failed", error="no room"), TableRun(run.id, ("", "b"), "done"))
    id = reviewed(store, KeyRemoved(ORDER, ("a",)))
    paused, failed = lines(
        store, clock, Paused("shop", "key gone", "public.order", id), RunEnded("shop", run.id, "sync", "partial")
    )
    assert (paused.what, paused.why, paused.change) == ("paused because of key removed", "key gone", id)
    assert (failed.what, failed.why, failed.table) == ("sync partial", "public.order: no room", "public.order")
    resumed, mapped = lines(store, clock, Resumed("shop", "ann"), ChangeMapped("shop", "t", "a", "b", "ann", 3))
    assert (resumed.what, resumed.status) == ("resumed", "by ann")
    assert (mapped.tone, mapped.old, mapped.new) == ("renamed", "a", "b")


def test_a_failing_receiver_gets_it_later_and_once(store: Store, clock: Clock, receiver: Web) -> None:
    receiver.answers = [(500, {}), (429, {"Retry-After": "120"}), (200, {})]
    store.events.add(Paused("shop", "why"))
    waits = []
    for _ in range(3):
        [result] = sender(store, receiver, clock).send()
        waits.append((result.again - clock()).total_seconds() if result.again else 0)
        assert sender(store, receiver, clock).send() == []
        clock.forward(waits[-1])
    assert waits == [10, 120, 0]
    assert [d.status for d in store.outbox.log()] == ["sent"]
    assert len(receiver.got) == 3


def test_after_three_days_it_is_dead(store: Store, clock: Clock, receiver: Web) -> None:
    receiver.answers = [(500, {})] * 20
    store.events.add(Paused("shop", "why"))
    while (results := sender(store, receiver, clock).send()) and results[0].again:
        clock.forward((results[0].again - clock()).total_seconds())
    [delivery] = store.outbox.log()
    assert (delivery.status, delivery.attempt) == ("dead", len(BACKOFF) + 1)
    assert timedelta(days=2.5) < clock() - START < timedelta(days=4)
    store.outbox.retry(delivery.number)
    [failed] = sender(store, receiver, clock).send()
    assert failed.again == clock() + timedelta(seconds=BACKOFF[0]), "it is tried as often as a new one"


@given(st.integers(1, len(BACKOFF)), st.floats(0, 1), st.floats(0, 1e7))
def test_waiting_is_bounded(attempt: int, draw: float, after: float) -> None:
    made = Sender(None, None, None, None, Clock(), lambda: draw)  # type: ignore[arg-type]
    again = made.next_attempt(attempt, after)
    assert again is not None
    seconds = (again - START).total_seconds()
    assert seconds >= 0.79 * BACKOFF[attempt - 1]
    assert seconds >= min(after, 24 * 3600) - 0.01
    assert seconds <= max(1.21 * BACKOFF[attempt - 1], 24 * 3600)


DRAWS = st.lists(st.floats(0, 1), min_size=len(HOOK_BACKOFF), max_size=len(HOOK_BACKOFF))


@given(DRAWS, st.sampled_from([0.0, 60.0, 7_200.0, 86_400.0, 1e7]))
def test_a_hook_is_given_up_within_a_day(draws: list[float], after: float) -> None:
    clock, left = Clock(), iter(draws)
    made = Sender(None, None, None, None, clock, lambda: next(left))  # type: ignore[arg-type]
    attempt = 1
    while again := made.next_attempt(attempt, after, START + HOOK_RETRIED_FOR):
        assert again > clock()
        clock.forward((again - clock()).total_seconds())
        attempt += 1
    assert attempt == {7_200.0: 13, 86_400.0: 2, 1e7: 2}.get(after, len(draws) + 1)
    assert timedelta(hours=18) < clock() - START <= timedelta(hours=24)


def test_one_channel_that_fails_stops_no_other(store: Store, clock: Clock, receiver: Web) -> None:
    store.outbox.routing = lambda event, at: [
        Notice(name, event.connection, "paused", "error", True, at) for name in ("gone", "chat")
    ]
    store.events.add(Paused("shop", "why"))
    whole = sender(store, receiver, clock)

    def channel(name: str) -> Channel:
        if name == "gone":
            raise ProjectError("unknown channel 'gone'")
        return whole.channel(name)

    results = Sender(store, channel, whole.source_of, whole.link, clock).send()
    assert sorted((r.delivery.channel, r.error) for r in results) == [("chat", ""), ("gone", "unknown channel 'gone'")]
    assert len(receiver.got) == 1


def test_a_message_that_cannot_be_made_is_not_tried_for_ever(store: Store, clock: Clock) -> None:
    class Broken:
        def payload(self, message: Message) -> str:
            raise KeyError("canary")

        def send(self, message: Message) -> int:
            raise KeyError("canary")

    store.events.add(Paused("shop", "why"))
    [result] = Sender(store, lambda _: Broken(), str, lambda *_: "", clock).send()
    assert (result.error, "canary" in str(store.outbox.log())) == ("it cannot be sent: KeyError", False)
    assert result.again is not None


def test_a_gone_receiver_is_left_alone(store: Store, clock: Clock, receiver: Web) -> None:
    receiver.answers = [(410, {})]
    store.events.add(Paused("shop", "why"))
    sender(store, receiver, clock).send()
    clock.forward(1e6)
    assert sender(store, receiver, clock).send() == []
    store.outbox.open("chat")
    [result] = sender(store, receiver, clock).send()
    assert result.error == ""
