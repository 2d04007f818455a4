"""What a worker does beside its jobs: it sends notices, and forgets once a day what is old."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from worker_world import Shop, until

from instep.bootstrap import App, open_project
from instep.control import freshness
from instep.monitoring.retention import forget_some
from instep.store.history.recorded_event import LoggedEvent
from instep.store.store import Store
from instep.worker import lane
from instep.worker import worker as module
from receivers import Post, Web, post_office, web

MAIL = """\
egress: {{allow: [127.0.0.0/8]}}
server_url: https://instep.example.org
channels:
  mail: {{type: email, host: 127.0.0.1, port: {mail}, tls: none, to: [data@example.org], sender: i@example.org}}
  gone: {{type: webhook, url: "${{env:GONE}}", secret: "${{env:HOOK}}"}}
  hook: {{type: webhook, url: "${{env:URL}}", secret: "${{env:HOOK}}"}}
notify: [{{on: [failed], to: mail}}, {{on: [applied], to: hook}}, {{on: [failed], to: gone}}]
"""


@pytest.fixture
def post() -> Iterator[Post]:
    with post_office() as running:
        yield running


@pytest.fixture
def hook() -> Iterator[Web]:
    with web() as running:
        yield running


@pytest.fixture
def told(shop: Shop, post: Post, hook: Web, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """With channels; its source is not there, so that syncs fail."""
    monkeypatch.setenv("HOOK", "whsec_" + "c2VjcmV0LW9mLTMyLWJ5dGVzLWZvci10aGUtdGVzdHM=")
    monkeypatch.setenv("URL", hook.url)
    monkeypatch.setenv("GONE", "http://127.0.0.1:1/")
    monkeypatch.setattr(lane, "LOOK", 0.1)
    monkeypatch.setattr(lane, "LONGEST_WAIT", 60.0)  # however slow the machine is
    file = shop.folder / "instep.yml"
    file.write_text(file.read_text() + MAIL.format(mail=post.port))
    (shop.folder / "shop.db").rename(shop.folder / "away.db")
    return shop


def back(shop: Shop) -> None:
    (shop.folder / "away.db").rename(shop.folder / "shop.db")


def fails(store: Store) -> str:
    """A sync that the worker tries once; its id."""
    return store.jobs.enqueue("shop", "sync", attempts=1)[0].id


def test_a_worker_sends_what_its_jobs_have_to_tell(told: Shop, post: Post, hook: Web) -> None:
    with told.store() as store:
        with told.working(grace=30.0):
            job = fails(store)
            until(lambda: post.mails and any("gone" in said for said in told.said))
            back(told)
            store.jobs.enqueue("shop", "sync")
            until(lambda: hook.got)
        assert store.jobs.get(job).status in ("dead", "failed")
        log = {d.channel: d.status for d in store.outbox.log() if d.channel != "hook"}
    assert log == {"mail": "sent", "gone": "waiting"}, "one that is not reached is tried again, and holds up no other"
    (mail,) = post.mails
    assert (mail["To"], "shop" in str(mail["Subject"])) == ("data@example.org", True)
    assert "item" in str(hook.documents)


@pytest.mark.slow
def test_a_file_that_is_broken_for_a_moment_loses_no_notice(told: Shop, post: Post) -> None:
    """Run and job of a failed sync are one piece of news; it is sent by the settings that were good last."""
    file = told.folder / "instep.yml"
    kept = file.read_text()
    with told.store() as store, told.working(grace=30.0, lanes=1):
        warm = store.jobs.enqueue("shop", "test_connection", options={"destination": "shop_lake"})[0].id
        until(lambda: store.jobs.get(warm).over)
        told.put("connections: [")
        until(lambda: any("holds on" in said for said in told.said))
        fails(store)
        until(lambda: post.mails)
        told.put(kept)
    (mail,) = post.mails
    said = mail.get_body(("plain",)).get_content()
    assert ("sync failed" in said, "sync given up" in said) == (True, True)


@pytest.mark.slow
def test_what_is_due_as_a_worker_ends_is_still_sent(told: Shop, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "LOOK", 60.0)  # so that only the end is left
    with told.store() as store:
        fails(store)
        told.worker().run(drain=True)
        assert [d.status for d in store.outbox.log() if d.channel == "mail"] == ["sent"]
    assert len(post.mails) == 1


def test_what_nobody_expected_ends_no_sending(told: Shop, post: Post) -> None:
    """A store is opened in vain twice; what waits is sent after that."""
    tries: list[Exception] = [KeyError("crm"), OSError("too many open files")]

    def opener() -> App:
        if tries:
            raise tries.pop(0)
        return open_project(told.folder)

    assert told.perform("sync").error
    thread = lane.NoticeThread(opener, told.said.append)
    thread.start()
    until(lambda: post.mails)
    thread.close()
    assert told.said[:2] == ["notifications were not sent: KeyError", "notifications were not sent: OSError"]
    with told.store() as store:
        assert [d.status for d in store.outbox.log() if d.channel == "mail"] == ["sent"]


@pytest.mark.slow
def test_a_mail_leaves_the_command_itself(told: Shop, post: Post) -> None:
    running = told.process("--lanes", "1")
    try:
        with told.store() as store:
            fails(store)
            until(lambda: post.mails)
    finally:
        running.terminate()
        running.wait(300)
    (mail,) = post.mails
    assert "shop" in str(mail["Subject"])


class Clock(datetime):
    """The worker's; it stands still."""

    at = datetime(2026, 3, 1, 23, 59, 50, tzinfo=UTC)

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        return cls.at


