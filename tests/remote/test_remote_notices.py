"""Channels are tried, and deliveries looked at, over a server as at the project: to a real receiver on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from remote_world import PROJECT, Twins

from instep.events import ReviewNeeded
from instep.store.history.outbox import Notice
from receivers import Web, web

TOLD = (
    PROJECT.replace("policy: careful}", "policy: careful, notify: [{on: [review_needed], to: ops}]}")
    + """\
channels: {ops: {type: slack, url: '${env:HOOK}'}}
egress: {allow: [127.0.0.0/8]}
"""
)
JSON = ("--output", "json")


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    with web() as running:
        monkeypatch.setenv("HOOK", running.url)
        yield running


@pytest.mark.parametrize("twins", [TOLD], indirect=True)
def test_a_channel_is_tried(receiver: Web, twins: Twins) -> None:
    for more in ((), JSON):
        twins.both("notify", "test", "ops", *more)
    assert len(receiver.documents) == 4
    receiver.answers = [(403, {})] * 2
    _, there = twins.both("notify", "test", "ops", code=4)
    assert "403" in there.err
    for words in (("test", "opz"), ("log", "opz"), ("log", "--delivery", "9")):
        found = [run("notify", *words) for run in (twins.near.here, twins.far.there)]
        assert [said.code for said in found] == [1, 1]
        assert all(words[-1] in said.err for said in found)


@pytest.mark.parametrize("twins", [TOLD], indirect=True)
def test_deliveries_and_their_attempts(receiver: Web, twins: Twins) -> None:
    twins.both("notify", "log")
    receiver.answers = [(503, {})] * 2
    for world in (twins.near, twins.far):
        with world.store() as store:
            store.outbox.routing = lambda event, at: [Notice("ops", "shop", "review_needed", "info", True, at)]
            store.events.add(ReviewNeeded("shop", "c-1234", "column price is new", "preset approve"))
        assert world.here("notify", "send").code == 1
    for more in ((), ("ops",), ("-n", "1"), ("--delivery", "1")):
        twins.both("notify", "log", *more)
    for more, of in (((), "deliveries"), (("--delivery", "1"), "attempts")):
        near, far = (run("notify", "log", *more, *JSON).json[of] for run in (twins.near.here, twins.far.there))
        assert [set(one) for one in near] == [set(one) for one in far]
        kept = ("number", "channel", "notices", "status", "attempt", "error", "code")
        assert [[one.get(k) for k in kept] for one in near] == [[one.get(k) for k in kept] for one in far]
        assert len(far) == 1


@pytest.mark.parametrize("twins", [TOLD], indirect=True)
def test_what_is_for_the_project_alone_says_so(receiver: Web, twins: Twins) -> None:
    for word in (("list",), ("send",)):
        refused = twins.far.there("notify", *word)
        assert (refused.code, "is not available with --server" in refused.err) == (1, True)


@pytest.mark.parametrize("twins", [TOLD], indirect=True)
def test_a_channel_is_opened(receiver: Web, twins: Twins) -> None:
    twins.both("notify", "open", "ops")
    for world in (twins.near, twins.far):
        with world.store() as store:
            store.outbox.close("ops", "the receiver answered 410 (gone)")
    twins.both("notify", "open", "ops", *JSON)
    for world in (twins.near, twins.far):
        with world.store() as store:
            assert store.outbox.closed() == {}
            assert store.audit.page()[0].action == "channel.open"


@pytest.mark.parametrize("twins", [TOLD], indirect=True)
def test_a_delivery_that_is_none_or_not_dead_is_not_retried(receiver: Web, twins: Twins) -> None:
    for world in (twins.near, twins.far):
        with world.store() as store:
            store.outbox.routing = lambda event, at: [Notice("ops", "shop", "review_needed", "info", True, at)]
            store.events.add(ReviewNeeded("shop", "c-1234", "column price is new", "preset approve"))
            store.outbox.gather()
    for number, code in (("9", 1), ("1", 5)):
        found = [run("notify", "retry", number) for run in (twins.near.here, twins.far.there)]
        assert [said.code for said in found] == [code, code], found
