"""Webhooks of the compatible API: real syncs, told to a real web server on loopback."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from compat_world import Compat, compatible

from instep.control.compat import Identity
from instep.events import ChangeApplied, ChangeDetected, Event, Paused, RunEnded, RunStarted
from instep.notify.deliver import HOOK_BACKOFF, HOOK_RETRIED_FOR, Sender
from instep.notify.hooks import EVENTS, OURS, PREFIX, Hooks, facts, words
from receivers import Web, web

ALLOW = "egress: {allow: [127.0.0.1]}\n"
SECRET = "a secret that both know"


@pytest.fixture
def hooked(tmp_path: Path, store_line: str) -> Iterator[tuple[Compat, Web]]:
    with web() as receiver, compatible(tmp_path, file=ALLOW + store_line) as compat:
        compat.sql("create table item (id integer primary key, name text); insert into item values (1, 'pen')")
        yield compat, receiver


def hook(compat: Compat, receiver: Web, *events: str, at: str = "account", **more: Any) -> str:
    """A hook that is told of these events; the receiver has forgotten the test that made it."""
    body = {"url": receiver.url, "events": list(events), "secret": SECRET, **more}
    made: str = compat.data("POST", f"/webhooks/{at}", body)["id"]
    receiver.got.clear()
    return made


def send(compat: Compat) -> None:
    """As the worker's thread does."""
    assert all(not one.error for one in compat.app.sender().send())


def told(receiver: Web) -> list[tuple[str, Any]]:
    return [(one["event"], one["data"]) for one in receiver.documents]