def finished(shop: Shop, at: datetime, count: int) -> None:
    """So many jobs that ended then."""
    with Store(f"sqlite:///{shop.folder / '.instep' / 'state.db'}", now=lambda: at) as store:
        for number in range(count):
            store.jobs.enqueue("shop", "test_connection", key=f"{at}{number}")
        while job := store.jobs.claim("w-1"):
            store.jobs.finish(job)


TURNS: list[tuple[str, dict[str, float], int, int]] = [
    ("a slice", {}, 0, 3),
    ("another; of exactly thirty days is not older", {"seconds": 5}, 0, 1),
    ("nothing is old", {}, 0, 1),
    ("done for the day, to its end", {"seconds": 4, "microseconds": 999_999}, 2, 3),
    ("midnight", {"microseconds": 1}, 0, 1),
    ("what is left", {"seconds": 5}, 0, 0),
    ("nothing is old", {"seconds": 5}, 0, 0),
    ("done for the day", {"hours": 23}, 2, 2),
    ("the next one", {"hours": 1}, 0, 0),
]


def test_a_day_is_forgotten_in_slices_and_once(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are kept for thirty days: one of five is just that old at the second turn."""
    monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setattr(module, "SCHEDULE", 0.0)
    monkeypatch.setattr(module, "forget_some", partial(forget_some, limit=2))
    monkeypatch.setattr(Clock, "at", Clock.at)
    finished(shop, Clock.at - timedelta(days=31), 4)
    finished(shop, Clock.at - timedelta(days=30) + timedelta(seconds=5), 1)
    worker = shop.worker()
    with shop.store() as store:
        for name, later, more, left in TURNS:
            Clock.at += timedelta(**later)
            finished(shop, Clock.at - timedelta(days=40), more)
            worker._schedule(False)
            assert len(store.jobs.find(kind="test_connection", limit=100)) == left, name


def test_a_worker_notes_late_tables_and_that_they_are_on_time_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "ROUND", 0.2)
    monkeypatch.setattr(module, "SCHEDULE", 0.1)

    def events(type: str) -> list[LoggedEvent]:
        with shop.store() as store:
            return [event for event in store.events.latest() if event.type == type]

    shop.write("freshness: 1s")
    assert shop.perform("sync").error == ""
    with shop.working():
        until(lambda: events("freshness.late"))
        shop.write("freshness: 1d")
        until(lambda: events("freshness.recovered"))
    [late], [back] = events("freshness.late"), events("freshness.recovered")
    assert (late.connection, late.data["count"]) == ("shop", len(late.data["tables"]))
    assert back.data["tables"] == late.data["tables"]