def test_a_sync_is_told_with_a_signature(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    hook(compat, receiver, "sync_start", "sync_end")
    compat.sync()
    send(compat)
    assert told(receiver) == [("sync_start", {}), ("sync_end", {"status": "SUCCESSFUL"})]
    run = compat.store.runs.latest("shop")
    assert run is not None
    for _, headers, body in receiver.got:
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert headers["X-Fivetran-Signature-256"].lower() == digest
        assert headers["Content-Type"] == "application/json"
    end = receiver.documents[1]
    assert end | {"created": "", "data": {}} == {
        "event": "sync_end", "created": "", "connector_type": "sqlite", "connector_id": "shop",
        "connector_name": "shop", "sync_id": run.id, "destination_group_id": "lake", "data": {},
    }  # fmt: skip
    assert end["created"].endswith("Z")
    assert len(end["created"]) == len("2026-01-01T00:00:00.000Z")


def test_a_sync_that_fails_is_told_with_its_reason(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    hook(compat, receiver, "sync_end", "connection_failure", "connection_successful")
    kept = (compat.folder / "shop.db").rename(compat.folder / "away.db")
    compat.sync()
    send(compat)
    ended, broken = receiver.documents
    assert (ended["event"], ended["data"]["status"]) == ("sync_end", "FAILURE")
    assert broken["event"] == "connection_failure"
    assert "shop.db" in ended["data"]["reason"]
    assert "shop.db" in broken["data"]["reason"]
    kept.rename(compat.folder / "shop.db")
    receiver.got.clear()
    compat.sync()
    compat.sync()
    send(compat)
    assert [word for word, _ in told(receiver)] == ["sync_end", "connection_successful", "sync_end"]


def test_the_life_of_a_connection(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    compat.sql("create table t (id integer primary key)", "second.db")
    hook(compat, receiver, *(e for e in EVENTS if not e.startswith("sync")))
    body = {"group_id": "lake", "service": "sqlite", "config": {"path": "second.db", "schema": "second"}}
    compat.data("POST", "/connections", body, 201)
    compat.ask("PATCH", "/connections/second", {"paused": True})
    compat.ask("PATCH", "/connections/second", {"paused": False})
    compat.ask("PATCH", "/connections/second", {"sync_frequency": 60})
    compat.ask("PATCH", "/connections/second", {"config": {"path": "second.db"}})
    compat.sync("second")
    compat.ask("POST", "/connections/second/resync", {"scope": {"main": ["t"]}})
    compat.worker.idle()
    compat.ask("POST", "/connections/second/resync")
    compat.worker.idle()
    compat.ask("DELETE", "/connections/second")
    send(compat)
    assert [word for word, _ in told(receiver)] == [
        "create_connector", "connection_successful", "pause_connector", "resume_connector", "edit_connector",
        "edit_connector", "force_update_connector", "status", "resync_table", "status", "resync_connector", "status",
        "delete_connector",
    ]  # fmt: skip
    last = receiver.documents[-1]
    assert (last["connector_id"], last["connector_type"], last["connector_name"], last["destination_group_id"]) == (
        "second", "sqlite", "second", "lake",
    )  # fmt: skip


def test_a_service_that_nothing_reads_is_told_of_too(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    hook(compat, receiver, "create_connector", "edit_connector", "delete_connector", at="group/lake")
    body = {"group_id": "lake", "service": "zendesk", "config": {"schema": "desk"}}
    compat.data("POST", "/connections", body, 201)
    send(compat)
    compat.ask("DELETE", "/connections/desk")
    send(compat)
    assert [(d["event"], d["connector_type"], d["connector_name"]) for d in receiver.documents] == [
        ("create_connector", "zendesk", "desk"), ("delete_connector", "zendesk", "desk"),
    ]  # fmt: skip


def test_a_hook_of_a_group_is_told_of_its_connections(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    compat.keep("destinations: {pond: {type: iceberg}}")
    for group, word in (("lake", "pause_connector"), ("pond", "resume_connector")):
        hook(compat, receiver, word, at=f"group/{group}")
    for paused in (True, False):
        compat.ask("PATCH", "/connections/shop", {"paused": paused})
    send(compat)
    assert [word for word, _ in told(receiver)] == ["pause_connector"]


def test_schema_changes_are_told_to_those_who_ask_for_them(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    compat.sync()
    hook(compat, receiver, *OURS)
    compat.sql("alter table item add column price real")
    compat.sync()
    send(compat)
    assert [word for word, _ in told(receiver)] == ["schema_change_detected", "schema_change_applied"]
    assert "price" in told(receiver)[0][1]["summary"]


def test_what_is_off_is_told_nothing_and_what_is_deleted_neither(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    hook(compat, receiver, "pause_connector", active=False)
    gone = hook(compat, receiver, "pause_connector")
    compat.ask("PATCH", "/connections/shop", {"paused": True})
    compat.ask("DELETE", f"/webhooks/{gone}")
    send(compat)
    assert receiver.got == []


def due(compat: Compat, receiver: Web) -> tuple[str, Sender, list[datetime]]:
    """A hook with a delivery that waits, and who sends it while the one time in the list is now."""
    name = hook(compat, receiver, "pause_connector")
    compat.ask("PATCH", "/connections/shop", {"paused": True})
    times = [compat.store.api_keys.now()]
    compat.store._db.now = lambda: times[0]
    sender = Sender(compat.store, compat.app.channel, lambda _: "", lambda *_: "", lambda: times[0], lambda: 0.5)
    return name, sender, times


def test_a_receiver_that_fails_is_asked_again_then_switched_off(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    name, sender, times = due(compat, receiver)
    receiver.answers, begun, waits = [(500, {})] * 30, times[0], []
    while (results := sender.send()) and results[0].again:
        assert "500" in results[0].error
        waits.append((results[0].again - times[0]) / timedelta(minutes=1))
        times[0] = results[0].again
    assert waits == pytest.approx([0.9 * 5 * step for step in range(1, 24)])
    assert timedelta(hours=18) < times[0] - begun <= timedelta(hours=24)
    assert len(HOOK_BACKOFF) == len(waits)
    assert compat.data("GET", f"/webhooks/{name}")["active"] is False
    assert sender.send() == []
    receiver.answers = [(500, {})]
    refused = compat.ask("PATCH", f"/webhooks/{name}", {"active": True}, 400)
    assert "500" in refused["message"]
    assert compat.data("PATCH", f"/webhooks/{name}", {"active": True})["active"] is True
    assert compat.store.outbox.closed() == {}


def test_a_receiver_that_asks_for_a_day_gets_none_later(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    name, sender, times = due(compat, receiver)
    receiver.answers = [(503, {"Retry-After": "86400"})] * 30
    [first] = sender.send()
    times[0] = first.again or times[0]
    assert times[0] == first.delivery.created + HOOK_RETRIED_FOR
    [last] = sender.send()
    assert (last.again, compat.data("GET", f"/webhooks/{name}")["active"]) == (None, False)


def test_a_delivery_that_comes_late_has_its_tries_first(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    name, sender, times = due(compat, receiver)
    compat.store.outbox.gather()
    receiver.answers = [(500, {})] * 3
    for late in (timedelta(days=2), timedelta(0), timedelta(days=9)):  # no worker for two days, and for nine
        times[0] += late
        [failed] = sender.send()
        assert failed.again is not None
        assert failed.again - times[0] < timedelta(hours=1)
        times[0] = failed.again
    assert compat.data("GET", f"/webhooks/{name}")["active"] is True
    [arrived] = sender.send()
    assert (arrived.error, len(receiver.documents)) == ("", 4)


def test_after_days_without_a_worker_earlier_tries_do_not_count(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    name, sender, times = due(compat, receiver)
    receiver.answers, tries = [(500, {})] * 30, len(HOOK_BACKOFF)
    for _ in range(tries):
        [failed] = sender.send()
        times[0] = failed.again or times[0]
    times[0] += timedelta(days=2)
    [failed] = sender.send()
    assert (failed.delivery.attempt, compat.data("GET", f"/webhooks/{name}")["active"]) == (tries + 1, True)
    assert failed.again is not None
    assert failed.again - times[0] <= timedelta(seconds=HOOK_BACKOFF[0])
    receiver.answers, times[0] = [], failed.again
    assert [one.error for one in sender.send()] == [""]


def test_a_dead_delivery_that_somebody_tries_again_has_its_tries_anew(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    name, sender, times = due(compat, receiver)
    receiver.answers = [(500, {})] * 30
    while (last := sender.send()[0]).again is not None:
        times[0] = last.again
    number, spent = last.delivery.number, last.delivery.attempt
    compat.store.outbox.open(last.delivery.channel)
    compat.store.outbox.retry(number)
    [failed] = sender.send()
    assert (failed.delivery.attempt, compat.data("GET", f"/webhooks/{name}")["active"]) == (spent + 1, True)
    assert failed.again is not None
    assert failed.again - times[0] <= timedelta(seconds=HOOK_BACKOFF[0])
    receiver.answers, times[0] = [], failed.again
    assert [one.error for one in sender.send()] == [""]
    assert len(compat.store.outbox.attempts(number)) == spent + 2


def test_a_hook_is_tried_when_it_is_made_and_when_somebody_asks(hooked: tuple[Compat, Web]) -> None:
    compat, receiver = hooked
    body = {"url": receiver.url, "events": ["sync_end"], "secret": SECRET}
    receiver.answers = [(404, {})]
    assert "404" in compat.ask("POST", "/webhooks/account", body, 400)["message"]
    assert compat.data("GET", "/webhooks")["items"] == []
    made = compat.data("POST", "/webhooks/account", body)
    assert receiver.documents[-1]["event"] == "sync_end"
    tried = compat.data("POST", f"/webhooks/{made['id']}/test", {"event": "sync_start"})
    assert (tried["succeed"], tried["status"], receiver.documents[-1]["event"]) == (True, 200, "sync_start")
    receiver.answers = [(503, {})]
    failed = compat.data("POST", f"/webhooks/{made['id']}/test", {"event": "sync_start"})
    assert (failed["succeed"], failed["status"]) == (False, 503)
    compat.ask("POST", f"/webhooks/{made['id']}/test", {"event": "nope"}, 400)


NOWHERE = [
    "http://127.0.0.1:9/x", "http://example.invalid/x", "https://169.254.169.254/latest", "https://[::1]/",
    "https://u:p@example.com/", "file:///etc/passwd", "https://10.0.0.1/x",
]  # fmt: skip


def test_where_no_hook_may_be(compat: Compat) -> None:
    """Without anything in the file's `egress`: neither http nor inner addresses."""
    for url in NOWHERE:
        body = {"url": url, "events": ["sync_end"]}
        assert compat.ask("POST", "/webhooks/account", body, 400)["code"] == "InvalidInput", url
    assert compat.data("GET", "/webhooks")["items"] == []


SAID: list[tuple[Event, tuple[str, ...], dict[str, Any]]] = [
    (RunStarted("c", "r-1", "sync"), ("sync_start",), {}), (RunStarted("c", "r-1", "maintain"), (), {}),
    (RunEnded("c", "r-1", "sync", "partial", "x"), ("sync_end", "status"), {"status": "FAILURE", "reason": "x"}),
    (RunEnded("c", "r-1", "backfill", "blocked"), ("sync_end", "status"), {"status": "FAILURE_WITH_TASK"}),
    (Paused("c", "why"), ("pause_connector",), {"reason": "why"}), (Paused("c", "why", "t"), (), {"reason": "why"}),
    (ChangeDetected("c", "c-1", "column.added", "s"), ("schema_change_detected",),
     {"change": "c-1", "kind": "column.added", "summary": "s"}),
    (ChangeApplied("c", "c-1", "s", 2), ("schema_change_applied",), {"change": "c-1", "summary": "s", "version": 2}),
]  # fmt: skip


@pytest.mark.parametrize(("event", "called", "data"), SAID)
def test_words_and_facts(event: Event, called: tuple[str, ...], data: dict[str, Any]) -> None:
    assert words(event) == called
    assert facts(event) == data
    assert set(called) <= {*EVENTS, *OURS}


def test_what_nobody_asked_for_makes_no_notice(compat: Compat) -> None:
    hooks = Hooks(compat.store, lambda _: Identity())
    assert hooks(RunStarted("shop", "r-1", "sync"), compat.store.api_keys.now()) == []
    assert compat.app.store.outbox.closed() == {}
    assert PREFIX == "v1:"
